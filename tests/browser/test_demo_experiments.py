"""The demo page's buttons in a real browser: what each promises is shown, and the ledger stays even through it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, Route, expect

from tests.browser.demo_process import DemoProcess, ledger_is_even, open_page

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(120),
    pytest.mark.may_block(reason="the demo is another process"),
]


def outcome(page: Page, step: str) -> Locator:
    return page.locator(f'[data-step="{step}"] .outcome')


async def test_a_drain_can_be_watched(page: Page, demo: DemoProcess) -> None:
    """Restart my gateway: its tabs leave one by one, their places stay as rings, this tab goes on at the other gateway,
    and the step says so with nothing missing and nothing twice."""
    await open_page(page, demo.url)
    boxes = page.locator("#gateways li")
    await expect(boxes).to_have_count(2)
    mine = boxes.and_(page.locator("[data-here]"))
    name = (await mine.locator("h3").inner_text()).split()[-1]
    box = page.locator(f'#gateways li:has(h3:text-is("{name}"))')
    await expect(box.locator("i:not(.left)").nth(9)).to_be_attached(timeout=10_000)  # the crowd has come
    await page.locator("#restart").click()
    await expect(box).to_have_attribute("data-gateway", "draining", timeout=10_000)
    await page.locator("#burst").click()
    # In the middle of it: some have left and some have not.
    await expect(box.locator("i.left").nth(2)).to_be_attached(timeout=10_000)
    assert await box.locator("i:not(.left)").count() > 0
    await expect(box).to_have_attribute("data-gateway", "ready", timeout=30_000)
    await expect(outcome(page, "restart")).to_contain_text(f"{name} let its", timeout=15_000)
    await expect(outcome(page, "restart")).to_contain_text("nothing missing")
    assert await page.locator("#gateway").inner_text() != name
    await ledger_is_even(page, 1_000)


async def test_a_frozen_redis_is_told_and_costs_nothing(page: Page, demo: DemoProcess) -> None:
    """While Redis answers nobody the page says so, though its connection stands; a burst has no receipt, and is neither
    called stored nor lost; afterwards the page says how many were stored all the same, and the ledger is even."""

    async def for_a_shorter_time(route: Route) -> None:
        await route.continue_(post_data=json.dumps({"seconds": 5}))

    await page.route("**/demo/freeze", for_a_shorter_time)
    await open_page(page, demo.url)
    await page.locator("#freeze").click()
    await expect(page.locator('[data-step="freeze"] button')).to_have_attribute("aria-disabled", "true")
    await page.locator("#burst").click()
    await expect(page.locator("#state")).to_have_text("Live, but Redis does not answer", timeout=10_000)
    await expect(outcome(page, "burst")).to_contain_text("No receipt for", timeout=10_000)
    await expect(page.locator("#verdict")).to_have_attribute("data-verdict", "coming")
    await expect(page.locator("#state")).to_have_text("Live", timeout=20_000)
    await expect(outcome(page, "burst")).to_contain_text("the ledger is even", timeout=20_000)
    await expect(outcome(page, "freeze")).to_contain_text("nothing is missing", timeout=20_000)
    await ledger_is_even(page, int((await page.locator("#published").inner_text()).replace(",", "")))


async def test_a_resync_is_explained_until_it_is_no_longer_the_last(page: Page, demo: DemoProcess) -> None:
    """Before any, the answer is that there was none. After more was missed than the log keeps, it says what the
    position claimed, why the log could not continue it and what the page did. A new loss of the connection
    takes it away."""
    await open_page(page, demo.url)
    await page.locator("#explain").click()
    await expect(outcome(page, "explain")).to_contain_text("did not have to so far")
    assert await page.locator('[data-step="explain"][data-seen]').count() == 0
    await page.locator("#cut").click()
    await expect(page.locator("body")).to_have_attribute("data-state", "waiting")
    await expect(outcome(page, "explain")).to_be_hidden()
    for _ in range(2):
        assert (await page.request.post(f"{demo.url}demo/burst", data={"count": 1000})).ok
    await expect(page.locator("#log")).to_contain_text("resync (trimmed, 2,000 missed)", timeout=20_000)
    await ledger_is_even(page, 2_000)
    await expect(outcome(page, "cut")).to_contain_text("fetched its state", timeout=10_000)
    await page.locator("#explain").click()
    for words in ("The log keeps only a user's newest events", "(trimmed)", "It had missed 2,000 events"):
        await expect(outcome(page, "explain")).to_contain_text(words)
    await expect(page.locator("#tour")).to_have_text("2 of 6 seen")


async def test_the_end_of_the_demo_is_not_shown_as_a_fault_of_the_page(page: Page, tmp_path: Path) -> None:
    """After Ctrl-C: the page says that the demo itself is gone, what to do, and that its count is the last one."""
    with DemoProcess(tmp_path) as demo:
        await open_page(page, demo.url)
        demo.interrupt()
        await expect(page.locator("#state")).to_have_text("The demo has ended", timeout=30_000)
        await expect(page.locator("#state-words")).to_contain_text("start the demo again")
        await expect(page.locator("#verdict")).to_contain_text("The demo has ended")
        await expect(page.locator("#gateways .chip").first).to_have_text("down")
        await page.locator("#burst").click()
        await expect(outcome(page, "burst")).to_contain_text("Is the demo still running?")
