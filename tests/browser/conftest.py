"""A real browser: Debian's chromium, driven by Playwright. One for each module: starting is slow."""

from __future__ import annotations

import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright

from tests.support.children import spawn
from tests.support.waiting import until

CHROMIUM = shutil.which("chromium")
_AT = re.compile(r"The demo is at (http://127\.0\.0\.1:[0-9]+/)")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The address of a running `tidings demo`; it must end with exit code 0 and without a traceback."""
    path: Path = tmp_path_factory.mktemp("demo") / "demo.log"
    with path.open("wb") as log:
        process = spawn([sys.executable, "-m", "tidings", "demo", "--port", "0"], log=log)
        try:
            await until(lambda: _AT.search(path.read_text()) or process.poll() is not None, 30, "the demo is there")
            found = _AT.search(path.read_text())
            assert found is not None, path.read_text()
            yield found[1]
        finally:
            process.send_signal(signal.SIGINT)
            await until(lambda: process.poll() is not None, 40, "the demo has ended")
    assert process.returncode == 0
    assert "Traceback" not in path.read_text()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    async with async_playwright() as playwright:
        arguments = [
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ]
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
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
