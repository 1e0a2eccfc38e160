"""One run from start to verdict."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field

from tests.chaos.actors import Publishers, Restarts, Scissors
from tests.chaos.plan import Plan
from tests.support.client import Client
from tests.support.gateway import GatewayProcess
from tests.support.ledger import Ledger, Verdict
from tests.support.tokens import mint
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import NotReached, until
from tidings import AsyncPublisher

LINGER_MS = 500
SPARE_DESCRIPTORS = 8
"""A gateway may hold this many more descriptors after the run than before its first client: pools, log files."""

COMPLAINT_CHARS = 1500

SETTINGS = {
    "TIDINGS_DRAIN_GRACE_MS": "300",
    "TIDINGS_DRAIN_WINDOW_MS": "1500",
    "TIDINGS_RETRY_MS": "500",
    "TIDINGS_SUBSCRIPTION_LINGER_MS": str(LINGER_MS),
    "TIDINGS_HEARTBEAT_MS": "2000",
    "TIDINGS_HEARTBEAT_TIMEOUT_MS": "2000",
}


@dataclass
class Report:
    verdict: Verdict
    lines: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.verdict.ok()

    def __str__(self) -> str:
        return "\n".join([*self.lines, self.verdict.table(), "OK" if self.ok else "NOT OK"])


async def run(plan: Plan) -> Report:
    """Own server, own gateways; everything is ended when it returns."""
    async with contextlib.AsyncExitStack() as stack:
        valkey = stack.enter_context(ValkeyProcess())
        gateways = [
            GatewayProcess(valkey.url, prefix="chaos", env=SETTINGS, name=f"gateway {number + 1}")
            for number in range(plan.gateways)
        ]
        for gateway in gateways:
            stack.push_async_callback(gateway.close, check=False)
        await asyncio.gather(*(gateway.start() for gateway in gateways))
        return await _run(plan, valkey, gateways)


async def _run(plan: Plan, valkey: ValkeyProcess, gateways: list[GatewayProcess]) -> Report:
    ledger = Ledger()
    descriptors = [gateway.descriptors() for gateway in gateways]
    urls = [gateway.ws_url for gateway in gateways]
    users = plan.users()
    clients = [
        Client(urls, mint(user), name=f"client {number}", cap_ms=500, rng=plan.rng(f"client {number}")).start()
        for number, user in enumerate(users)
    ]
    by_user: dict[str, list[Client]] = {}
    for user, client in zip(users, clients, strict=True):
        by_user.setdefault(user, []).append(client)
    scissors, restarts = Scissors(plan, clients), Restarts(plan, gateways)
    try:
        await asyncio.gather(*(client.until_synced(30) for client in clients))
        begin = time.monotonic()
        async with AsyncPublisher(valkey.url, prefix="chaos") as publisher:
            publishers = Publishers(plan, ledger, publisher)
            async with asyncio.TaskGroup() as group:
                for actor in (publishers, scissors, restarts):
                    group.create_task(actor.run())
        ended = time.monotonic()
        with contextlib.suppress(NotReached):
            await until(
                lambda: all(client.synced for client in clients) and ledger.settled(by_user), plan.quiet_s, every_s=0.1
            )
        quiet_s = time.monotonic() - ended
        all_away_s = restarts.longest_all_away_s()
        verdict = ledger.verdict(by_user, recovery_s=plan.recovery_s + all_away_s)
    finally:
        await asyncio.gather(*(client.close() for client in clients))
    await _after(verdict, valkey, gateways, descriptors)
    verdict.violations += restarts.problems
    published = sum(verdict.counts[name] for name in ("acknowledged", "failed", "unknown"))
    lines = [
        f"seed {plan.seed}: {plan.seconds:g} s, {published} events at {published / (ended - begin):.0f}/s to "
        f"{len(by_user)} users, {len(clients)} clients, {len(gateways)} gateways",
        *restarts.done,
        f"{scissors.cuts} connections cut, {sum(client.connections for client in clients)} made, "
        f"{sum(len(client.refused) for client in clients)} attempts refused",
        f"longest without a synced connection: {max(client.longest_away_s for client in clients):.2f} s (no gateway "
        f"at all for {all_away_s:.2f} s); quiet {quiet_s:.2f} s after the last event",
        *publishers.errors[:5],
    ]
    return Report(verdict, lines)


async def _after(
    verdict: Verdict, valkey: ValkeyProcess, gateways: list[GatewayProcess], descriptors: list[int]
) -> None:
    """With the clients gone, everything taken for them is given back, and the gateways end well."""
    ledger = Ledger()

    def subscribed() -> int:
        return len(valkey.cli("PUBSUB", "CHANNELS", "chaos:{user-*"))

    with contextlib.suppress(NotReached):
        await until(lambda: not subscribed(), LINGER_MS / 1000 + 5, every_s=0.05)
    ledger.given_back("channels subscribed", 0, subscribed())
    for gateway, before in zip(gateways, descriptors, strict=True):
        ledger.given_back(f"descriptors of {gateway.name}", before, gateway.descriptors(), allowed=SPARE_DESCRIPTORS)
    verdict.leaks += ledger.leaks
    for gateway in gateways:
        code = await gateway.stop()
        if code != 0:
            verdict.violations.append(f"{gateway.name} ended with {code} after SIGTERM")
        try:
            gateway.assert_quiet()
        except AssertionError as complaint:
            verdict.violations.append(str(complaint)[:COMPLAINT_CHARS])
