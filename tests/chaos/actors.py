"""Those who act during a run: publishers, scissors, and whoever restarts the gateways."""

from __future__ import annotations

import asyncio
import itertools
import time

from tests.chaos.plan import Plan, Restart
from tests.support.client import Client
from tests.support.gateway import GatewayProcess
from tests.support.ledger import Ledger
from tidings import AsyncPublisher
from tidings.errors import PublishError

PULSE_S = 0.1


class Publishers:
    """`plan.rate` events per second to random users, each written down before it is sent and when it is answered."""

    def __init__(self, plan: Plan, ledger: Ledger, publisher: AsyncPublisher) -> None:
        self.plan = plan
        self.ledger = ledger
        self.publisher = publisher
        self.users = sorted(set(plan.users()))
        self.errors: list[str] = []
        self._numbers = itertools.count(1)

    async def run(self) -> None:
        await asyncio.gather(*(self._publish(index) for index in range(self.plan.publishers)))

    async def _publish(self, index: int) -> None:
        rng = self.plan.rng(f"publisher {index}")
        step = self.plan.publishers / self.plan.rate
        begin = time.monotonic()
        for turn in range(int(self.plan.seconds / step)):
            due = begin + (turn + rng.random()) * step
            if (pause := due - time.monotonic()) > 0:
                await asyncio.sleep(pause)
            elif time.monotonic() - begin > self.plan.seconds * 1.5:
                return  # A machine that cannot keep the rate sends less; it must not run for ever.
            await self._one(rng.choice(self.users))

    async def _one(self, user: str) -> None:
        key = str(next(self._numbers))
        data = self.ledger.attempted(user, key)
        try:
            receipt = await self.publisher.publish(user, "chaos.event", data)
        except PublishError as error:
            self.errors.append(f"{key}: {error}")
            if error.outcome_unknown:
                self.ledger.unknown(key)
            else:
                self.ledger.failed(key)
        else:
            assert receipt.position is not None
            self.ledger.acknowledged(key, receipt.position)


class Pulse:
    """How late this process is. A machine that starves the run starves the gateways, too, and then how long a return
    took says nothing about them."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.latest_s = 0.0

    async def run(self) -> None:
        end = time.monotonic() + self.seconds
        while (due := time.monotonic() + PULSE_S) < end:
            await asyncio.sleep(PULSE_S)
            self.latest_s = max(self.latest_s, time.monotonic() - due)


class Scissors:
    """Cuts every client's connection again and again."""

    def __init__(self, plan: Plan, clients: list[Client]) -> None:
        self.plan = plan
        self.clients = clients
        self.cuts = 0

    async def run(self) -> None:
        await asyncio.gather(*(self._cut(index, client) for index, client in enumerate(self.clients)))

    async def _cut(self, index: int, client: Client) -> None:
        rng = self.plan.rng(f"scissors {index}")
        end = time.monotonic() + self.plan.seconds
        while (pause := rng.uniform(*self.plan.cut_every_s)) < end - time.monotonic():
            await asyncio.sleep(pause)
            self.cuts += client.cut()


class Restarts:
    """Restarts each gateway as planned, one gateway's restarts independent of the other's."""

    def __init__(self, plan: Plan, gateways: list[GatewayProcess]) -> None:
        self.plan = plan
        self.gateways = gateways
        self.done: list[str] = []
        self.problems: list[str] = []
        self.slowest_start_s = 0.0
        self.away: list[list[tuple[float, float]]] = [[] for _ in gateways]
        """Per gateway: from when to when it took no connections."""

    async def run(self) -> None:
        begin = time.monotonic()
        await asyncio.gather(*(self._of(index, begin) for index in range(len(self.gateways))))

    async def _of(self, index: int, begin: float) -> None:
        for restart in self.plan.restarts():
            if restart.gateway == index:
                await asyncio.sleep(max(0.0, begin + restart.at_s - time.monotonic()))
                since = time.monotonic()
                await self._restart(self.gateways[index], restart, begin)
                self.away[index].append((since, time.monotonic()))

    async def _restart(self, gateway: GatewayProcess, restart: Restart, begin: float) -> None:
        since = time.monotonic()
        if restart.kind == "kill -9":
            gateway.kill()
        else:
            code = await gateway.stop()
            if code != 0:
                self.problems.append(f"{gateway.name} ended with {code} after SIGTERM")
        ended = time.monotonic()
        await gateway.start()
        self.slowest_start_s = max(self.slowest_start_s, time.monotonic() - ended)
        self.done.append(
            f"{since - begin:5.1f} s  {gateway.name}  {restart.kind:<8} ended in {ended - since:.2f} s, "
            f"back after {time.monotonic() - since:.2f} s"
        )

    def longest_all_away_s(self) -> float:
        """The longest time in which no gateway at all took connections: no client can be back before its end."""
        edges = sorted({edge for gateway in self.away for span in gateway for edge in span})
        longest = current = 0.0
        for begin, end in itertools.pairwise(edges):
            all_away = all(any(a <= begin and end <= b for a, b in gateway) for gateway in self.away)
            current = current + end - begin if all_away else 0.0
            longest = max(longest, current)
        return longest
