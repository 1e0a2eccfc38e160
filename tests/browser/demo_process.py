"""One `tidings demo` for all tests of a file: its gateways take longer to start than most of the tests take."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

from playwright.async_api import Page, expect

from tests.support.children import spawn
from tests.support.waiting import until_sync

_AT = re.compile(r"The demo is at (http://127\.0\.0\.1:[0-9]+/)")


class DemoProcess:
    """A context manager. It must end with exit code 0 and without a traceback, also when a test ended it itself."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "demo.log"
        self.url = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._interrupted = False

    def __enter__(self) -> DemoProcess:
        with self._path.open("wb") as log:
            self._process = spawn([sys.executable, "-m", "tidings", "demo", "--port", "0"], log=log)
        process = self._process
        until_sync(lambda: _AT.search(self.text) or process.poll() is not None, 40, "the demo is there")
        found = _AT.search(self.text)
        assert found is not None, self.text
        self.url = found[1]
        return self

    @property
    def text(self) -> str:
        return self._path.read_text()

    def interrupt(self) -> None:
        """Ctrl-C, once: a second one would cut the end short, and say so by its exit code."""
        assert self._process is not None
        if not self._interrupted:
            self._interrupted = True
            self._process.send_signal(signal.SIGINT)

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        process = self._process
        self.interrupt()
        until_sync(lambda: process.poll() is not None, 40, "the demo has ended")
        assert process.returncode == 0, self.text
        assert "Traceback" not in self.text


async def open_page(page: Page, url: str) -> None:
    await page.goto(url)
    await expect(page.locator("body")).to_have_attribute("data-state", "live", timeout=15_000)


async def ledger_is_even(page: Page, published: int) -> None:
    """That many were published, all are here, none is missing and none came twice."""
    for name, value in (("published", published), ("received", published), ("missing", 0), ("twice", 0)):
        await expect(page.locator(f"#{name}")).to_have_text(f"{value:,}", timeout=20_000)
