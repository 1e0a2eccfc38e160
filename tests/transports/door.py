"""A gateway of fakes and connections to it, for tests of what is said on one. Time is the test's."""

from __future__ import annotations

import json
import random
from typing import Any, cast

from pydantic import SecretStr

from tests.support.fakes import FakeBus, entry, page, position
from tests.support.tokens import SECRET, sign
from tidings.log.names import Names
from tidings.log.record import encode_durable
from tidings_gateway.auth.origin import OriginPolicy
from tidings_gateway.auth.tokens import TokenVerifier
from tidings_gateway.gateway import Gateway
from tidings_gateway.hub import Hub
from tidings_gateway.server.socket import Socket
from tidings_gateway.session import Limits
from tidings_gateway.settings import Settings
from tidings_gateway.ticker import Ticker, Timed
from tidings_gateway.transports.websocket import WebSocketConnection


class FakeSocket:
    """The socket of the server, with the transport's room in the test's hands."""

    def __init__(self, clock: ManualTicker) -> None:
        self._clock = clock
        self.paused = False
        self.held = 0
        self.bytes_written = 0
        self.last_received = clock.now
        self._ended: tuple[int, str] | None = None
        self.frames: list[dict[str, Any]] = []

    def write(self, data: bytes) -> None:
        self.bytes_written += len(data)
        if self.paused:
            self.held += len(data)
        header = 2 if data[1] < 126 else 4 if data[1] == 126 else 10
        self.frames.append(json.loads(data[header:]))

    def buffered(self) -> int:
        return self.held

    def close(self, code: int, reason: str = "") -> None:
        self._ended = (code, reason)

    def ended(self) -> tuple[int, str] | None:
        return self._ended

    def code(self) -> int | None:
        return self._ended[0] if self._ended else None


class ManualTicker:
    """A ticker that turns when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.deadlines: dict[Timed, float] = {}

    def schedule(self, item: Timed, at: float) -> None:
        self.deadlines[item] = at

    def cancel(self, item: Timed) -> None:
        self.deadlines.pop(item, None)

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self.deadlines and min(self.deadlines.values()) <= end:
            item = min(self.deadlines, key=lambda each: self.deadlines[each])
            self.now = max(self.now, self.deadlines.pop(item))
            again = item.due(self.now)
            if again is not None:
                assert again > self.now - 1e-9
                self.schedule(item, max(again, self.now + 0.001))
        self.now = end


class Door:
    """One gateway of fakes, and connections to it."""

    def __init__(self, **settings: Any) -> None:
        self.settings = Settings(jwt_secret=(SecretStr(SECRET),), **settings)
        self.ticker = ManualTicker()
        self.bus = FakeBus()
        self.wall_ms = 1_700_000_000_000
        self.hub = Hub(Names("tidings"), max_event_bytes=65_536)
        self.hub.attach(self.bus)
        door = self

        class TimedGateway(Gateway):
            def now(self) -> float:
                return door.ticker.now

            def wall_ms(self) -> int:
                return door.wall_ms

        self.gateway = TimedGateway(
            id="gw1",
            settings=self.settings,
            hub=self.hub,
            ticker=cast(Ticker, self.ticker),
            limits=Limits(256, 262_144, 128, 131_072, random.Random(1)),
            tokens=TokenVerifier(secrets=[SECRET], clock=lambda: self.wall_ms / 1000, leeway_s=10),
            origins=OriginPolicy([]),
        )

    def token(self, user: str = "ann", ttl_s: int = 900) -> str:
        now_s = self.wall_ms // 1000
        return sign({"sub": user, "iat": now_s, "exp": now_s + ttl_s})

    def connect(
        self, credential: str | None = None, *, refused: bool = False
    ) -> tuple[WebSocketConnection, FakeSocket]:
        connection = WebSocketConnection(self.gateway, credential, refused=refused)
        socket = FakeSocket(self.ticker)
        connection.opened(cast(Socket, socket))
        return connection, socket

    async def open(self, user: str = "ann", at: int = 0, **hello: Any) -> tuple[WebSocketConnection, FakeSocket]:
        connection, socket = self.connect()
        say(connection, type="hello", token=self.token(user), position=position(at).decode(), **hello)
        self.confirm(user)
        await self.bus.answer(page(at, at))
        assert [frame["type"] for frame in socket.frames] == ["welcome", "synced"]
        return connection, socket

    def confirm(self, user: str = "ann") -> None:
        channel = self.hub.channel(user)
        if channel not in self.bus.generations:
            self.bus.generations[channel] = 1
            self.hub.channel_on(channel, 1)

    def hear(self, seq: int, user: str = "ann", size: int = 0) -> None:
        self.hub.record_received(self.hub.channel(user), encode_durable(*entry(seq, size)))

    def heard_from(self, socket: FakeSocket) -> None:
        socket.last_received = self.ticker.now


def say(connection: WebSocketConnection, **members: Any) -> None:
    connection.text_received(json.dumps(members))
