"""Publishing on and on while something happens to the servers, and a ledger of what was said about each event."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from tests.publisher.support import RealLog
from tests.support.waiting import until
from tidings import Publisher, PublishError

PAUSE_S = 0.002


@dataclass
class Hammer:
    """`publisher` is a `Publisher`, called in threads, or an `AsyncPublisher`. Each user has one event under way at a
    time, so that their order is that of the calls."""

    publisher: Any
    users: list[str]
    min_replicas: int = 0
    acknowledged: dict[str, str] = field(default_factory=dict)
    """Position by event."""
    failed: dict[str, str] = field(default_factory=dict)
    """Said not to be stored, and why."""
    unknown: dict[str, str] = field(default_factory=dict)
    _stopped: bool = False

    async def through(self, happening: Callable[[], Any], *, after: int = 20, then: int = 20) -> None:
        """Publish before, while and after `happening`, which blocks and runs in a thread of its own."""
        tasks = [asyncio.create_task(self._publish_on(user)) for user in self.users]
        try:
            await until(lambda: len(self.acknowledged) >= after, 10, "events are acknowledged before")
            await asyncio.to_thread(happening)
            enough = len(self.acknowledged) + then
            await until(lambda: len(self.acknowledged) >= enough, 20, "events are acknowledged after")
        finally:
            self._stopped = True
            await asyncio.gather(*tasks)

    async def _publish_on(self, user: str) -> None:
        number = 0
        while not self._stopped:
            number += 1
            event = f"{user}-{number}"
            try:
                receipt = await self._publish(user, event)
            except PublishError as error:
                (self.unknown if error.outcome_unknown else self.failed)[event] = f"{error.code}: {error}"
            else:
                self.acknowledged[event] = receipt.position
            await asyncio.sleep(PAUSE_S)  # time: enough events to hit every moment, few enough to read them all

    async def _publish(self, user: str, event: str) -> Any:
        if isinstance(self.publisher, Publisher):
            return await asyncio.to_thread(self.publisher.publish, user, "a", event, min_replicas=self.min_replicas)
        return await self.publisher.publish(user, "a", event, min_replicas=self.min_replicas)

    def lost(self, log_of: Callable[[str], RealLog]) -> set[str]:
        """Which acknowledged events their logs do not hold, where they were said to be. Asserts the rest: no event is
        there twice, none that was said not to be stored, and none out of order."""
        positions: dict[str, str] = {}
        for user in self.users:
            page = log_of(user).read(None, last=100_000, limit=100_000, max_bytes=100_000_000)
            events = [orjson.loads(entry.body)["data"] for entry in page.entries]
            twice = [event for event, times in Counter(events).items() if times > 1]
            assert not twice, f"stored twice: {twice}"
            assert not self.failed.keys() & set(events), "stored although said not to be"
            numbers = [int(event.rpartition("-")[2]) for event in events]
            assert numbers == sorted(numbers), f"out of order: {numbers}"
            positions |= {event: entry.position.decode() for event, entry in zip(events, page.entries, strict=True)}
        assert len(set(self.acknowledged.values())) == len(self.acknowledged), "one position for two events"
        # The epoch may have changed since; the number and the tag are the event's own.
        return {
            event
            for event, position in self.acknowledged.items()
            if positions.get(event, "").partition(".")[2] != position.partition(".")[2]
        }


async def close(publisher: Any) -> None:
    if isinstance(publisher, Publisher):
        publisher.close()
    else:
        await publisher.close()
