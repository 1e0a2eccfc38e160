"""A real browser: Debian's chromium, driven by Playwright. One for each module: starting is slow."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright

from tests.browser.demo_process import DemoProcess

CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoProcess]:
    """A running `tidings demo`."""
    with DemoProcess(tmp_path_factory.mktemp("demo")) as demo:
        yield demo


ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=ARGUMENTS,
            # Playwright turns the cache off into which pages go when they are left. We want to see them come back.
            ignore_default_args=["--disable-back-forward-cache"],
        )
        try:
            yield browser
        finally:
            await browser.close()


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Browser) -> AsyncIterator[Page]:
    """A new tab with nothing stored. An error that a script of ours did not catch fails the test."""
    context = await browser.new_context(viewport={"width": 1440, "height": 1000})
    errors: list[str] = []
    context.on("weberror", lambda error: errors.append(str(error.error)))
    yield await context.new_page()
    await context.close()
    assert errors == []
