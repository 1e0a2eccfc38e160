"""What `tidings dev` prints, done by the letter: its script tag in a page, its command in a shell."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import sys
from pathlib import Path

import pytest
from playwright.async_api import Page

from tests.support.children import spawn
from tests.support.waiting import POLL_S, until


@pytest.mark.asyncio(loop_scope="module")
async def test_the_printed_page_shows_the_printed_event(page: Page, tmp_path: Path) -> None:
    """In a page on another port of localhost, the script tag shows the event that the printed command sends."""
    output = tmp_path / "dev.log"
    with output.open("wb") as log:
        process = spawn([sys.executable, "-m", "tidings", "dev", "--port", "0"], log=log)
    try:
        await until(lambda: "listening on" in output.read_text() or process.poll() is not None, 30, "it listens")
        text = output.read_text()
        script = re.search(r"<script.*?</script>", text, re.DOTALL)
        command = re.search(r"curl .*?\n.*?\n.*?'\n", text, re.DOTALL)
        assert script is not None, text
        assert command is not None, text

        document = f"<!doctype html><body>{script[0]}</body>".encode()

        async def serve_page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(asyncio.IncompleteReadError):  # a connection that the browser made in advance
                await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/html\r\n")
            writer.write(b"content-length: %d\r\n\r\n%b" % (len(document), document))
            await writer.drain()
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(serve_page, "127.0.0.1", 0)
        async with server:
            await page.goto(f"http://localhost:{server.sockets[0].getsockname()[1]}/")
        shown = page.locator("body", has_text='job.complete {"id":7}')

        async def shown_once_published() -> int:
            # An event sent before the page is connected is not shown to it: it is in the state the page begins with.
            curl = await asyncio.create_subprocess_exec("bash", "-c", quiet, stdout=asyncio.subprocess.DEVNULL)
            assert await curl.wait() == 0
            return await shown.count()

        quiet = command[0].replace("curl", "curl -sS", 1)
        async with asyncio.timeout(20):
            while not await shown_once_published():
                await asyncio.sleep(POLL_S)
    finally:
        process.send_signal(signal.SIGINT)
        await until(lambda: process.poll() is not None, 30, "it has ended")
    assert process.returncode == 0
