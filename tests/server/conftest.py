"""The server's tests run on the loop that production uses; those of the socket itself on asyncio's own as well."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop

from tests.server.serving import SMALL, Served, serving


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"uvloop": uvloop.new_event_loop}
    if item.path.stem.startswith("test_socket"):
        factories["asyncio"] = asyncio.new_event_loop
    return factories


@pytest.fixture
async def served(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Served]:
    caplog.set_level(logging.INFO)
    async with serving(close_timeout_ms=300, send_buffer_bytes=SMALL, write_high_water_bytes=16_384) as served:
        yield served
