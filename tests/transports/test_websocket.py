"""The WebSocket contract on a connection: hello, welcome, heartbeats, endings. Time is the test's."""

from __future__ import annotations

import json
import random
from typing import Any, cast

import pytest
from pydantic import SecretStr

from tests.support.fakes import FakeBus, body, entry, page, position, turn
from tests.support.tokens import SECRET, sign
from tidings.log.names import Names
from tidings.log.record import encode_durable, encode_ephemeral
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
        self.hub = Hub(Names("tidings"), max_event_bytes=65_536, page_events=128, page_bytes=131_072)
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


async def test_the_server_says_nothing_before_hello() -> None:
    """Not even when the credential came with the handshake; without a hello in time: 4408, whatever else was sent."""
    door = Door()
    connection, socket = door.connect(door.token())
    door.ticker.advance(4.9)
    door.heard_from(socket)
    assert socket.frames == []
    assert socket.ended() is None
    door.ticker.advance(0.2)
    assert socket.ended() == (4408, "no hello")
    assert socket.frames == []
    connection.closed(4408)
    assert door.gateway.connections == set()
    assert door.bus.log == [], "nothing is subscribed for somebody who has not said who he is"


async def test_welcome_has_every_member() -> None:
    """As the contract lists them; the session id begins with the gateway's."""
    door = Door()
    _, socket = await door.open()
    welcome = socket.frames[0]
    assert welcome == {
        "type": "welcome",
        "session": "gw1-1",
        "user": "ann",
        "resumed": True,
        "position": position(0).decode(),
        "heartbeat_ms": 20_000,
        "timeout_ms": 10_000,
        "server_time": door.wall_ms,
        "expires_in_ms": 900_000,
    }


@pytest.mark.parametrize("hello", [{}, {"token": "nonsense"}, {"token": None}])
async def test_no_or_bad_credentials_are_4401(hello: dict[str, Any]) -> None:
    """Nothing but the close."""
    door = Door()
    connection, socket = door.connect()
    say(connection, type="hello", **hello)
    assert socket.code() == 4401
    assert socket.frames == []


async def test_a_credential_of_the_handshake_wins_over_the_hello() -> None:
    """The first that is present decides, also when it is bad."""
    door = Door()
    connection, socket = door.connect(door.token("bob"))
    say(connection, type="hello", token=door.token("ann"))
    assert door.bus.wanted == [b"tidings:{bob}"]
    for credential, refused in (("nonsense", False), (None, True)):
        connection, socket = door.connect(credential, refused=refused)
        say(connection, type="hello", token=door.token())
        assert socket.code() == 4401


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[]",
        "null",
        "1",
        '{"type":"publish"}',
        '{"type":1}',
        "{}",
        '{"type":"hello","token":1}',
        '{"type":"heartbeat"}',
    ],
)
async def test_a_malformed_first_frame_is_4400(text: str) -> None:
    """Also a well-formed one that is not a hello."""
    door = Door()
    connection, socket = door.connect()
    connection.text_received(text)
    assert socket.code() == 4400
    connection.text_received(text)


async def test_a_second_hello_is_4400() -> None:
    """Whether it comes before or after the welcome."""
    door = Door()
    connection, socket = await door.open()
    say(connection, type="hello", token=door.token())
    assert socket.code() == 4400
    connection, socket = door.connect()
    say(connection, type="hello", token=door.token("bob"))
    say(connection, type="hello", token=door.token("bob"))
    assert socket.code() == 4400


@pytest.mark.parametrize(
    "bad", ["", "x", "0-0", "epoch0001.1", "epoch0001.01-1", "epoch0001.1-1~", "e" * 3000, "epoch0001.1-1\n"]
)
async def test_a_malformed_position_is_a_resync_not_an_error(bad: str) -> None:
    """`invalid`, and the session goes on from the top."""
    door = Door()
    connection, socket = door.connect()
    say(connection, type="hello", token=door.token(), position=bad)
    door.confirm()
    assert door.bus.reads[-1][0] is None
    await door.bus.answer(page(9, 9))
    assert [frame["type"] for frame in socket.frames] == ["welcome", "resync", "synced"]
    assert socket.frames[0]["resumed"] is False
    assert socket.frames[1]["reason"] == "invalid"
    assert {frame["position"] for frame in socket.frames} == {position(9).decode()}


async def test_topic_parts_of_a_position_are_dropped_in_silence() -> None:
    """A server without topics resumes from the personal part."""
    door = Door()
    connection, _ = door.connect()
    say(connection, type="hello", token=door.token(), position=position(3).decode() + "~org:7.topicepo.4-5")
    door.confirm()
    assert door.bus.reads[-1][0] == position(3)


async def test_replay_counts_only_without_a_position() -> None:
    """`position` wins; a replay beyond the retention is cut to it."""
    door = Door()
    connection, _ = door.connect()
    say(connection, type="hello", token=door.token(), position=position(3).decode(), replay=5)
    door.confirm()
    assert door.bus.reads[-1][:2] == (position(3), 0)
    connection, _ = door.connect()
    say(connection, type="hello", token=door.token(), replay=5_000_000)
    assert door.bus.reads[-1][:2] == (None, 1000)


async def test_who_comes_while_the_store_is_away_for_a_moment_waits() -> None:
    """A link that is being replaced, or not yet there after the start: the session begins when it is back; when it has
    been away for 5 s, counted from when it went, 1013."""
    door = Door()
    door.bus.down_ms = 3_000.0
    connection, socket = door.connect()
    say(connection, type="hello", token=door.token())
    door.ticker.advance(1.9)
    assert socket.frames == []
    door.bus.down_ms = 0.0
    door.confirm()
    await door.bus.answer(page(7, 7))
    assert socket.frames[0]["type"] == "welcome"

    door.bus.down_ms = 3_000.0
    connection, socket = door.connect()
    say(connection, type="hello", token=door.token())
    door.ticker.advance(2.1)
    assert socket.ended() == (1013, "store away")


async def test_a_store_that_is_away_is_1013_with_a_time() -> None:
    """At hello, and when the log does not answer in time; never 4401."""
    door = Door()
    door.bus.down_ms = 5_000.0
    connection, socket = door.connect()
    say(connection, type="hello", token=door.token())
    assert socket.frames == [{"type": "goodbye", "code": 1013, "retry_ms": 5000}]
    assert socket.ended() == (1013, "store away")
    door.bus.down_ms = 0.0
    connection, socket = door.connect()
    say(connection, type="hello", token=door.token())
    door.ticker.advance(5.1)
    assert socket.frames == [{"type": "goodbye", "code": 1013, "retry_ms": 5000}]
    assert socket.ended() == (1013, "store away")
    assert door.bus.wanted == []


async def test_heartbeats_come_with_the_position_and_want_an_answer() -> None:
    """Every 20 s; any byte counts as life; silence for 10 s after one is 4408."""
    door = Door()
    connection, socket = await door.open()
    door.hear(1)
    door.ticker.advance(20.1)
    assert socket.frames[-1] == {"type": "heartbeat", "position": position(1).decode()}
    door.ticker.advance(5)
    door.heard_from(socket)
    say(connection, type="heartbeat", position=position(1).decode())
    door.ticker.advance(16)
    assert [frame["type"] for frame in socket.frames].count("heartbeat") == 2
    assert socket.ended() is None
    door.ticker.advance(8.8)
    assert socket.ended() is None
    door.ticker.advance(0.2)
    assert socket.ended() == (4408, "heartbeat late")


async def test_a_client_that_takes_nothing_is_1013_after_the_slow_timeout() -> None:
    """No byte accepted for 10 s while data waits. Its goodbye stands behind what the transport holds."""
    door = Door()
    connection, socket = await door.open()
    socket.paused = True
    socket.held = 70_000
    socket.bytes_written = 70_000
    for seq in range(1, 600):
        door.hear(seq)
    door.ticker.advance(8)
    assert socket.ended() is None
    door.ticker.advance(3.1)
    assert socket.frames[-1] == {"type": "goodbye", "code": 1013, "retry_ms": 5000}
    assert socket.ended() == (1013, "too slow")
    assert door.bus.wanted == []
    connection.closed(1013)


async def test_a_slow_client_that_makes_progress_is_neither_slow_nor_dead() -> None:
    """While bytes move, the heartbeat that waits behind them is not late (theturtle32/WebSocket-Node #229)."""
    door = Door()
    connection, socket = await door.open()
    socket.paused = True
    socket.held = 100_000
    socket.bytes_written = 100_000
    door.hear(1)
    for _ in range(12):
        door.ticker.advance(8)
        socket.held -= 1000
        assert socket.ended() is None
    connection.closed(1006)


async def test_small_data_that_the_kernel_does_not_take_is_noticed_too() -> None:
    """Below the high-water mark nothing pauses; the heartbeat finds bytes in the transport and starts the watch."""
    door = Door()
    _, socket = await door.open()
    socket.held = 500
    socket.bytes_written += 500
    door.ticker.advance(20.1)
    assert socket.ended() is None
    door.ticker.advance(11.5)
    assert socket.code() == 1013


async def test_a_session_ends_when_its_token_does_and_auth_extends_it() -> None:
    """4401 at expiry plus leeway, by the monotonic clock: a wall clock that jumps ends nobody."""
    door = Door()
    connection, socket = door.connect()
    say(connection, type="hello", token=door.token(ttl_s=15), position=position(0).decode())
    door.confirm()
    await door.bus.answer(page(0, 0))
    door.wall_ms += 3_600_000
    door.ticker.advance(15)
    assert socket.ended() is None
    door.wall_ms -= 3_600_000 - 15_000
    say(connection, type="auth", token=door.token(ttl_s=60))
    assert socket.frames[-1] == {"type": "auth", "expires_in_ms": 60_000}
    for _ in range(6):
        door.ticker.advance(10)
        door.heard_from(socket)
    assert socket.ended() is None
    door.ticker.advance(10.1)
    assert socket.ended() == (4401, "token expired")


async def test_auth_of_another_user_is_4403_and_a_bad_one_4401() -> None:
    """A session never changes its user."""
    door = Door()
    connection, socket = await door.open()
    say(connection, type="auth", token=door.token("bob"))
    assert socket.code() == 4403
    connection, socket = await door.open("cem")
    say(connection, type="auth", token="nonsense")
    assert socket.code() == 4401


async def test_a_read_mark_is_answered_with_an_error_frame() -> None:
    """The frame is of the contract, so it does not end the connection; the feature is not there."""
    door = Door()
    connection, socket = await door.open()
    say(connection, type="read", id=position(1).decode())
    assert socket.frames[-1]["type"] == "error"
    assert socket.ended() is None


async def test_drain_flushes_then_says_goodbye_then_closes() -> None:
    """1012 behind everything that was queued; nothing new is taken meanwhile."""
    door = Door()
    connection, socket = await door.open()
    socket.paused = True
    socket.held = 70_000
    door.hear(1)
    connection.drain(8000)
    door.hear(2)
    assert socket.ended() is None
    socket.paused = False
    socket.held = 0
    connection.writable()
    await turn()
    assert [frame["type"] for frame in socket.frames][-2:] == ["event", "goodbye"]
    assert socket.frames[-1] == {"type": "goodbye", "code": 1012, "retry_ms": 8000}
    assert socket.ended() == (1012, "draining")


async def test_a_drain_does_not_wait_for_ever_for_a_stuck_client() -> None:
    """What is not flushed within the close timeout is closed as it is."""
    door = Door()
    connection, socket = await door.open()
    socket.paused = True
    socket.held = 70_000
    door.hear(1)
    connection.drain(8000)
    door.ticker.advance(5.1)
    assert socket.ended() == (1012, "draining")


async def test_a_drain_before_hello_says_goodbye_at_once() -> None:
    """There is nothing to flush."""
    door = Door()
    connection, socket = door.connect()
    connection.drain(8000)
    assert socket.frames == [{"type": "goodbye", "code": 1012, "retry_ms": 8000}]
    assert socket.ended() == (1012, "draining")


async def test_too_many_connections_are_4429_and_older_ones_untouched() -> None:
    """The newest is refused, with a time to come back."""
    door = Door(max_connections=1)
    _, first = await door.open()
    second, socket = door.connect()
    assert socket.frames == [{"type": "goodbye", "code": 4429, "retry_ms": 5000}]
    assert socket.code() == 4429
    second.closed(4429)
    assert first.ended() is None
    assert len(door.gateway.connections) == 1


async def test_after_the_end_everything_is_back_to_nothing() -> None:
    """Registry, deadlines and subscriptions, whichever way the connection ended."""
    door = Door()
    connection, _ = await door.open()
    connection.closed(1006)
    connection.closed(1006)
    assert door.gateway.connections == set()
    assert door.ticker.deadlines == {}
    assert door.bus.wanted == []
    door.hear(1)


async def test_an_ephemeral_before_welcome_is_not_sent() -> None:
    """`welcome` is the first frame."""
    door = Door()
    connection, socket = door.connect()
    say(connection, type="hello", token=door.token())
    door.hub.record_received(door.hub.channel("ann"), encode_ephemeral(body(1)))
    assert socket.frames == []
    door.confirm()
    await door.bus.answer(page(0, 0))
    door.hub.record_received(door.hub.channel("ann"), encode_ephemeral(body(1)))
    assert [frame["type"] for frame in socket.frames] == ["welcome", "synced", "event"]


async def test_nothing_is_answered_before_the_welcome() -> None:
    """`auth` and `read` sent while the log has not answered are taken at once and answered behind it."""
    door = Door()
    connection, socket = door.connect()
    say(connection, type="hello", token=door.token(), position=position(0).decode())
    say(connection, type="auth", token=door.token(ttl_s=60))
    say(connection, type="heartbeat")
    say(connection, type="read", id=position(0).decode())
    assert socket.frames == []
    door.confirm()
    await door.bus.answer(page(0, 0))
    assert [frame["type"] for frame in socket.frames] == ["welcome", "auth", "error", "synced"]
    assert socket.frames[0]["expires_in_ms"] == 60_000


async def test_many_questions_before_the_welcome_are_too_many() -> None:
    """What waits for the welcome is bounded."""
    door = Door()
    connection, socket = door.connect()
    say(connection, type="hello", token=door.token())
    for _ in range(17):
        say(connection, type="read", id=position(0).decode())
    assert socket.code() == 1008


async def test_an_ending_that_fails_still_ends() -> None:
    """A fault while finishing closes the socket instead of leaving it without a deadline."""
    door = Door()
    connection, socket = await door.open()
    socket.paused = True
    socket.held = 70_000
    door.hear(1)
    connection.drain(8000)
    assert socket.ended() is None
    connection.fault()
    assert socket.code() == 1012
    assert door.ticker.deadlines == {}


@pytest.mark.parametrize("exp", [2**53, 10**17, 10**19, 1e300])
async def test_a_token_for_longer_than_can_be_told_is_refused(exp: float) -> None:
    """`expires_in_ms` must be an integer a browser can hold."""
    door = Door()
    connection, socket = door.connect()
    say(connection, type="hello", token=sign({"sub": "ann", "exp": exp}))
    assert socket.code() == 4401
