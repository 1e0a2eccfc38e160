"""The server's tests run on the loop that production uses; those of the socket itself on asyncio's own as well."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

BOTH_LOOPS = {"test_socket", "test_sockets"}


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"uvloop": uvloop.new_event_loop}
    if item.path.stem in BOTH_LOOPS:
        factories["asyncio"] = asyncio.new_event_loop
    return factories
