"""The README works as it is written: its quickstart is run, file by file and command by command."""

from __future__ import annotations

import functools
import http.server
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.markdown import Document, blocks
from tests.support.children import spawn
from tests.support.ports import free_port
from tests.support.sources import ROOT
from tests.support.waiting import until_sync

README = Document("README.md")
QUICKSTART = README.section("Quickstart")


def _file(language: str) -> str:
    return next(block.text for block in blocks(QUICKSTART) if block.language == language)


def _commands() -> list[str]:
    return [line for block in blocks(QUICKSTART) if block.language == "sh" for line in block.text.splitlines()]


def _exported() -> dict[str, str]:
    """What the reader has set, over all terminals."""
    settings = [line.removeprefix("export ") for line in _commands() if line.startswith("export ")]
    return dict(setting.split("=", 1) for setting in settings)


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def environ() -> dict[str, str]:
    return {**os.environ, **_exported()}


@pytest.fixture
def gateway(port: int, environ: dict[str, str], tmp_path: Path) -> Iterator[None]:
    """`make dev`, on a port of our own."""
    log = tmp_path / "dev.log"
    command = [sys.executable, "-m", "tidings", "dev", "--port", str(port)]
    with log.open("wb") as output:
        process = spawn(command, log=output, env=environ)
        try:
            until_sync(lambda: f"listening on http://127.0.0.1:{port}" in log.read_text(), 15, "the gateway")
            yield
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(15) == 0, log.read_text()


def _run(command: str, environ: dict[str, str], directory: Path) -> str:
    command = command.replace(".venv/bin/", f"{Path(sys.executable).parent}/")
    done = subprocess.run(command, shell=True, env=environ, cwd=directory, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _command(name: str) -> str:
    return next(line for line in _commands() if name in line)


def test_quickstart(gateway: None, port: int, environ: dict[str, str], tmp_path: Path) -> None:
    """A reader who saves the two files and types the commands sees the worker's event in the page."""
    from playwright.sync_api import sync_playwright

    folder = tmp_path / "quickstart"
    folder.mkdir()
    (folder / "index.html").write_text(_file("html").replace("127.0.0.1:8080", f"127.0.0.1:{port}"))
    (folder / "worker.py").write_text(_file("python").replace("127.0.0.1:8080", f"127.0.0.1:{port}"))
    _run(_command("tidings token"), environ, tmp_path)
    with _served(folder) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        frames: list[str] = []
        page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: frames.append(str(frame))))
        page.goto(address)

        def synced() -> bool:
            page.wait_for_timeout(10)  # the events of a page come while it is waited for
            return any("synced" in frame for frame in frames)

        until_sync(synced, 15)
        assert _run(_command("worker.py"), environ, tmp_path).strip()
        page.wait_for_selector("li")
        assert page.inner_text("#jobs") == "job.complete: Report 7"
        browser.close()


class _served:
    """`python3 -m http.server`, on a port of our own."""

    def __init__(self, folder: Path) -> None:
        handler = functools.partial(_Quiet, directory=str(folder))
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> str:
        self._thread.start()
        return f"http://localhost:{self._server.server_address[1]}/"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def test_make_targets_exist() -> None:
    """Every `make` command in the documents is a target of the Makefile."""
    makefile = (ROOT / "Makefile").read_text()
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        for word in _words_after_make((ROOT / name).read_text()):
            assert f"\n{word}:" in makefile, f"{name}: make {word}"


def _words_after_make(text: str) -> set[str]:
    return set(re.findall(r"(?:^ *|`)make ([a-z-]+)", text, re.MULTILINE))
