"""The WebSocket contract up to the welcome: hello, who is let in, from which position. Time is the test's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.fakes import body, page, position
from tests.support.tokens import sign
from tests.transports.door import Door, say
from tidings.log.record import encode_ephemeral


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


@pytest.mark.parametrize("exp", [2**53, 10**17, 10**19, 1e300])
async def test_a_token_for_longer_than_can_be_told_is_refused(exp: float) -> None:
    """`expires_in_ms` must be an integer a browser can hold."""
    door = Door()
    connection, socket = door.connect()
    say(connection, type="hello", token=sign({"sub": "ann", "exp": exp}))
    assert socket.code() == 4401
