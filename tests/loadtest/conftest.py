"""A herd without sockets, for whatever judges or counts one."""

from __future__ import annotations

import pytest

from loadtest.herd import Herd
from loadtest.options import Options
from tests.support.tokens import SECRET


class Nobody:
    """Is told everything, and does nothing about it."""

    def happened(self, what: str, name: str, ms: float, why: str | None = None) -> None:
        pass


@pytest.fixture
def herd() -> Herd:
    """Two pages of two users, both live, nothing published."""
    herd = Herd(Options(users=2), ["ws://127.0.0.1:1/v1/ws"], SECRET, lambda user: "abcdefgh.0-0", Nobody())
    for _ in range(2):
        herd.add().page.live_since_ms = 0.0
    return herd
