"""The WebSocket contract after the welcome: heartbeats, slow clients, new tokens, endings. Time is the test's."""

from __future__ import annotations

from tests.support.fakes import page, position, turn
from tests.transports.door import Door, say


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
