"""One gateway on this worker's server, under a prefix of its own, and a publisher beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.gateway import FAST_DRAIN, GatewayProcess
from tests.support.valkey import ValkeyProcess
from tidings import AsyncPublisher


@pytest.fixture
async def gateway(valkey: ValkeyProcess, prefix: str) -> AsyncIterator[GatewayProcess]:
    async with GatewayProcess(valkey.url, prefix=prefix, env=FAST_DRAIN) as process:
        yield process


@pytest.fixture
async def publisher(valkey: ValkeyProcess, prefix: str) -> AsyncIterator[AsyncPublisher]:
    async with AsyncPublisher(valkey.url, prefix=prefix) as publisher:
        yield publisher
