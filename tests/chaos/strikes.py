"""Whoever strikes Redis, and how soon everybody has live events again."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from tests.chaos.plan import Plan, Strike
from tests.chaos.stores import Store
from tests.support.client import Client
from tests.support.ledger import Ledger

PUBSUB_KILL_EVERY_S = 0.2
"""Faster than a link is replaced and its channels are subscribed: the next strike meets the mending of the last."""

OOM_BYTES = 1
"""Whatever Redis holds already is more."""


@dataclass(frozen=True, slots=True)
class Struck:
    strike: Strike
    began: float
    ended: float
    """When Redis was whole again (`time.monotonic()`)."""


class Strikes:
    def __init__(self, plan: Plan, store: Store) -> None:
        self.plan = plan
        self.store = store
        self.done: list[Struck] = []
        self._ways: dict[str, Callable[[float], Awaitable[None]]] = {
            "kill": self._kill,
            "freeze": self._freeze,
            "pause": self._pause,
            "pubsub-kill": self._pubsub_kill,
            "failover": self._failover,
            "flush": self._flush,
            "oom": self._oom,
        }

    async def run(self) -> None:
        for strike in self.plan.strikes():
            await asyncio.sleep(strike.calm_s / 2)
            began = time.monotonic()
            await self._ways[strike.kind](strike.lasts_s)
            self.done.append(Struck(strike, began, time.monotonic()))
            await asyncio.sleep(strike.calm_s / 2)

    async def _kill(self, lasts_s: float) -> None:
        server = self.store.primary
        server.kill()
        await asyncio.sleep(lasts_s)
        await asyncio.to_thread(server.start)

    async def _freeze(self, lasts_s: float) -> None:
        server = self.store.primary
        server.freeze()
        await asyncio.sleep(lasts_s)
        server.thaw()

    async def _pause(self, lasts_s: float) -> None:
        """It takes commands and answers none."""
        self.store.primary.cli("CLIENT", "PAUSE", int(lasts_s * 1000), "ALL")
        await asyncio.sleep(lasts_s)

    async def _pubsub_kill(self, lasts_s: float) -> None:
        for _ in range(int(lasts_s / PUBSUB_KILL_EVERY_S)):
            self.store.primary.cli("CLIENT", "KILL", "TYPE", "pubsub")
            await asyncio.sleep(PUBSUB_KILL_EVERY_S)

    async def _flush(self, _: float) -> None:
        self.store.primary.cli("FLUSHALL")

    async def _oom(self, lasts_s: float) -> None:
        server = self.store.primary
        server.cli("CONFIG", "SET", "maxmemory", OOM_BYTES)
        await asyncio.sleep(lasts_s)
        server.cli("CONFIG", "SET", "maxmemory", 0)

    async def _failover(self, _: float) -> None:
        await self.store.failover()

    @property
    def longest_s(self) -> float:
        return max((struck.ended - struck.began for struck in self.done), default=0.0)


def return_times_s(
    struck: Struck, until: float, ledger: Ledger, clients: Mapping[str, Iterable[Client]]
) -> list[float]:
    """For each client, from the end of a strike to the first event that was acknowledged after it; infinite for one
    that had none by `until` although its user was sent some in the first half of that time."""
    halfway = (struck.ended + until) / 2
    times = []
    for user, of_user in clients.items():
        sent = {
            entry.key: entry.at
            for entry in ledger.entries.values()
            if entry.user == user and entry.at is not None and struck.ended <= entry.at < until
        }
        if not any(at < halfway for at in sent.values()):
            continue
        for client in of_user:
            seen = [event.at for event in client.events if isinstance(event.data, dict) and event.data["key"] in sent]
            times.append(min(seen, default=math.inf) - struck.ended)
    return times


def percentile(times: list[float], share: float) -> float:
    """The smallest of `times` that at least `share` of them do not exceed; 0 for none."""
    ordered = sorted(times)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0
