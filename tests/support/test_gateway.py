"""The gateway as a process: started, found, ended, and its log judged."""

from __future__ import annotations

import signal

import pytest

from tests.support.client import Client
from tests.support.gateway import FAST_DRAIN, GatewayProcess, assert_quiet
from tests.support.tokens import mint
from tests.support.valkey import ValkeyProcess


async def test_starts_serves_and_drains(valkey: ValkeyProcess, prefix: str) -> None:
    """A client comes in, SIGTERM closes it with 1012, the exit code is 0, and a restart keeps the port."""
    async with GatewayProcess(valkey.url, prefix=prefix, env=FAST_DRAIN) as gateway:
        port = gateway.port
        async with Client(gateway.ws_url, mint("ann")) as client:
            await client.until_synced()
            assert await gateway.stop() == 0
            assert client.closes[0].code == 1012
            await gateway.start()
            assert gateway.port == port
            await client.until_synced(connection=2)
            client.check()
        assert gateway.rss_bytes() > 1_000_000
        assert gateway.descriptors() > 3


async def test_a_killed_gateway_says_so(valkey: ValkeyProcess, prefix: str) -> None:
    """kill -9 shows as the exit code of that signal."""
    async with GatewayProcess(valkey.url, prefix=prefix) as gateway:
        gateway.signal(signal.SIGKILL)
        assert await gateway.wait_exit() == -signal.SIGKILL


async def test_a_gateway_that_cannot_start_shows_its_log(valkey: ValkeyProcess, prefix: str) -> None:
    """The message of the failure is what the gateway said."""
    gateway = GatewayProcess(valkey.url, prefix=prefix, env={"TIDINGS_QUEUE_EVENTS": "many"})
    with pytest.raises(RuntimeError, match="TIDINGS_QUEUE_EVENTS"):
        await gateway.start()
    await gateway.close(check=False)


def test_a_traceback_in_the_log_is_found() -> None:
    """What nobody caught fails the test, with the lines around it."""
    assert_quiet("listening on http://127.0.0.1:1\n")
    with pytest.raises(AssertionError, match="KeyError: 'x'"):
        assert_quiet("fine\nTraceback (most recent call last):\n  …\nKeyError: 'x'\n")
    with pytest.raises(AssertionError, match="never retrieved"):
        assert_quiet("Task exception was never retrieved\n")
