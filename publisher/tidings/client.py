"""Publishing from asyncio: FastAPI and Starlette apps, arq and SAQ workers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, overload

from tidings.log.receipt import Receipt
from tidings.publishing.calls import (
    Checked,
    Result,
    Transport,
    ask_position,
    blocking_transport,
    check_each,
    check_messages,
    check_open,
    merge,
    now_ms,
    position_of,
    receipt_of,
    sendable,
    start,
)
from tidings.publishing.config import DEADLINE_S, MAX_CONNECTIONS, Config
from tidings.publishing.message import Call, Message, Options, checked
from tidings.publishing.per_process import PerProcess
from tidings.publishing.plan import Done, Outcome, Sleep


class AsyncPublisher:
    """Publishes events from asyncio. Arguments, results and errors are those of `Publisher`.

    Nothing is opened until the first call. One object may be used from several event loops, one after the other or in
    several threads, and on both sides of a fork: connections belong to the loop that opened them and end with it.
    A cancelled call never leaves a reply behind for another one; its outcome is unknown.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        prefix: str | None = None,
        log_max_events: int | None = None,
        log_ttl_s: int | None = None,
        meta_ttl_s: int | None = None,
        idempotency_ttl_s: int | None = None,
        max_event_bytes: int | None = None,
        failover: str | None = None,
        deadline_s: float = DEADLINE_S,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._config = Config(
            url,
            api_key=api_key,
            prefix=prefix,
            log_max_events=log_max_events,
            log_ttl_s=log_ttl_s,
            meta_ttl_s=meta_ttl_s,
            idempotency_ttl_s=idempotency_ttl_s,
            max_event_bytes=max_event_bytes,
            failover=failover,
            deadline_s=deadline_s,
            max_connections=max_connections,
        )
        self._transport = _make_transport(self._config)
        self._closed = False

    @overload
    async def publish(
        self,
        user: str,
        event: str,
        data: Any = None,
        *,
        key: str | None = None,
        ephemeral: bool = False,
        idempotency_key: str | None = None,
        min_replicas: int = 0,
    ) -> Receipt: ...
    @overload
    async def publish(
        self,
        user: list[str] | tuple[str, ...],
        event: str,
        data: Any = None,
        *,
        key: str | None = None,
        ephemeral: bool = False,
        idempotency_key: str | None = None,
        min_replicas: int = 0,
    ) -> list[Result]: ...
    async def publish(
        self,
        user: str | list[str] | tuple[str, ...],
        event: str,
        data: Any = None,
        *,
        key: str | None = None,
        ephemeral: bool = False,
        idempotency_key: str | None = None,
        min_replicas: int = 0,
    ) -> Receipt | list[Result]:
        """Store one event for one user, and tell whoever of them is connected. See `Publisher.publish`."""
        encoded = self._config.event(event, data, key, now_ms())
        options: Options = {
            "ephemeral": ephemeral,
            "idempotency_key": idempotency_key,
            "min_replicas": min_replicas,
        }
        if isinstance(user, list | tuple):
            return await self._all(check_each(user, encoded, options))
        message = checked(user, encoded, **options)
        return receipt_of((await self._drive([message]))[0])

    async def publish_many(self, messages: Iterable[Message]) -> list[Result]:
        """Store many events with few round trips. See `Publisher.publish_many`."""
        return await self._all(check_messages(self._config, list(messages), now_ms()))

    async def position(self, user: str) -> str:
        """The user's position now, to be rendered into a page *before* its state is read. See `Publisher.position`."""
        return position_of((await self._drive([ask_position(user)]))[0])

    async def close(self) -> None:
        """Close the connections of the running loop. Later calls raise `PublishError`."""
        self._closed = True
        await self._transport.close()

    async def __aenter__(self) -> AsyncPublisher:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _all(self, checks: Sequence[Checked]) -> list[Result]:
        return merge(checks, await self._drive(sendable(checks)))

    async def _drive(self, calls: Sequence[Call]) -> list[Done]:
        check_open(self._closed)
        steps = start(self._config, calls)
        outcome: Outcome | None = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                results: list[Done] = end.value
                return results
            outcome = None
            if isinstance(step, Sleep):
                await asyncio.sleep(step.seconds)
            else:
                outcome = await self._transport.run(step.request, step.timeout_s)


class AsyncTransport(Protocol):
    async def run(self, request: Any, timeout_s: float) -> Outcome: ...
    async def close(self) -> None: ...


def _make_transport(config: Config) -> AsyncTransport:
    if config.kind == "http":
        return _InThreads(blocking_transport(config), config.max_connections)
    from tidings.publishing.redis_async import AsyncRedis

    return AsyncRedis(config.redis, config.max_connections)


class _InThreads:
    """A blocking transport in threads of its own. A cancelled call leaves its thread to end by itself, within its
    timeout, so that no answer is ever cut in half."""

    def __init__(self, transport: Transport, threads: int) -> None:
        self._transport = transport
        # Threads do not come along into a child; neither may the queue they wait at.
        self._executors = PerProcess(lambda: ThreadPoolExecutor(threads, "tidings-publish"), _inherited.append)

    async def run(self, request: Any, timeout_s: float) -> Outcome:
        end = time.monotonic() + timeout_s  # waiting for a thread counts

        def exchange() -> Outcome:
            return self._transport.run(request, max(0.0, end - time.monotonic()))

        return await asyncio.get_running_loop().run_in_executor(self._executors.get(), exchange)

    async def close(self) -> None:
        self._transport.close()
        self._executors.get().shutdown(wait=False)


_inherited: list[ThreadPoolExecutor] = []
"""Kept alive in a child: to finalize one of these would wake threads that do not exist there."""
