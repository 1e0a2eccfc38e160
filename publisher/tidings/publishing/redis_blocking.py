"""Exchanges with Redis, blocking; safe from many threads and after a fork."""

from __future__ import annotations

import time
from typing import Any

import redis.connection

from tidings.publishing.deadline import DeadlineSocket, left
from tidings.publishing.faults import is_stale
from tidings.publishing.per_process import PerProcess
from tidings.publishing.plan import Failure, Outcome
from tidings.publishing.pool import Pool
from tidings.publishing.redis_link import (
    ANSWERED,
    BROKEN,
    Dialer,
    failure_of,
    server_error,
)
from tidings.publishing.redis_wire import RedisRequest
from tidings.redis_url import RedisUrl


class BlockingRedis:
    """At most `max_connections` exchanges at a time, each on a connection of its own, opened when first needed. More
    wait their turn, within their own timeout."""

    def __init__(self, url: RedisUrl, max_connections: int) -> None:
        self._dialer = Dialer(url, redis.connection)
        self._kind = _with_deadline(self._dialer.kind)
        self._max_connections = max_connections
        # A child only closes its copies of the parent's sockets; redis-py shuts down those of its own process alone.
        self._pools = PerProcess(lambda: _new_pool(max_connections), Pool.drain)

    def run(self, request: RedisRequest, timeout_s: float) -> Outcome:
        """Never raises for what happens on the way: the outcome says it."""
        end = time.monotonic() + timeout_s
        pool = self._pools.get()
        if not pool.slots.acquire(timeout=timeout_s):
            return Outcome(failure=Failure(f"all {self._max_connections} connections to Redis were busy", "busy"))
        try:
            return self._exchange(pool, request, end)
        finally:
            pool.slots.release()

    def _exchange(self, pool: Pool[Any], request: RedisRequest, end: float) -> Outcome:
        replies: list[Any] = []
        failure = None
        sent, whole, doing = False, False, "connecting"
        connection = pool.take(request.server, request.known)
        try:
            if connection is None:
                connection = self._kind(**self._dialer.arguments(request.server))
                connection.socket_connect_timeout = left(end)
                connection.end = end
                connection.connect()
            connection.deadline.end = end
            packed = connection.pack_commands(request.commands)
            sent, doing = True, "sending"
            connection.send_packed_command(packed, check_health=False)
            doing = "waiting for the answer"
            while len(replies) < len(request.commands):
                try:
                    replies.append(connection.read_response())
                except ANSWERED as error:
                    replies.append(server_error(error))
            connection.deadline.end = None
            whole = True
        except BROKEN as error:
            failure = failure_of(error, sent=sent, doing=doing)
        finally:
            # Also on KeyboardInterrupt: a connection with an unread reply would hand it to the next caller.
            if connection is not None and (not whole or not pool.give(connection, request.server)):
                connection.disconnect()
        if is_stale(replies):
            pool.drop(request.server)
        return Outcome(replies[request.preparing :], failure)

    def close(self) -> None:
        """Closes the idle connections; those in use close when their exchange ends."""
        pool = self._pools.get()
        pool.closed = True
        pool.drain()


def _with_deadline(kind: Any) -> Any:
    class Connection(kind):  # type: ignore[misc]
        """A connection whose handshake and exchanges end in time. Set `end` before `connect`."""

        end: float | None = None
        deadline: DeadlineSocket

        def _connect(self) -> DeadlineSocket:
            self.deadline = DeadlineSocket(super()._connect(), self.end)
            return self.deadline

    return Connection


def _is_good(connection: Any) -> bool:
    try:
        # Nothing was asked, so anything to read is the end of the connection, or worse.
        return not connection.can_read(timeout=0)
    except BROKEN:
        return False


def _new_pool(size: int) -> Pool[Any]:
    return Pool(size, _is_good, lambda connection: connection.disconnect())
