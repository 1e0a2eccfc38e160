"""The blocking publisher where it lives: threads, forks, workers that stop in the middle."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import orjson
import pytest
import redis.connection

from tests.publisher.stub import StubGateway
from tests.publisher.support import RealLog
from tests.support.proxy import ThreadedProxy
from tests.support.tokens import API_KEY
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import BUSY_S, until_sync
from tidings import Message, Publisher, PublishError
from tidings.log.position import Position
from tidings.publishing.redis_link import Dialer
from tidings.redis_url import parse_redis_url


@pytest.fixture(params=["redis", "http"])
def publisher(request: pytest.FixtureRequest, valkey: ValkeyProcess, prefix: str) -> Iterator[Publisher]:
    if request.param == "redis":
        with Publisher(valkey.url, prefix=prefix, deadline_s=20, max_connections=4) as made:
            yield made
    else:
        with StubGateway() as stub, Publisher(stub.url, api_key=API_KEY, deadline_s=20, max_connections=4) as made:
            yield made


def test_nothing_is_opened_before_the_first_call() -> None:
    """Making a publisher is not I/O: a module may hold one, and be imported where there is no Redis."""
    with ThreadedProxy(1) as proxy:
        Publisher(proxy.url).close()
        Publisher(f"http://127.0.0.1:{proxy.port}", api_key=API_KEY).close()
        assert proxy.call(lambda faults: faults.accepted) == 0


def test_sixteen_threads_share_one(publisher: Publisher) -> None:
    """Each gets the answers to its own calls, more threads than connections wait their turn."""
    start = threading.Barrier(16)

    def work(number: int) -> list[str]:
        user = f"user{number}"
        start.wait()
        seen = []
        for count in range(20):
            receipt = publisher.publish(user, "a", count)
            assert receipt.position is not None
            assert Position.parse(receipt.position).seq == count + 1
            assert publisher.position(user) == receipt.position
            seen.append(receipt.position)
        return seen

    with ThreadPoolExecutor(16) as pool:
        assert sum(len(seen) for seen in pool.map(work, range(16))) == 320


def test_connections_are_bounded(valkey: ValkeyProcess, prefix: str) -> None:
    """However many threads, never more connections than allowed; waiting for one counts against the deadline."""
    with ThreadedProxy(valkey.port) as proxy:
        with Publisher(proxy.url, prefix=prefix, max_connections=3, deadline_s=20) as publisher:
            with ThreadPoolExecutor(24) as pool:
                list(pool.map(lambda number: publisher.publish("u", "a", number), range(200)))
            assert proxy.call(lambda faults: faults.accepted) <= 3
        with Publisher(proxy.url, prefix=prefix, max_connections=1, deadline_s=0.5) as publisher:
            proxy.call(lambda faults: faults.hold())
            begun = time.monotonic()
            with ThreadPoolExecutor(12) as pool:
                errors = list(pool.map(lambda _: _error(lambda: publisher.publish("u", "a")), range(12)))
            assert time.monotonic() - begun < 0.5 + BUSY_S
            proxy.call(lambda faults: faults.release())
            assert {error.code for error in errors} <= {"timeout", "busy"}


def _error(call: Callable[[], object]) -> PublishError:
    with pytest.raises(PublishError) as caught:
        call()
    return caught.value


def _in_child(work: Callable[[], None]) -> int:
    """Run `work` in a forked child; returns the pid."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return pid


def _ended(pid: int, deadline_s: float = 20) -> int:
    def status() -> tuple[int]:
        done, code = os.waitpid(pid, os.WNOHANG)
        return (os.waitstatus_to_exitcode(code),) if done else ()  # type: ignore[return-value]

    try:
        return until_sync(status, deadline_s, "the child ends")[0]
    except AssertionError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_both_sides_of_a_fork(publisher: Publisher) -> None:
    """A publisher used before a fork serves parent and child at the same time: no answer goes to the wrong one."""

    def work(user: str) -> None:
        for count in range(100):
            position = publisher.publish(user, "a", count).position
            assert position is not None
            assert Position.parse(position).seq == count + 1

    publisher.publish("before", "a")
    children = [_in_child(lambda number=number: work(f"child{number}")) for number in range(3)]  # type: ignore[misc]
    work("parent")
    assert [_ended(pid) for pid in children] == [0, 0, 0]
    assert publisher.publish("before", "a").position == publisher.position("before")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_while_every_connection_is_in_use(valkey: ValkeyProcess, prefix: str) -> None:
    """The child does not inherit a lock that nobody there will ever release."""
    with ThreadedProxy(valkey.port) as proxy:
        publisher = Publisher(proxy.url, prefix=prefix, max_connections=1, deadline_s=10)
        publisher.publish("u", "a")
        proxy.call(lambda faults: faults.hold("down"))
        busy = threading.Thread(target=publisher.publish, args=("u", "a"))
        sent = proxy.call(lambda faults: faults.bytes_up)
        busy.start()
        until_sync(lambda: proxy.call(lambda faults: faults.bytes_up) > sent, 5, "the parent's call is under way")
        direct = Publisher(valkey.url, prefix=prefix)

        def child() -> None:
            # The pool is the parent's; the way is not, so that only the lock can be in the way.
            url = parse_redis_url(valkey.url)
            publisher._transport._dialer = Dialer(url, redis.connection)  # type: ignore[attr-defined]
            publisher.publish("child", "a")

        pid = _in_child(child)
        assert _ended(pid) == 0
        assert Position.parse(direct.position("child")).seq == 1
        proxy.call(lambda faults: faults.release())
        busy.join(10)
        assert not busy.is_alive()
        publisher.close()
        direct.close()


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """A shell without job control starts its background jobs with SIGINT ignored, and Python leaves that as it is."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
def test_interrupted_in_the_middle(valkey: ValkeyProcess, prefix: str) -> None:
    """Ctrl-C while waiting for an answer: the connection is given up with it, so the answer, which comes later, is not
    taken for the next call's."""
    log = RealLog(valkey, prefix, "alice")
    with ThreadedProxy(valkey.port) as proxy, Publisher(proxy.url, prefix=prefix, max_connections=1) as publisher:
        publisher.publish("alice", "a", 0)
        proxy.call(lambda faults: faults.hold("down"))
        main = threading.get_ident()

        def interrupt() -> None:
            until_sync(lambda: Position.parse(log.top).seq == 2, 5, "it was stored")
            signal.pthread_kill(main, signal.SIGINT)

        helper = threading.Thread(target=interrupt)
        helper.start()
        with pytest.raises(KeyboardInterrupt):
            publisher.publish("alice", "a", 1)
        helper.join()
        proxy.call(lambda faults: faults.release())
        receipt = publisher.publish("bob", "a", 2)
        assert receipt.position == publisher.position("bob")
        assert [orjson.loads(record.body)["data"] for record in log.read(None, last=9).entries] == [0, 1]


def test_a_large_batch(valkey: ValkeyProcess, prefix: str) -> None:
    """Megabytes in one call: in pipelines of bounded size, all stored, in order."""
    with Publisher(valkey.url, prefix=prefix, deadline_s=20) as publisher:
        results = publisher.publish_many([Message("alice", "a", "x" * 60_000) for _ in range(100)])
    assert [Position.parse(result.position or "").seq for result in results] == list(range(1, 101))  # type: ignore[union-attr]
