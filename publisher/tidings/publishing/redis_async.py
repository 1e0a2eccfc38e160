"""Exchanges with Redis for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable
from typing import Any

import redis.asyncio.connection

from tidings.publishing.deadline import is_readable
from tidings.publishing.faults import is_stale
from tidings.publishing.per_process import PerProcess
from tidings.publishing.plan import Failure, Outcome
from tidings.publishing.pool import Idle
from tidings.publishing.redis_link import (
    ANSWERED,
    BROKEN,
    Dialer,
    failure_of,
    server_error,
)
from tidings.publishing.redis_wire import RedisRequest
from tidings.publishing.routes import Server
from tidings.redis_url import RedisUrl


class AsyncRedis:
    """At most `max_connections` exchanges at a time and event loop, each on a connection of its own, opened when first
    needed. More wait their turn, within their own timeout.

    Connections belong to the loop they were opened in and end with it, so one object may be used from several loops,
    one after the other or in several threads.
    """

    def __init__(self, url: RedisUrl, max_connections: int) -> None:
        self._dialer = Dialer(url, redis.asyncio.connection)
        self._max_connections = max_connections
        self._closed = False
        self._pools: PerProcess[_Pools] = PerProcess(dict, _inherited.append)

    async def run(self, request: RedisRequest, timeout_s: float) -> Outcome:
        """Never raises for what happens on the way: the outcome says it. When cancelled, the connection is closed: a
        reply that nobody waits for would be taken for the next caller's."""
        progress = _Progress(request)
        try:
            async with asyncio.timeout(timeout_s):
                pool = await self._pool()
                async with pool.slots:
                    progress.doing = "connecting"
                    await self._exchange(pool, progress)
        except TimeoutError as error:
            if progress.doing == _QUEUED:
                return Outcome(failure=Failure(f"all {self._max_connections} connections to Redis were busy", "busy"))
            return progress.outcome(error)
        except BROKEN as error:
            return progress.outcome(error)
        return progress.outcome(None)

    async def _exchange(self, pool: _Pool, progress: _Progress) -> None:
        request, replies, whole = progress.request, progress.replies, False
        commands, server = request.commands, request.server
        connection = await pool.take(server, request.known)
        try:
            if connection is None:
                connection = self._dialer.kind(**self._dialer.arguments(server))
                await connection.connect()
            packed = connection.pack_commands(commands)
            progress.sent, progress.doing = True, "waiting for the answer"
            await connection.send_packed_command(packed, check_health=False)
            while len(replies) < len(commands):
                try:
                    replies.append(await connection.read_response())
                except ANSWERED as error:
                    replies.append(server_error(error))
            whole = True
        finally:
            if connection is not None and (not whole or self._closed or not pool.give(connection, server)):
                await connection.disconnect(nowait=True)
        if is_stale(replies):
            await pool.drop(server)

    async def _pool(self) -> _Pool:
        pools = self._pools.get()
        loop = asyncio.get_running_loop()
        pool = pools.get(loop)
        if pool is None:
            for other in list(pools):
                if other.is_closed():  # without a proper end, or it would have left by itself
                    pools.pop(other, None)
            pool = pools[loop] = _Pool(self._max_connections)
            await pool.end_with_loop(lambda: pools.pop(loop, None))
        return pool

    async def close(self) -> None:
        """Closes the idle connections of the running loop; those in use close when their exchange ends, those of
        another loop with that loop."""
        self._closed = True
        pool = self._pools.get().get(asyncio.get_running_loop())
        if pool is not None:
            await pool.close()


_Pools = dict[asyncio.AbstractEventLoop, "_Pool"]

_inherited: list[_Pools] = []
"""Kept alive in a child: to finalize one of these connections would take the parent's socket out of the parent's epoll,
which the child shares."""

_QUEUED = "waiting for a free connection"


class _Progress:
    """How far an exchange has come, for the outcome should it break off."""

    def __init__(self, request: RedisRequest) -> None:
        self.request = request
        self.replies: list[Any] = []
        self.sent = False
        self.doing = _QUEUED

    def outcome(self, error: BaseException | None) -> Outcome:
        failure = None if error is None else failure_of(error, sent=self.sent, doing=self.doing)
        return Outcome(self.replies[self.request.preparing :], failure)


class _Pool:
    def __init__(self, size: int) -> None:
        self.slots = asyncio.Semaphore(size)
        self._idle: Idle[Any] = Idle()
        self._guardian: AsyncGenerator[None, None] | None = None
        self._ended = False

    async def end_with_loop(self, ended: Callable[[], object]) -> None:
        """A loop that shuts down closes the async generators that were started in it (`asyncio.run` does), and ours
        closes the connections: there is no other hook, and a connection cannot be closed after its loop."""
        self._guardian = self._guard(ended)
        await anext(self._guardian)

    async def _guard(self, ended: Callable[[], object]) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._ended = True
            ended()
            await self.drain()

    async def close(self) -> None:
        if self._guardian is not None:
            await self._guardian.aclose()

    async def take(self, server: Server | None, known: frozenset[Server] | None) -> Any:
        """An idle connection that is still good, or None. Those to servers that are not `known` are ended."""
        for other in self._idle.unknown(known):
            await self.drop(other)
        while (connection := self._idle.pop(server)) is not None:
            if _is_quiet(connection):
                return connection
            await connection.disconnect(nowait=True)
        return None

    def give(self, connection: Any, server: Server | None) -> bool:
        return not self._ended and self._idle.push(server, connection)

    async def drop(self, server: Hashable) -> None:
        for connection in self._idle.forget(server):
            await connection.disconnect(nowait=True)

    async def drain(self) -> None:
        for server in self._idle.servers:
            await self.drop(server)


def _is_quiet(connection: Any) -> bool:
    # Nothing was asked, so anything to read is the end of the connection, or worse. The socket is asked itself: a loop
    # that was not running meanwhile has not heard of it yet.
    writer, reader = connection._writer, connection._reader
    if writer is None or writer.is_closing() or reader.at_eof():
        return False
    return not is_readable(writer.get_extra_info("socket"))
