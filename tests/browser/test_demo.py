"""The main job in a real browser; the page's own ledger is the oracle."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.browser.demo_process import DemoProcess, ledger_is_even, open_page

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(120),
    pytest.mark.may_block(reason="the demo is another process"),
]


async def test_a_job_is_reported_by_push(page: Page, demo: DemoProcess) -> None:
    """Start it, see its progress and its result, without a poll."""
    await open_page(page, demo.url)
    await page.get_by_role("button", name="Job of 3 seconds").click()
    await expect(page.locator("#jobs li")).to_have_count(1)
    await expect(page.locator("#jobs li").first).to_contain_text("done", ignore_case=True, timeout=15_000)
    await ledger_is_even(page, 1)


async def test_what_was_missed_is_replayed_once(page: Page, demo: DemoProcess) -> None:
    """Cut the connection, publish a thousand, come back: all of them, marked as replayed, once, and no resync."""
    await open_page(page, demo.url)
    await page.locator("#cut").click()
    await expect(page.locator("body")).not_to_have_attribute("data-state", "live")
    await page.locator("#burst").click()
    await expect(page.locator("body")).to_have_attribute("data-state", "live", timeout=20_000)
    await ledger_is_even(page, 1000)


async def test_a_frozen_page_is_exact_or_told_and_never_blocked_for_long(page: Page, demo: DemoProcess) -> None:
    """Frozen as browsers freeze background tabs, 2,000 events published, thawed: everything there once, or a gap said
    outright and the state fetched; the page's thread is never held for 200 ms at a time (Ylianst/MeshCentral #6179)."""
    await open_page(page, demo.url)
    await page.evaluate(
        """() => {
            window.longest = 0;
            new PerformanceObserver((list) => {
                for (const entry of list.getEntries()) window.longest = Math.max(window.longest, entry.duration);
            }).observe({ type: "longtask" });
        }"""
    )
    cdp = await page.context.new_cdp_session(page)
    await cdp.send("Page.setWebLifecycleState", {"state": "frozen"})
    for _ in range(2):
        answer = await page.request.post(f"{demo.url}demo/burst", data={"count": 1000})
        assert answer.ok
    await cdp.send("Page.setWebLifecycleState", {"state": "active"})
    await expect(page.locator("body")).to_have_attribute("data-state", "live", timeout=30_000)
    await expect(page.locator("#missing")).to_have_text("0", timeout=30_000)
    await expect(page.locator("#twice")).to_have_text("0")
    assert await page.evaluate("window.longest") < 200
