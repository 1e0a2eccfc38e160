"""A page in a real browser, and all that can be done to what it depends on. The page's own count is the oracle."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio
from playwright.async_api import Page

from tests.browser.stage import START_S, Counter, Stage, even, live, wait_for
from tests.support.children import children
from tests.support.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _no_child_left_over() -> None:
    """Strikes replace the stage's processes, and these outlive a test: the stage's fixture looks for itself."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage() -> AsyncIterator[Stage]:
    before = set(children())
    async with Stage() as stage:
        yield stage
    await until(lambda: set(children()) <= before, 5, "the stage's processes are gone")


async def states(page: Page) -> list[tuple[str, int | None]]:
    return [(state, code) for state, code in await page.evaluate("page.states")]


async def more(counter: Counter, count: int = 20) -> None:
    """So many events later."""
    goal = counter.last + count
    await until(lambda: counter.last >= goal, 30, f"counted on to {goal}")


async def nothing_fetched_again(page: Page, counter: Counter) -> None:
    """No resync: all of it was replayed out of the log."""
    assert (counter.states_served, await page.evaluate("page.resyncs")) == (1, 0)


async def test_cut_and_resume(stage: Stage, page: Page) -> None:
    """Reset again and again in the middle of a burst: what was missed is replayed, and no state is fetched."""
    async with Counter(stage, "cut") as counter:
        await counter.open(page)
        async with counter.counting(0):
            for _ in range(3):
                await live(page)
                await stage.cut()
                await more(counter, 100)
        await even(page, counter)
        assert ("waiting", 1006) in await states(page)
        await nothing_fetched_again(page, counter)


async def test_a_killed_gateway(stage: Stage, page: Page) -> None:
    """`kill -9` of the one that has the page: the other one takes over from the page's position."""
    async with Counter(stage, "killed") as counter:
        await counter.open(page)
        async with counter.counting():
            gateway = await stage.gateway_of(page)
            gateway.kill()
            await more(counter)
            await live(page)
            assert await stage.gateway_of(page) is not gateway
        await even(page, counter)
        await nothing_fetched_again(page, counter)
        await gateway.start(START_S)


async def test_a_drained_gateway(stage: Stage, page: Page) -> None:
    """SIGTERM: the browser hears 1012, and the page goes on at the other one."""
    async with Counter(stage, "drained") as counter:
        await counter.open(page)
        async with counter.counting():
            gateway = await stage.gateway_of(page)
            await stage.restart_gateway(gateway)
            await live(page)
            assert await stage.gateway_of(page) is not gateway
        await even(page, counter)
        assert ("waiting", 1012) in await states(page)
        await nothing_fetched_again(page, counter)


FROZEN_S = [pytest.param(2.5), pytest.param(9.0, marks=pytest.mark.full)]


@pytest.mark.parametrize("seconds", FROZEN_S)
async def test_a_frozen_redis(stage: Stage, page: Page, seconds: float) -> None:
    """SIGSTOP for longer than a link lives: pages keep their connections and notice nothing; then all of it comes."""
    async with Counter(stage, f"frozen-{seconds}") as counter:
        await counter.open(page)
        before = await states(page)
        async with counter.counting():
            await stage.freeze_redis(seconds)
            await more(counter)
        await even(page, counter)
        assert await states(page) == before
        await nothing_fetched_again(page, counter)


async def test_a_killed_redis(stage: Stage, page: Page) -> None:
    """`kill -9`, and back with what it acknowledged: the same."""
    async with Counter(stage, "redis-killed") as counter:
        await counter.open(page)
        before = await states(page)
        async with counter.counting():
            await stage.kill_redis()
            await more(counter)
        await even(page, counter)
        assert await states(page) == before
        await nothing_fetched_again(page, counter)


async def test_a_black_hole(stage: Stage, page: Page) -> None:
    """A host that vanishes without a word, the page visible: found out by silence."""
    async with Counter(stage, "hole") as counter:
        await counter.open(page)
        stage.front.blackhole()
        await counter.count(20)
        await wait_for(page, "page.states.some(([state, code]) => state === 'waiting' && code === 3008)")
        stage.front.reset()
        stage.front.release()
        await even(page, counter)
        await nothing_fetched_again(page, counter)


@pytest.mark.parametrize(
    ("seed", "strikes"),
    [pytest.param(1, 4), *(pytest.param(seed, 25, marks=pytest.mark.full) for seed in (2, 3))],
)
async def test_any_sequence_of_strikes(stage: Stage, page: Page, seed: int, strikes: int) -> None:
    """A seeded draw of strikes, the application counting on: nothing missed, nothing twice, no resync."""
    rng = random.Random(seed)
    ways: dict[str, Callable[[], Awaitable[None]]] = {
        "cut": stage.cut,
        "hole": lambda: stage.blackhole(page),
        "kill A": lambda: stage.kill_gateway(stage.gateways[0]),
        "kill B": lambda: stage.kill_gateway(stage.gateways[1]),
        "drain A": lambda: stage.restart_gateway(stage.gateways[0]),
        "freeze": lambda: stage.freeze_redis(rng.uniform(0.2, 3)),
        "kill redis": lambda: stage.kill_redis(rng.uniform(0, 1)),
        "reload": lambda: reload(page),
    }
    # One of each kind before any comes again.
    order = [name for _ in range(1 + strikes // len(ways)) for name in rng.sample(sorted(ways), len(ways))][:strikes]
    done: list[str] = []
    async with Counter(stage, f"any-{seed}") as counter:
        await counter.open(page)
        async with counter.counting(0.005):
            for name in order:
                await ways[name]()
                done.append(name)
                await asyncio.sleep(rng.choice([0, 0.1, 0.5]))
        await live(page)
        try:
            await even(page, counter)
        except AssertionError as error:
            raise AssertionError(f"after {', '.join(done)}") from error
        assert await page.evaluate("page.resyncs") == 0


async def reload(page: Page) -> None:
    """The page comes back from its stored position. What it has counted it fetches, as pages do."""
    await page.reload()
