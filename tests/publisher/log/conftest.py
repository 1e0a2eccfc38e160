"""Fixtures for the log on a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.publisher.support import RealLog
from tests.support.valkey import ValkeyProcess


@pytest.fixture
def log(valkey: ValkeyProcess, prefix: str) -> RealLog:
    return RealLog(valkey, prefix)


@pytest.fixture
def own() -> Iterator[ValkeyProcess]:
    """A server this test may harm."""
    with ValkeyProcess() as server:
        yield server
