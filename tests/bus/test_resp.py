"""The connection: order of replies, turns of the event loop, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from itertools import pairwise
from typing import Any

import hiredis
import pytest

from tests.bus.support import turn
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings_gateway.bus.resp import ConnectionLost, RespConnection, Unexpected, pack, set_socket_options


class FakeTransport(asyncio.Transport):
    """Takes what is written, and remembers whether reading is paused."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.reading = True
        self.pauses = 0
        self.aborted = False

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False
        self.pauses += 1

    def resume_reading(self) -> None:
        self.reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True


class Clock:
    def __init__(self) -> None:
        self.ms = 0.0

    def __call__(self) -> float:
        return self.ms


def connection(turn_replies: int = 256, turn_ms: float = 2, clock: Clock | None = None) -> RespConnection:
    made = RespConnection(turn_replies=turn_replies, turn_ms=turn_ms, clock_ms=clock or Clock())
    made.connection_made(FakeTransport())
    return made


def transport(of: RespConnection) -> FakeTransport:
    found = of._transport
    assert isinstance(found, FakeTransport)
    return found


async def test_replies_belong_to_commands_in_order() -> None:
    """Each future gets the reply of its own command, an error as an exception."""
    conn = connection()
    first, second, third = conn.send_many([("GET", "a"), ("BAD",), ("GET", b"c")])
    assert len(transport(conn).written) == 1
    conn.data_received(b"$1\r\nA\r\n-ERR no such command\r\n$1")
    assert await first == b"A"
    with pytest.raises(hiredis.ReplyError, match="no such command"):
        await second
    assert not third.done()
    conn.data_received(b"\r\nC\r\n")
    assert await third == b"C"
    assert conn.outstanding == 0


async def test_a_cancelled_command_takes_its_reply_with_it() -> None:
    """The reply of a command whose caller went away is read and dropped: nobody else ever gets it."""
    conn = connection()
    futures = [conn.send("GET", str(n)) for n in range(5)]
    futures[0].cancel()
    futures[3].cancel()
    conn.data_received(b"".join(b"$1\r\n%d\r\n" % n for n in range(5)))
    assert [await futures[n] for n in (1, 2, 4)] == [b"1", b"2", b"4"]


async def test_a_burst_is_handed_on_in_turns() -> None:
    """5,000 messages in one read: 256 at a time, the event loop goes round between, and nothing more is read from the
    socket before the last was handed on."""
    conn = connection(turn_replies=256)
    got: list[bytes] = []
    conn.listen(got.append)
    conn.data_received(b"".join(b"$4\r\n%04d\r\n" % n for n in range(5000)))
    turns = [len(got)]
    while len(got) < 5000:
        assert not transport(conn).reading
        await turn()
        turns.append(len(got))
    assert turns[0] == 256
    assert all(after - before == 256 for before, after in pairwise(turns[:-1]))
    assert got == [b"%04d" % n for n in range(5000)]
    await turn(2)
    assert transport(conn).reading


async def test_a_turn_ends_by_time_too() -> None:
    """Messages that are dear to hand on end the turn after `turn_ms`, however few they were."""
    clock = Clock()
    conn = connection(turn_replies=256, turn_ms=2, clock=clock)
    got: list[bytes] = []

    def slow(reply: bytes) -> None:
        got.append(reply)
        clock.ms += 0.5

    conn.listen(slow)
    conn.data_received(b"$1\r\na\r\n" * 100)
    assert len(got) == 8
    await until(lambda: len(got) == 100)


async def test_data_that_comes_between_turns_waits_its_turn() -> None:
    """A transport may still deliver what it had read before it was paused: the order stays."""
    conn = connection(turn_replies=2)
    got: list[int] = []
    conn.listen(got.append)
    conn.data_received(b":1\r\n:2\r\n:3\r\n")
    conn.data_received(b":4\r\n")
    assert got == [1, 2]
    await until(lambda: got == [1, 2, 3, 4])


async def test_a_fault_in_handling_ends_the_connection_instead_of_deafening_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An exception of ours is logged, and the owner learns that the connection is gone."""
    conn = connection(turn_replies=1)
    lost: list[BaseException | None] = []
    conn.on_lost = lost.append

    def fail(reply: object) -> None:
        if reply == 2:
            raise KeyError("ours")

    conn.listen(fail)
    conn.data_received(b":1\r\n:2\r\n:3\r\n")
    await until(lambda: lost)
    assert isinstance(lost[0], KeyError)
    assert transport(conn).aborted
    assert "could not be handled" in caplog.text


async def test_the_end_is_told_to_everybody_once() -> None:
    """Whoever waits gets `ConnectionLost` with the cause, whoever sends afterwards too, and the owner one call, after
    them."""
    conn = connection()
    cause = OSError("gone")
    waiting = conn.send("PING")
    order: list[str] = []
    conn.send_to([(pack(("PING",)), lambda reply: order.append(type(reply).__name__))])
    conn.on_lost = lambda cause: order.append(str(cause))
    conn.connection_lost(cause)
    conn.connection_lost(None)
    conn.fail(None)
    assert order == ["ConnectionLost", "gone"]
    for future in (waiting, conn.send("PING")):
        with pytest.raises(ConnectionLost) as raised:
            await future
        assert raised.value.cause is cause
    assert not conn.writable


async def test_a_future_nobody_waits_for_makes_no_noise() -> None:
    """A caller that went away without cancelling leaves no 'exception was never retrieved' behind."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    conn = connection()
    _ = conn.send("PING")
    conn.fail(None)
    del _
    gc.collect()
    await turn(2)
    assert complaints == []


@pytest.mark.parametrize("data", [b"-ERR max number of clients reached\r\n", b":1\r\n", b"HTTP/1.1 400 Bad\r\n"])
async def test_what_answers_nothing_ends_the_connection(data: bytes) -> None:
    """Also before anything was asked: an error is the cause itself, anything else is not to be trusted."""
    conn = connection()
    conn.data_received(data)
    assert conn.lost
    with pytest.raises(ConnectionLost) as raised:
        await conn.send("PING")
    assert isinstance(raised.value.cause, (hiredis.ReplyError, hiredis.ProtocolError, Unexpected))


async def test_a_full_socket_stops_the_owner_and_calls_it_again() -> None:
    """`writable` follows the transport's flow control."""
    conn = connection()
    called: list[bool] = []
    conn.on_writable = lambda: called.append(conn.writable)
    conn.pause_writing()
    called.append(conn.writable)
    conn.resume_writing()
    assert called == [False, True]


async def test_age_of_the_oldest_command() -> None:
    """What a timeout of the connection is measured by."""
    clock = Clock()
    conn = connection(clock=clock)
    assert conn.oldest_sent_ms is None
    seen: list[float | None] = []
    for clock.ms in (5, 7):
        conn.send("PING")
        seen.append(conn.oldest_sent_ms)
    clock.ms = 9
    conn.data_received(b"+OK\r\n")
    seen.append(conn.oldest_sent_ms)
    assert seen == [5, 5, 7]
    assert conn.last_received_ms == 9


async def test_against_a_real_server(valkey: ValkeyProcess, prefix: str) -> None:
    """Commands and replies as the server understands them, also empty and binary ones; and its own end of it."""
    loop = asyncio.get_running_loop()
    _, conn = await loop.create_connection(
        lambda: RespConnection(turn_replies=16, turn_ms=2, clock_ms=lambda: loop.time() * 1000),
        "127.0.0.1",
        valkey.port,
    )
    value = bytes(range(256)) + b"\r\n"
    assert await conn.send("SET", prefix, value, "PX", 5000) == b"OK"
    assert await conn.send("GET", prefix) == value
    assert await conn.send("GET", prefix + "none") is None
    assert await conn.send("ECHO", b"") == b""
    client_id = await conn.send("CLIENT", "ID")
    assert isinstance(client_id, int)
    valkey.cli("CLIENT", "KILL", "ID", client_id)
    await until(lambda: conn.lost)


def test_the_kernel_looks_for_a_dead_peer() -> None:
    """No Nagle, keepalive, and a bound on unacknowledged data."""
    with contextlib.closing(socket.socket()) as sock:
        set_socket_options(sock)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 10_000
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as unix:
        set_socket_options(unix)
