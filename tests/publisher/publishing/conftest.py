"""Fixtures for the transports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.tls import TlsRelay


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[TlsRelay]:
    relay = TlsRelay(tmp_path)
    yield relay
    relay.close()
