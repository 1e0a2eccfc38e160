"""The test client over a real connection, against a scripted server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from tests.support.client import Client
from tests.support.waiting import until

E = "epochepoch"
Script = Callable[["Scripted", ServerConnection, dict[str, Any]], Awaitable[None]]


class Scripted:
    """A server that answers each hello by the next of its scripts; the last one is used again and again."""

    def __init__(self) -> None:
        self.scripts: list[Script] = []
        self.hellos: list[dict[str, Any]] = []
        self.answers: list[dict[str, Any]] = []
        self.url = ""

    async def handle(self, connection: ServerConnection) -> None:
        hello = json.loads(await connection.recv())
        self.hellos.append(hello)
        script = self.scripts[min(len(self.hellos), len(self.scripts)) - 1]
        await script(self, connection, hello)


@pytest.fixture
async def server() -> AsyncIterator[Scripted]:
    scripted = Scripted()
    async with serve(scripted.handle, "127.0.0.1", 0, ping_interval=None) as listening:
        scripted.url = f"ws://127.0.0.1:{next(iter(listening.sockets)).getsockname()[1]}/v1/ws"
        yield scripted


async def _say(connection: ServerConnection, *frames: dict[str, Any]) -> None:
    for frame in frames:
        await connection.send(json.dumps(frame))


def _welcome(position: str, *, resumed: bool) -> dict[str, Any]:
    return {
        "type": "welcome",
        "resumed": resumed,
        "position": position,
        "heartbeat_ms": 20000,
        "timeout_ms": 10000,
    }


def _script(*events: int, then: Callable[[ServerConnection], Awaitable[None]] | None = None) -> Script:
    """Welcome where the client is (or at 0), these events, synced, then `then` or wait for the client to leave."""

    async def run(scripted: Scripted, connection: ServerConnection, hello: dict[str, Any]) -> None:
        position = hello.get("position") or f"{E}.0-0"
        await _say(connection, _welcome(position, resumed="position" in hello))
        for seq in events:
            position = f"{E}.{seq}-{seq}"
            await _say(connection, {"type": "event", "id": position, "event": "test", "data": seq, "replay": True})
        await _say(connection, {"type": "synced", "position": position, "replayed": len(events)})
        if then is not None:
            await then(connection)
        async for text in connection:
            scripted.answers.append(json.loads(text))

    return run


async def test_keeps_its_position_over_a_cut(server: Scripted) -> None:
    """After a cut it says where it was, and goes on without a hole or a repeat."""
    server.scripts = [_script(1, 2), _script(3)]
    async with Client(server.url, "token", base_ms=1) as client:
        await client.until_events(2)
        await client.until_synced()
        assert client.cut()
        await client.until_events(3)
    assert [hello.get("position") for hello in server.hellos] == [None, f"{E}.2-2"]
    assert [event.data for event in client.events] == [1, 2, 3]
    assert client.closes[0].code == 1006
    client.check()


async def test_a_hole_after_a_reconnect_is_a_violation(server: Scripted) -> None:
    """A server that loses an event between two connections is caught."""
    server.scripts = [_script(1), _script(3)]
    async with Client(server.url, "token", base_ms=1) as client:
        await client.until_synced()
        client.cut()
        await client.until_events(2)
    with pytest.raises(AssertionError, match="a hole before"):
        client.check()


async def test_answers_heartbeats_with_its_position(server: Scripted) -> None:
    """The answer carries the last id."""

    async def beat(connection: ServerConnection) -> None:
        await _say(connection, {"type": "heartbeat", "position": f"{E}.1-1"})

    server.scripts = [_script(1, then=beat)]
    async with Client(server.url, "token"):
        await until(lambda: server.answers)
    assert server.answers == [{"type": "heartbeat", "position": f"{E}.1-1"}]


@pytest.mark.parametrize(
    ("code", "reconnects"), [(1012, True), (1013, True), (4408, True), (4403, False), (4409, False)]
)
async def test_does_after_a_close_what_the_contract_says(server: Scripted, code: int, reconnects: bool) -> None:
    """It comes back, or stays away, by the code."""

    async def close(connection: ServerConnection) -> None:
        await _say(connection, {"type": "goodbye", "code": code, "retry_ms": 1})
        await connection.close(code, "test")

    server.scripts = [_script(1, then=close), _script()]
    async with Client(server.url, "token", base_ms=1) as client:
        await until(lambda: client.connections == 2 if reconnects else client.stopped, what="what the code asks for")
    assert client.closes[0].code == code
    assert client.closes[0].goodbye == {"type": "goodbye", "code": code, "retry_ms": 1}


async def test_gives_up_a_token_that_is_refused_three_times(server: Scripted) -> None:
    """4401 asks for a new token each time, and stops after three."""

    async def refuse(scripted: Scripted, connection: ServerConnection, hello: dict[str, Any]) -> None:
        await connection.close(4401, "test")

    server.scripts = [refuse]
    tokens = iter(["first", "second", "third", "fourth"])
    async with Client(server.url, lambda: next(tokens), base_ms=1) as client:
        await until(lambda: client.stopped)
    assert [hello["token"] for hello in server.hellos] == ["first", "second", "third"]


async def test_a_reconnect_before_the_refetch_sends_no_position(server: Scripted) -> None:
    """What came with a connection whose page had not fetched its state yet is not stored."""
    release = asyncio.Event()

    async def refetch(position: str) -> None:
        await release.wait()

    server.scripts = [_script(1), _script(1)]
    async with Client(server.url, "token", base_ms=1, refetch=refetch) as client:
        await client.until_synced()
        client.cut()
        await client.until_synced(connection=2)
        release.set()
        await until(lambda: client.stored == f"{E}.1-1")
    assert [hello.get("position") for hello in server.hellos] == [None, None]
