"""The demo's work: jobs that take a while, tell their progress as they go, and their end for good."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from tidings import AsyncPublisher
from tidings.errors import PublishError

log = logging.getLogger("tidings.demo")

MAX_RUNNING = 50
MAX_KEPT = 20
"""Jobs remembered per visitor."""
MAX_VISITORS = 500
TICK_S = 0.5
PUBLISH_AGAIN_S = 0.5


class TooManyJobs(Exception):
    pass


@dataclass(slots=True)
class Job:
    id: str
    seconds: float
    status: str = "queued"
    progress: int = 0
    """Percent."""

    def seen(self) -> dict[str, Any]:
        return {"id": self.id, "seconds": self.seconds, "status": self.status, "progress": self.progress}


@dataclass(slots=True)
class Visitor:
    """One browser's user, and what the application knows of it: the state a page fetches."""

    user: str
    jobs: OrderedDict[str, Job] = field(default_factory=OrderedDict)


class Worker:
    """Runs jobs as tasks of its own; `close` ends them. The state is changed first and told afterwards: whoever reads
    the position and then the state has at least everything that was told up to that position."""

    def __init__(self, publisher: AsyncPublisher) -> None:
        self._publisher = publisher
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, visitor: Visitor, seconds: float) -> Job:
        """Raises `TooManyJobs`."""
        if len(self._tasks) >= MAX_RUNNING:
            raise TooManyJobs
        job = Job(secrets.token_hex(4), seconds)
        visitor.jobs[job.id] = job
        while len(visitor.jobs) > MAX_KEPT:
            visitor.jobs.popitem(last=False)
        task = asyncio.create_task(self._run(visitor.user, job))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return job

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a job ended with an error", exc_info=error)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, user: str, job: Job) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        job.status = "processing"
        while (left := job.seconds - (loop.time() - began)) > 0:
            await asyncio.sleep(min(TICK_S, left))
            job.progress = min(99, int(100 * (loop.time() - began) / job.seconds))
            await self._tell_progress(user, job)
        job.status, job.progress = "complete", 100
        await self._tell_for_good(user, job)

    async def _tell_progress(self, user: str, job: Job) -> None:
        # One that is lost is no loss: the next one says more, and the end is told for good.
        with contextlib.suppress(PublishError):
            await self._publisher.publish(
                user, "job.progress", {"id": job.id, "progress": job.progress}, ephemeral=True, key=job.id
            )

    async def _tell_for_good(self, user: str, job: Job) -> None:
        """Again and again until it is stored; the idempotency key makes it once."""
        while True:
            try:
                await self._publisher.publish(user, "job.complete", job.seen(), idempotency_key=f"complete-{job.id}")
                return
            except PublishError as error:
                if not error.retryable:
                    raise
                await asyncio.sleep(max(PUBLISH_AGAIN_S, error.retry_after_s or 0))
