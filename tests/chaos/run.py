"""One run from start to verdict."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from dataclasses import dataclass, field

from tests.chaos.actors import Publishers, Pulse, Restarts, Scissors
from tests.chaos.plan import Plan
from tests.chaos.stores import Store, store_for
from tests.chaos.strikes import Strikes, percentile, return_times_s
from tests.support.client import Client
from tests.support.gateway import GatewayProcess
from tests.support.ledger import Ledger, Verdict
from tests.support.tokens import mint
from tests.support.waiting import NotReached, until
from tidings import AsyncPublisher

LINGER_MS = 500
SPARE_DESCRIPTORS = 8
"""A gateway may hold this many more descriptors after the run than before its first client: pools, log files."""

LATE_S, SLOW_START_S = 0.5, 5.0
"""This process behind its clock, or a gateway so slow to start: the machine is too busy for times to mean anything."""

COMPLAINT_CHARS = 1500

BACK_WITHIN_S = 5.0
"""From the end of a strike to live events, for 99 of 100 clients."""

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
    resyncs_allowed: bool = False

    @property
    def ok(self) -> bool:
        return self.verdict.ok(resyncs_allowed=self.resyncs_allowed)

    def __str__(self) -> str:
        return "\n".join([*self.lines, self.verdict.table(), "OK" if self.ok else "NOT OK"])


async def run(plan: Plan) -> Report:
    """Own server, own gateways; everything is ended when it returns."""
    async with contextlib.AsyncExitStack() as stack:
        store = await stack.enter_async_context(store_for(plan.redis))
        gateways = [
            GatewayProcess(store.url, prefix="chaos", env=SETTINGS, name=f"gateway {number + 1}")
            for number in range(plan.gateways)
        ]
        for gateway in gateways:
            stack.push_async_callback(gateway.close, check=False)
        await asyncio.gather(*(gateway.start() for gateway in gateways))
        return await _run(plan, store, gateways)


async def _run(plan: Plan, store: Store, gateways: list[GatewayProcess]) -> Report:
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
    scissors, restarts, strikes = Scissors(plan, clients), Restarts(plan, gateways), Strikes(plan, store)
    pulse = Pulse(plan.seconds)
    try:
        await asyncio.gather(*(client.until_synced(30) for client in clients))
        begin = time.monotonic()
        async with AsyncPublisher(store.url, prefix="chaos") as publisher:
            publishers = Publishers(plan, ledger, publisher)
            async with asyncio.TaskGroup() as group:
                for actor in (publishers, scissors, restarts, strikes, pulse):
                    group.create_task(actor.run())
        ended = time.monotonic()
        with contextlib.suppress(NotReached):
            await until(
                lambda: all(client.synced for client in clients) and _settled(plan, ledger, by_user),
                plan.quiet_s,
                every_s=0.2,
            )
        quiet_s = time.monotonic() - ended
        all_away_s = restarts.longest_all_away_s()
        verdict = ledger.verdict(by_user, recovery_s=plan.recovery_s + all_away_s + strikes.longest_s)
    finally:
        await asyncio.gather(*(client.close() for client in clients))
    returns = _returns(strikes, ended, ledger, by_user, verdict)
    await _after(verdict, store, gateways, descriptors)
    verdict.violations += restarts.problems
    notes = _untold(plan, strikes)
    if pulse.latest_s > LATE_S or restarts.slowest_start_s > SLOW_START_S:
        notes.append(
            f"THIS MACHINE WAS BUSY: the run was up to {pulse.latest_s:.2f} s behind its clock, and a gateway took "
            f"{restarts.slowest_start_s:.1f} s to start. Late returns are not judged: {verdict.late or 'none'}"
        )
        verdict.late.clear()
    published = sum(verdict.counts[name] for name in ("acknowledged", "failed", "unknown"))
    lines = [
        f"seed {plan.seed}: {plan.seconds:g} s, {published} events at {published / (ended - begin):.0f}/s to "
        f"{len(by_user)} users, {len(clients)} clients, {len(gateways)} gateways",
        *restarts.done,
        *returns,
        f"{scissors.cuts} connections cut, {sum(client.connections for client in clients)} made, "
        f"{sum(len(client.refused) for client in clients)} attempts refused",
        f"longest without a synced connection: {max(client.longest_away_s for client in clients):.2f} s (no gateway "
        f"at all for {all_away_s:.2f} s); quiet {quiet_s:.2f} s after the last event",
        *(["what publishers were told (event: error):"] if publishers.errors else []),
        *publishers.errors[:5],
        *notes,
    ]
    return Report(verdict, lines, plan.resyncs_allowed)


def _untold(plan: Plan, strikes: Strikes) -> list[str]:
    """A kind that was asked for and did not fit into the run must not pass for one that did no harm."""
    missing = set(plan.redis) - {struck.strike.kind for struck in strikes.done}
    return [f"NOT STRUCK for want of time: {', '.join(sorted(missing))}. Give it more seconds."] if missing else []


def _settled(plan: Plan, ledger: Ledger, by_user: dict[str, list[Client]]) -> bool:
    # What a resync covers never arrives; to see that costs a whole verdict.
    return ledger.settled(by_user) or (plan.resyncs_allowed and not ledger.verdict(by_user).missing)


def _returns(
    strikes: Strikes, ended: float, ledger: Ledger, by_user: dict[str, list[Client]], verdict: Verdict
) -> list[str]:
    """A line for each strike: what it was, and how soon everybody had live events again."""
    lines = []
    for struck, following in itertools.zip_longest(strikes.done, strikes.done[1:]):
        until_s = ended if following is None else following.began
        times = return_times_s(struck, until_s, ledger, by_user)
        p50, p99 = percentile(times, 0.5), percentile(times, 0.99)
        lines.append(
            f"{struck.strike.kind:<12} {struck.ended - struck.began:5.2f} s; first live event of {len(times)} clients "
            f"after {p50:.2f} s (p50), {p99:.2f} s (p99)"
        )
        if p99 > BACK_WITHIN_S:
            verdict.late.append(f"{struck.strike.kind}: first live event after {p99:.2f} s (p99)")
    return lines


async def _after(verdict: Verdict, store: Store, gateways: list[GatewayProcess], descriptors: list[int]) -> None:
    """With the clients gone, everything taken for them is given back, and the gateways end well."""
    ledger = Ledger()

    def subscribed() -> int:
        return len(store.primary.cli("PUBSUB", "CHANNELS", "chaos:{user-*"))

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
