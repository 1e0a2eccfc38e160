"""A task that must not end: who owns one notices its death, says so, and starts it again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine

log = logging.getLogger("tidings.bus")

OWNER_RETRY_S = 1.0
"""What is owned here catches every `Exception` itself; should it end all the same, it is started again after this."""


class Owner:
    """`run` is the task's body. `start` and `close` belong to the event loop."""

    def __init__(self, run: Callable[[], Coroutine[None, None, None]], name: str) -> None:
        self._run = run
        self._name = name
        self.task: asyncio.Task[None] | None = None
        self._restart: asyncio.TimerHandle | None = None
        self._closed = False

    def start(self) -> None:
        if self.task is None and not self._closed:
            self._begin()

    async def close(self) -> None:
        """Returns when the task has ended. Safe to call twice."""
        self._closed = True
        if self._restart is not None:
            self._restart.cancel()
        task, self.task = self.task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def _begin(self) -> None:
        self.task = asyncio.get_running_loop().create_task(self._run(), name=self._name)
        self.task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        if self._closed:
            return
        error = None if task.cancelled() else task.exception()
        log.critical("the task %r ended; starting it again", self._name, exc_info=error)
        self._restart = asyncio.get_running_loop().call_later(OWNER_RETRY_S, self._begin)
