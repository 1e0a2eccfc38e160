"""The demo's other tabs: real sessions, which resume, answer heartbeats and come back when told to leave."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator

import pytest
from websockets.asyncio.server import Server, ServerConnection, serve

from tests.support.waiting import until
from tidings_gateway.demo.crowd import MAX_RETRY_S, Crowd, Tab


class Gateway:
    """Welcomes whoever says hello, and keeps what it was told."""

    def __init__(self) -> None:
        self.heard: list[dict[str, str]] = []
        self.sockets: set[ServerConnection] = set()

    async def __call__(self, socket: ServerConnection) -> None:
        self.sockets.add(socket)
        try:
            async for text in socket:
                frame = json.loads(text)
                self.heard.append(frame)
                if frame["type"] == "hello":
                    welcome = {"type": "welcome", "position": "e.1-1", "session": "A-1", "user": frame["token"]}
                    await socket.send(json.dumps(welcome))
        finally:
            self.sockets.discard(socket)

    def said(self, kind: str) -> list[dict[str, str]]:
        return [frame for frame in self.heard if frame["type"] == kind]


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    made = Gateway()
    async with serve(made, "127.0.0.1", 0, subprotocols=["tidings.v1"]) as server:  # type: ignore[list-item]
        crowd = Crowd(f"ws://127.0.0.1:{_port(server)}/v1/ws", lambda user: user, 3, random.Random(1))
        crowd.start()
        yield made
        await crowd.close()


def _port(server: Server) -> int:
    return int(next(iter(server.sockets)).getsockname()[1])


async def test_they_come_leave_and_resume(gateway: Gateway) -> None:
    """Each as a user of its own; told to leave, it is back after a part of the time it was given, from its position."""
    await until(lambda: len(gateway.said("hello")) == 3, 10, "all are here")
    assert {frame["token"] for frame in gateway.said("hello")} == {"onlooker-1", "onlooker-2", "onlooker-3"}
    assert all("position" not in frame for frame in gateway.said("hello"))
    for socket in list(gateway.sockets):
        await socket.send('{"type":"goodbye","code":1012,"retry_ms":50}')
        await socket.close(1012)
    await until(lambda: len(gateway.said("hello")) == 6, 10, "all are back")
    assert [frame["position"] for frame in gateway.said("hello")[3:]] == ["e.1-1"] * 3


async def test_they_answer_heartbeats(gateway: Gateway) -> None:
    """A gateway lets go of who does not."""
    await until(lambda: len(gateway.sockets) == 3, 10, "all are here")
    for socket in gateway.sockets:
        await socket.send('{"type":"heartbeat","position":"e.2-1"}')
    await until(lambda: len(gateway.said("heartbeat")) == 3, 10, "all have answered")
    assert {frame["position"] for frame in gateway.said("heartbeat")} == {"e.2-1"}


async def test_nobody_there_ends_nobody() -> None:
    """A gateway that is down is tried again, and the end of the demo does not wait for it."""
    crowd = Crowd("ws://127.0.0.1:9/v1/ws", lambda user: user, 2, random.Random(1))
    crowd.start()
    await asyncio.sleep(0)
    async with asyncio.timeout(2):
        await crowd.close()


def test_a_wait_is_bounded() -> None:
    """Whatever a gateway says."""
    tab = Tab("u")
    assert tab.answer({"type": "goodbye", "code": 1012, "retry_ms": 10**9}) is None
    assert tab.retry_s == MAX_RETRY_S
