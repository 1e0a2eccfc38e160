"""Scripts on the command connection: batches, bounds, and a script that Redis forgot."""

from __future__ import annotations

import asyncio
from functools import partial

import hiredis
import pytest

from tests.bus.support import turn
from tests.bus.test_resp import connection, transport
from tidings.log.script import Command, Script
from tidings_gateway.bus.resp import ConnectionLost, RespConnection
from tidings_gateway.bus.scripts import QueueFull, ScriptRunner

SCRIPT = Script("demo", "return ARGV[1]", "f" * 40)


def runner(conn: RespConnection, *, outstanding: int = 512, queued: int = 100) -> ScriptRunner:
    return ScriptRunner(conn, (SCRIPT,), max_outstanding=outstanding, max_queued=queued)


def call(n: int) -> Command:
    return Command(SCRIPT, (b"key",), (b"%d" % n,))


def sent(conn: RespConnection) -> list[list[bytes]]:
    """The commands written so far, parsed."""
    reader = hiredis.Reader()
    reader.feed(b"".join(transport(conn).written))
    commands = []
    while isinstance(command := reader.gets(), list):
        commands.append(command)
    return commands


async def test_calls_of_one_tick_leave_in_one_write() -> None:
    """500 callers, one write, in their order."""
    conn = connection()
    scripts = runner(conn, queued=1000)
    for n in range(500):
        scripts.run(call(n), lambda reply: None)
    assert transport(conn).written == []
    await turn()
    assert len(transport(conn).written) == 1
    assert [command[-1] for command in sent(conn)] == [b"%d" % n for n in range(500)]
    assert sent(conn)[0] == [b"EVALSHA", b"f" * 40, b"1", b"key", b"0"]


async def test_asking_stands_before_the_one_call_it_is_for() -> None:
    """And its answer is nobody's; also when the script was forgotten and the call is repeated."""
    conn = connection()
    scripts = runner(conn)
    got: list[object] = []
    scripts.run(call(0), got.append)
    scripts.run(call(1), got.append, asking=True)
    await turn()
    assert [command[0] for command in sent(conn)] == [b"EVALSHA", b"ASKING", b"EVALSHA"]
    conn.data_received(b"+zero\r\n+OK\r\n-NOSCRIPT No matching script.\r\n")
    await turn()
    assert [command[0] for command in sent(conn)[3:]] == [b"SCRIPT", b"ASKING", b"EVALSHA"]
    conn.data_received(b"+sha\r\n+OK\r\n+one\r\n")
    assert got == ["zero", "one"] or got == [b"zero", b"one"]


async def test_no_more_than_the_bound_is_under_way() -> None:
    """Beyond `max_outstanding` calls wait in order; beyond `max_queued` they are refused, and no bound is exceeded."""
    conn = connection()
    scripts = runner(conn, outstanding=2, queued=3)
    got: list[object] = []
    for n in range(3):
        scripts.run(call(n), got.append)
    await turn()
    assert (scripts.outstanding, scripts.queued) == (2, 1)
    scripts.run(call(3), got.append)
    scripts.run(call(4), got.append)
    with pytest.raises(QueueFull):
        scripts.run(call(5), got.append)
    assert len(sent(conn)) == 2
    for n in range(5):
        conn.data_received(b"$1\r\n%d\r\n" % n)
        await turn()
        assert scripts.outstanding <= 2
    assert got == [b"0", b"1", b"2", b"3", b"4"]


async def test_an_urgent_call_goes_before_what_waits() -> None:
    """The canary is neither refused nor kept waiting behind thousands of reads."""
    conn = connection()
    scripts = runner(conn, outstanding=1, queued=2)
    for n in range(3):
        scripts.run(call(n), lambda reply: None)
        await turn()
    scripts.run(call(9), lambda reply: None, urgent=True)
    conn.data_received(b"+OK\r\n")
    await turn()
    assert [command[-1] for command in sent(conn)] == [b"0", b"9"]


async def test_a_caller_that_left_the_queue_is_not_sent() -> None:
    """And does not count against the bound; one that was sent is answered all the same."""
    conn = connection()
    scripts = runner(conn, outstanding=1)
    futures = [asyncio.get_running_loop().create_future() for _ in range(3)]
    for n, future in enumerate(futures):
        scripts.run(call(n), lambda reply: None, caller=future)
    await turn()
    futures[0].cancel()
    futures[1].cancel()
    conn.data_received(b"+OK\r\n")
    await turn()
    assert [command[-1] for command in sent(conn)] == [b"0", b"2"]
    conn.data_received(b"+OK\r\n")
    assert (scripts.outstanding, scripts.queued) == (0, 0)


async def test_a_forgotten_script_is_loaded_and_the_calls_repeated() -> None:
    """SCRIPT FLUSH under way: every call still gets its own reply, once, after one SCRIPT LOAD per batch."""
    conn = connection()
    scripts = runner(conn)
    got: dict[int, object] = {}
    for n in range(3):
        scripts.run(call(n), partial(got.__setitem__, n))
    await turn()
    conn.data_received(b"-NOSCRIPT No matching script.\r\n" * 3)
    await turn(2)
    repeated = sent(conn)[3:]
    assert repeated[0] == [b"SCRIPT", b"LOAD", SCRIPT.text.encode()]
    assert {command[-1] for command in repeated[1:]} == {b"0", b"1", b"2"}
    conn.data_received(b"$40\r\n" + b"f" * 40 + b"\r\n")
    conn.data_received(b"".join(b"$1\r\n%b\r\n" % command[-1] for command in repeated[1:]))
    assert got == {n: b"%d" % n for n in range(3)}
    assert scripts.outstanding == 0


async def test_a_script_that_cannot_be_loaded_is_not_tried_for_ever() -> None:
    """The second NOSCRIPT is the answer."""
    conn = connection()
    scripts = runner(conn)
    got: list[object] = []
    scripts.run(call(0), got.append)
    await turn()
    conn.data_received(b"-NOSCRIPT no\r\n")
    await turn()
    conn.data_received(b"-NOPERM no\r\n-NOSCRIPT no\r\n")
    assert isinstance(got[0], hiredis.ReplyError)
    await turn()
    assert len(sent(conn)) == 3


async def test_everybody_is_told_when_the_connection_is_gone() -> None:
    """Those on the wire by the connection, those in the queue by `lose`, those who come later at once."""
    conn = connection()
    scripts = runner(conn, outstanding=1)
    got: list[object] = []
    scripts.run(call(0), got.append)
    await turn()
    scripts.run(call(1), got.append)
    conn.fail(None)
    scripts.lose(ConnectionLost(None))
    scripts.run(call(2), got.append)
    await turn()
    assert [type(reply) for reply in got] == [ConnectionLost] * 3
    assert scripts.queued == 0


async def test_a_full_socket_holds_the_queue() -> None:
    """Nothing is written while the transport holds its high-water mark; then it goes on by itself."""
    conn = connection()
    scripts = runner(conn)
    conn.pause_writing()
    scripts.run(call(0), lambda reply: None)
    await turn(2)
    assert sent(conn) == []
    conn.resume_writing()
    await turn()
    assert len(sent(conn)) == 1
