"""What a page goes through while its gateway is well: a trimmed log, a refused origin, a token that needs care."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import ConsoleMessage, Page, WebSocket

from tests.browser.stage import Counter, Stage, even, live, wait_for
from tests.support.gateway import FAST_DRAIN
from tests.support.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

RETENTION = 20
KEPT = "JSON.parse(localStorage.getItem(location.pathname)).position"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage() -> AsyncIterator[Stage]:
    # The heartbeat is as shipped: what is found out sooner here is not found out by silence.
    async with Stage(gateways=("A",), settings=FAST_DRAIN) as stage:
        yield stage


async def left_behind(stage: Stage, counter: Counter, page: Page) -> str:
    """The page is cut off while more is published than the log keeps. Returns the position it had until then."""
    await counter.count(5)
    await wait_for(page, "page.last === 5")
    position = await page.evaluate("tidings.position")
    stage.front.refuse()
    stage.front.reset()
    await counter.count(RETENTION + 10)
    stage.front.refuse(False)
    assert isinstance(position, str)
    return position


async def test_a_trimmed_log_means_a_fetch(stage: Stage, page: Page) -> None:
    """load() is called once, its state is shown, and the count goes on from there."""
    async with Counter(stage, "trimmed", max_events=RETENTION) as counter:
        await counter.open(page)
        before = await left_behind(stage, counter, page)
        await wait_for(page, "page.resyncs === 1 && tidings.state === 'live'")
        assert await page.evaluate("tidings.position") != before
        await counter.count(5)
        await even(page, counter)
        assert counter.states_served == 2


async def test_a_failed_fetch_leaves_no_hole(stage: Stage, page: Page) -> None:
    """The fetch fails twice, events go on, and the page is closed in between: what it has stored is its position from
    before the hole. So the page after it finds the same hole, and only a fetch that succeeds moves the position."""
    async with Counter(stage, "failing", max_events=RETENTION) as counter:
        await counter.open(page)
        counter.state_fails = 1_000
        before = await left_behind(stage, counter, page)
        await wait_for(page, "page.errors.filter(([code]) => code === 'load').length >= 2")
        await counter.count()
        await wait_for(page, f"page.last === {counter.last}")
        assert await page.evaluate(f"[tidings.position, {KEPT}, tidings.state]") == [before, before, "loading"]

        again = await page.context.new_page()
        await page.close()
        await counter.open(again, wait=False)
        await wait_for(again, "page.errors.some(([code]) => code === 'load')")
        assert await again.evaluate(f"[tidings.position, {KEPT}, tidings.state]") == [before, before, "loading"]
        counter.state_fails = 0
        await live(again)
        assert await again.evaluate("tidings.position") != before
        await counter.count(5)
        await even(again, counter)
        assert await again.evaluate(f"tidings.position === {KEPT}")
        await again.close()


async def test_no_hole_at_the_first_load(stage: Stage, page: Page) -> None:
    """A first fetch that fails leaves no position at all; the page says live only when it has its state."""
    async with Counter(stage, "first", max_events=RETENTION) as counter:
        await counter.count(3)
        counter.state_fails = 1_000
        await counter.open(page, wait=False)
        await wait_for(page, "page.errors.some(([code]) => code === 'load')")
        assert await page.evaluate("[tidings.position, tidings.state, localStorage.length]") == [None, "loading", 0]
        counter.state_fails = 0
        await live(page)
        assert await page.evaluate("page.last") == 3


async def test_a_refused_origin_is_told_in_words(stage: Stage, page: Page) -> None:
    """A browser tells a page nothing of a refused upgrade; the client asks, and names the origin and the setting."""
    said: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        if message.type == "warning":
            said.append(message.text)

    page.on("console", hear)
    async with Counter(stage, "stranger") as counter:
        await counter.open(page, wait=False, host="localhost")
        await wait_for(page, "page.errors.length > 0")
        code, message = await page.evaluate("page.errors[0]")
        assert code == "refused"
        assert f"http://localhost:{stage.site.port}" in message
        assert "TIDINGS_ALLOWED_ORIGINS" in message
        assert await page.evaluate("tidings.state") != "stopped"

        await page.evaluate("tidings.close(), tidings.onerror = undefined, tidings.connect()")
        await until(lambda: said, 10, "the console has the same words")
        assert said[0] == f"tidings: {message}"


SHOWN = "document.dispatchEvent(new Event('visibilitychange'))"


async def test_shown_again(stage: Stage, page: Page) -> None:
    """The network goes away without a word while nobody looks. A page that is shown again asks the gateway, and has
    another connection long before 30 s of silence are over; one that is there answers (gbasin/agentboard PR #65)."""
    answers: list[str | bytes] = []

    def listen(socket: WebSocket) -> None:
        socket.on("framereceived", lambda text: answers.append(text))

    page.on("websocket", listen)
    async with Counter(stage, "shown") as counter:
        await counter.open(page)
        # Shown again and again: until it has been silent for long enough to be asked, nothing happens.
        await page.evaluate(f"setInterval(() => {SHOWN}, 100)")
        await until(lambda: any('"type":"auth"' in str(text) for text in answers), 15, "the gateway has answered")
        assert await page.evaluate("page.states.at(-1)[0]") == "live"

        stage.front.blackhole()
        await counter.count(3)
        since = await page.evaluate("performance.now()")
        await wait_for(page, "page.states.some(([state, code]) => state === 'waiting' && code === 3008)")
        assert await page.evaluate("performance.now()") - since < 20_000
        stage.front.reset()
        stage.front.release()
        await even(page, counter)


async def test_into_the_browser_s_cache_and_back(stage: Stage, page: Page) -> None:
    """Left for another page and come back to: out of the browser's cache, as it was, with one new connection, and what
    it missed, once (reflex-dev/reflex PR #3540)."""
    async with Counter(stage, "back") as counter, Counter(stage, "elsewhere") as other:
        await counter.open(page)
        await page.evaluate("mark = 'the same page'")
        await other.open(page)
        await counter.count(10)
        await page.go_back(wait_until="commit")  # a page that was never gone is not loaded again
        await even(page, counter)
        why_not = "JSON.stringify(performance.getEntriesByType('navigation')[0].notRestoredReasons)"
        assert await page.evaluate("window.mark") == "the same page", await page.evaluate(why_not)
        ends = [code for state, code in await page.evaluate("page.states") if state == "waiting"]
        assert ends == [1000]
        assert counter.states_served == 1
