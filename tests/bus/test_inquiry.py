"""A question to a server: answered, refused, or not answered in time."""

from __future__ import annotations

import hiredis
import pytest

from tests.support.ports import free_port
from tests.support.proxy import FaultProxy
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings_gateway.bus.endpoint import Endpoint
from tidings_gateway.bus.inquiry import inquire
from tidings_gateway.bus.trouble import Kind, Trouble


async def test_replies_and_errors_in_order(valkey: ValkeyProcess) -> None:
    """An error is an answer like others, and nothing stays connected."""
    endpoint = Endpoint("127.0.0.1", valkey.port)
    first, bad, last = await inquire(endpoint, [("ECHO", "a"), ("NOSUCH",), ("ECHO", "b")], timeout_ms=1000)
    assert (first, last) == (b"a", b"b")
    assert isinstance(bad, hiredis.ReplyError)
    mark = [("CLIENT", "SETNAME", "asked-once"), ("ECHO", "c")]
    assert (await inquire(endpoint, mark, timeout_ms=1000))[1] == b"c"
    await until(lambda: b"asked-once" not in valkey.cli("CLIENT", "LIST"), what="closed")


@pytest.mark.parametrize("how", ["nobody", "silence", "password"])
async def test_no_answer_is_a_trouble_with_words(valkey: ValkeyProcess, how: str) -> None:
    """Whatever the reason, within the time given."""
    async with FaultProxy(valkey.port) as proxy:
        proxy.blackhole()
        endpoint, kind = {
            "nobody": (Endpoint("127.0.0.1", free_port()), Kind.REFUSED),
            "silence": (Endpoint("127.0.0.1", proxy.port), Kind.SILENT),
            "password": (Endpoint("127.0.0.1", valkey.port, password="wrong"), Kind.CREDENTIALS),
        }[how]
        with pytest.raises(Trouble) as raised:
            await inquire(endpoint, [("PING",)], timeout_ms=200)
        assert raised.value.kind is kind
        assert "wrong" not in raised.value.words
