"""Thousands of sessions whose link is cut: back soon, in the right order, and in nobody's way."""

from __future__ import annotations

import asyncio

import pytest

from tests.bus.fleet import Fleet, cut_and_measure, numbers
from tests.bus.support import append, numsub
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings import AsyncPublisher
from tidings_gateway.hub import HEAL_READS

STALL_S = 0.2
"""The longest the event loop may be kept from everybody else."""


def event(number: int) -> bytes:
    return b'{"event":"n","data":%d,"time":1}' % number


@pytest.mark.parametrize(
    ("count", "within_s"),
    [(5_000, 3.0), pytest.param(20_000, 4.0, marks=pytest.mark.full)],
)
async def test_all_channels_are_subscribed_again_soon_and_nothing_stands_still(count: int, within_s: float) -> None:
    """Twice the 2 s that 20,000 channels may take, for a machine with other things to do; most of it is the wait
    before the new link. No callback keeps the event loop for 200 ms."""
    with ValkeyProcess() as server:
        async with Fleet(server.url, "fleet", count) as fleet:
            found = await cut_and_measure(fleet, server)
            assert found.subscribed_s < within_s
            assert found.stall_s < STALL_S
            assert sum(numsub(server, fleet.channels)) == count


async def test_three_cuts_while_the_channels_come_back() -> None:
    """2,000 users, the subscribed connection killed three times at 100 to 300 ms: each of them is subscribed exactly
    once and gets the event published then, and those published in between (StackExchange/StackExchange.Redis #517)."""
    with ValkeyProcess() as server:
        async with Fleet(server.url, "fleet", 2_000) as fleet:
            for number, pause_s in enumerate((0.1, 0.3, 0.2)):
                fleet.kill_link(server)
                await asyncio.sleep(pause_s)
                for user in range(number, 2_000, 50):
                    append(server, fleet.names, f"u{user}", event(number))
            await fleet.until_live(15)
            assert numsub(server, fleet.channels) == [1] * 2_000
            for user in range(2_000):
                append(server, fleet.names, f"u{user}", event(9))
            await until(lambda: all(numbers(fleet, user)[-1:] == [9] for user in range(2_000)), every_s=0.1)
            for user in range(2_000):
                assert numbers(fleet, user) == [*([user % 50] if user % 50 < 3 else []), 9]


async def test_who_was_active_last_is_healed_first() -> None:
    """Of 2,000 sessions with an event missed, the tenth that got one last is back before the half that never did."""
    with ValkeyProcess() as server:
        async with Fleet(server.url, "fleet", 2_000) as fleet:
            active = list(range(0, 2_000, 10))
            for user in active:
                append(server, fleet.names, f"u{user}", event(1))
            await until(lambda: all(numbers(fleet, user) for user in active), every_s=0.05)
            fleet.kill_link(server)
            await until(lambda: not fleet.bus.up, every_s=0.001)
            for user in range(2_000):
                append(server, fleet.names, f"u{user}", event(2))
            await fleet.until_live()
            back = [sink.sent_at for sink in fleet.sinks]
            idle = [back[user] for user in range(2_000) if user % 10]
            assert max(back[user] for user in active) <= sorted(idle)[len(idle) // 2]
            assert all(numbers(fleet, user)[-1:] == [2] for user in range(2_000))


async def test_live_events_pass_those_who_heal() -> None:
    """5,000 sessions read the log after a lost link; one user is published to meanwhile. Between the moment of
    publishing and the arrival only few of the others get their turn, however long all of them take together."""
    with ValkeyProcess() as server:
        async with (
            Fleet(server.url, "fleet", 5_000) as fleet,
            AsyncPublisher(server.url, prefix="fleet") as publisher,
        ):
            await publisher.publish("u0", "n", 0)
            await until(lambda: numbers(fleet, 0) == [0])
            generation = fleet.bus.generation
            fleet.kill_link(server)
            await until(lambda: fleet.bus.generation > generation and fleet.sessions[0]._feed.live, 10, every_s=0.001)
            passed = []
            sink = fleet.sinks[0]
            while (before := fleet.live) < 5_000:
                seen = len(sink.frames)
                await publisher.publish("u0", "n", 0)
                await until(lambda seen=seen: len(sink.frames) > seen, every_s=0.001)
                passed.append(fleet.live - before)
            assert len(passed) > 3, "it was over before anything could be seen"
            assert max(passed) < 4 * HEAL_READS, passed
