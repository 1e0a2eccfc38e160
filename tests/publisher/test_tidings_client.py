"""The asynchronous publisher where it lives: many tasks, cancelled ones, several loops, forks."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
import time

import pytest
import redis.asyncio

from tests.publisher.stub import StubGateway
from tests.support.proxy import FaultProxy
from tests.support.tokens import API_KEY
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import BUSY_S, until
from tidings import AsyncPublisher, PublishError, Receipt
from tidings.log.position import Position


async def test_a_thousand_at_once(valkey: ValkeyProcess, prefix: str) -> None:
    """A burst queues for the connections there are; nothing fails with "too many connections"."""
    async with FaultProxy(valkey.port) as proxy, AsyncPublisher(proxy.url, prefix=prefix, deadline_s=60) as publisher:
        receipts = await asyncio.gather(*(publisher.publish("alice", "a", number) for number in range(1000)))
        assert {Position.parse(receipt.position or "").seq for receipt in receipts} == set(range(1, 1001))
        assert proxy.accepted <= 16


async def test_cancelled_calls_leave_no_answer_behind(valkey: ValkeyProcess, prefix: str) -> None:
    """Tasks cancelled at every moment of a call, on a slow network: nobody ever gets another one's answer
    (redis/redis-py #2624, #2665)."""
    rng = random.Random(7)
    async with FaultProxy(valkey.port) as proxy:
        proxy.delay(5)
        async with AsyncPublisher(proxy.url, prefix=prefix, max_connections=4, deadline_s=20) as publisher:

            async def work(number: int) -> None:
                user = f"user{number}"
                for _ in range(10):
                    task = asyncio.create_task(publisher.publish(user, "a", number))
                    if rng.random() < 0.5:
                        await asyncio.sleep(rng.uniform(0, 0.03))
                        task.cancel()
                    try:
                        receipt = await task
                    except asyncio.CancelledError:
                        continue
                    assert receipt.position is not None
                    tops.setdefault(user, []).append(receipt.position)

            tops: dict[str, list[str]] = {}
            await asyncio.gather(*(work(number) for number in range(20)))
            assert tops
            for user, positions in tops.items():
                epoch = Position.parse(await publisher.position(user)).epoch
                parts = [Position.parse(position) for position in positions]
                assert {part.epoch for part in parts} == {epoch}
                assert [part.seq for part in parts] == sorted({part.seq for part in parts})


async def test_close_closes_the_connections(valkey: ValkeyProcess, prefix: str) -> None:
    """After close the server has none of ours left."""
    async with FaultProxy(valkey.port) as proxy:
        publisher = AsyncPublisher(proxy.url, prefix=prefix)
        await asyncio.gather(*(publisher.publish("alice", "a", number) for number in range(5)))
        assert proxy.links
        await publisher.close()
        await until(lambda: not proxy.links, 5, "all connections are closed")


async def test_a_call_under_way_outlives_close(valkey: ValkeyProcess, prefix: str) -> None:
    """Close does not cut a call that is waiting for its answer; its connection closes behind it."""
    async with FaultProxy(valkey.port) as proxy:
        publisher = AsyncPublisher(proxy.url, prefix=prefix)
        await publisher.publish("alice", "a", 0)
        proxy.hold("down")
        sent = proxy.bytes_up
        task = asyncio.create_task(publisher.publish("alice", "a", 1))
        await until(lambda: proxy.bytes_up > sent, 5, "it was sent")
        await publisher.close()
        proxy.release()
        assert Position.parse((await task).position or "").seq == 2
        await until(lambda: not proxy.links, 5, "its connection is closed")


def test_one_loop_after_the_other(valkey: ValkeyProcess, prefix: str) -> None:
    """A publisher of the module, used by one `asyncio.run` after the other, as workers do: each ends with its
    connections closed, and none is found dead by the next."""
    publisher = AsyncPublisher(valkey.url, prefix=prefix)
    for number in range(1, 6):
        receipt = asyncio.run(publisher.publish("alice", "a", number))
        assert Position.parse(receipt.position or "").seq == number


def test_a_loop_that_ended_badly(valkey: ValkeyProcess, prefix: str) -> None:
    """Also after a loop that was only closed, the next one gets connections of its own."""
    publisher = AsyncPublisher(valkey.url, prefix=prefix)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(publisher.publish("alice", "a", 1))
    pools = publisher._transport._pools.get()  # type: ignore[attr-defined]
    for connection in pools[loop]._idle.forget(
        None
    ):  # so that this test leaves no open socket to the garbage collector
        loop.run_until_complete(connection.disconnect())
    loop.close()
    assert asyncio.run(publisher.publish("alice", "a", 2)).position is not None
    assert loop not in pools


def test_loops_in_several_threads(valkey: ValkeyProcess, prefix: str) -> None:
    """Each loop has its own connections, at the same time too."""
    publisher = AsyncPublisher(valkey.url, prefix=prefix, deadline_s=20)
    done: list[str] = []

    async def work(user: str) -> None:
        for count in range(50):
            receipt = await publisher.publish(user, "a", count)
            assert Position.parse(receipt.position or "").seq == count + 1

    def run(user: str) -> None:
        asyncio.run(work(user))
        done.append(user)

    threads = [threading.Thread(target=run, args=(f"user{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(done) == 6


FORKING = """
import asyncio, gc, os, sys
from tidings import AsyncPublisher
publisher = AsyncPublisher(sys.argv[1], **({"api_key": sys.argv[2]} if sys.argv[2] else {}), deadline_s=20)

async def work(user):
    for count in range(1, 60):
        receipt = await publisher.publish(user, "a", count)
        if user == "child":
            gc.collect()  # whatever was dropped is finalized here, while the parent is at work
        assert int(receipt.position.split(".")[1].split("-")[0]) == count, receipt

async def parent():
    await publisher.publish("before", "a")
    pid = os.fork()
    if pid == 0:
        # The parent's loop still runs here, in name; a child starts its own, in a thread of its own.
        import threading
        status = [1]
        def run():
            asyncio.run(work("child"))
            status[0] = 0
        thread = threading.Thread(target=run)
        thread.start(); thread.join(); os._exit(status[0])
    await work("parent")
    _, code = await asyncio.get_running_loop().run_in_executor(None, os.waitpid, pid, 0)
    await publisher.publish("before", "a")
    return os.waitstatus_to_exitcode(code)

sys.exit(asyncio.run(parent()))
"""


@pytest.mark.parametrize("kind", ["redis", "http"])
def test_both_sides_of_a_fork(valkey: ValkeyProcess, prefix: str, kind: str) -> None:
    """A child with a loop of its own uses the publisher of the parent while the parent does: no answer crosses, and
    the parent's loop loses none of its sockets."""
    environment = {**os.environ, "TIDINGS_PREFIX": prefix}
    with StubGateway() as stub:
        arguments = [valkey.url, ""] if kind == "redis" else [stub.url, API_KEY]
        ran = subprocess.run([sys.executable, "-c", FORKING, *arguments], env=environment, timeout=60)
    assert ran.returncode == 0


async def test_http_does_not_block_the_loop() -> None:
    """A gateway that hangs blocks threads of the publisher, never the event loop; more calls than threads wait within
    their deadline."""
    with StubGateway() as stub:
        stub.hangs = True
        publisher = AsyncPublisher(stub.url, api_key=API_KEY, deadline_s=0.5, max_connections=1)
        start = time.monotonic()
        tasks = [asyncio.create_task(publisher.publish("alice", "a", number)) for number in range(12)]
        worst = 0.0
        while not all(task.done() for task in tasks):
            before = time.monotonic()
            await asyncio.sleep(0.01)  # time: the loop must come round this often
            worst = max(worst, time.monotonic() - before)
        assert time.monotonic() - start < 0.5 + BUSY_S
        assert worst < 0.4
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, PublishError) for result in results)
        stub.hangs = False
        stub.released.set()
        await publisher.close()


async def test_a_cancelled_http_call(valkey: ValkeyProcess) -> None:
    """The thread ends by itself; the next call gets its own answer."""
    with StubGateway() as stub:
        async with AsyncPublisher(stub.url, api_key=API_KEY, max_connections=1) as publisher:
            stub.hangs = True
            task = asyncio.create_task(publisher.publish("alice", "a", 1))
            await until(lambda: stub.requests, 5, "it was sent")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            stub.hangs = False
            stub.released.set()
            assert isinstance(await publisher.publish("bob", "a", 2), Receipt)
            assert await publisher.position("bob") == "EpochOne.1-7001"


async def test_the_default_loop_is_never_blocked(valkey: ValkeyProcess, prefix: str) -> None:
    """Over Redis nothing of ours blocks the loop: this test runs under a guard that fails on any blocking call."""
    async with AsyncPublisher(valkey.url, prefix=prefix) as publisher:
        await publisher.publish("alice", "a", 1)
        await publisher.publish("alice", "a", 2)
        client = redis.asyncio.Redis(host="127.0.0.1", port=valkey.port)
        await client.script_flush()
        await client.aclose()
        assert Position.parse((await publisher.publish("alice", "a", 3)).position or "").seq == 3
