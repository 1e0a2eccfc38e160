"""nginx as a real process with the project's own `deploy/nginx.conf`: only addresses and places are other ones."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Self

import httpx
import pytest

from tests.support.children import spawn
from tests.support.ports import free_port
from tests.support.sources import ROOT
from tests.support.started import Started
from tests.support.waiting import until, until_sync

CONF = ROOT / "deploy" / "nginx.conf"

ASK_EVERY_S = 0.1

PAGES_PORT, PUBLISHERS_PORT = 8080, 8081
"""What the file listens on."""

_SERVER = re.compile(r"^ *server (\S+:\d+)( .*);$", re.MULTILINE)


def needs_nginx() -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")


class NginxProcess(Started):
    """In front of `gateways`, ports of 127.0.0.1. Takes pages on `port`, publishers on `publishers_port`."""

    def __init__(self, gateways: Sequence[int]) -> None:
        self.port, self.publishers_port = free_port(), free_port()
        self.directory = Path(tempfile.mkdtemp(prefix="tidings-nginx-"))
        self.conf = self.directory / "nginx.conf"
        self.conf.write_text(self._substituted(gateways))
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ws_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/ws"

    @property
    def publishers_url(self) -> str:
        return f"http://127.0.0.1:{self.publishers_port}"

    @property
    def log(self) -> str:
        """What it wrote to standard output and standard error: the access log, and the error logs."""
        path = self.directory / "nginx.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _substituted(self, gateways: Sequence[int]) -> str:
        text = CONF.read_text()
        servers = _SERVER.findall(text)
        assert servers, "no gateway in nginx.conf"
        options = servers[0][1]
        lines = "\n".join(f"        server 127.0.0.1:{port}{options};" for port in gateways)
        first, last = [match.span() for match in _SERVER.finditer(text)][:: len(servers) - 1 or 1]
        text = text[: first[0]] + lines + text[last[1] :]
        for theirs, ours in ((PAGES_PORT, self.port), (PUBLISHERS_PORT, self.publishers_port)):
            assert text.count(f"listen {theirs} ") == 1
            text = text.replace(f"listen {theirs} ", f"listen 127.0.0.1:{ours} ")
        return text.replace(" /tmp/", f" {self.directory}/")

    def command(self, *extra: str) -> list[str]:
        # Root's nginx would hand its workers to a user who may not enter this directory.
        user = " user root;" if os.geteuid() == 0 else ""
        return ["nginx", "-p", str(self.directory), "-c", str(self.conf), "-g", f"daemon off;{user}", *extra]

    def start(self, deadline_s: float = 10) -> Self:
        assert self._process is None, "already started"
        self._log = (self.directory / "nginx.log").open("ab")
        self._process = spawn(self.command(), log=self._log, cwd=self.directory)
        until_sync(self._listens, deadline_s, "nginx listens")
        return self

    def _listens(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"nginx ended with {self._process.returncode}:\n{self.log[-4000:]}")
        # Written when the ports are bound.
        return (self.directory / "nginx.pid").exists()

    async def reload(self, deadline_s: float = 10) -> None:
        """SIGHUP; returns when new workers have taken over from the old ones."""
        assert self._process is not None, "not started"
        before = self._workers()
        self._process.send_signal(signal.SIGHUP)

        def replaced() -> bool:
            new = self._workers() - before
            return len(new) >= len(before) and all(self._retired(pid) for pid in before)

        await until(replaced, deadline_s, "new workers of nginx")

    async def takes_back(self, port: int, deadline_s: float = 10) -> None:
        """Returns when requests go to that gateway again: for a while after a failure it gets none (`fail_timeout`), so
        that nobody is there should the others leave now. It must be the one with the fewest connections."""
        before = len(self.log)
        async with httpx.AsyncClient(trust_env=False) as http, asyncio.timeout(deadline_s):
            while f'"gateway":"127.0.0.1:{port}"' not in self.log[before:]:
                await http.get(f"{self.url}/tidings.js")
                await asyncio.sleep(ASK_EVERY_S)

    def _workers(self) -> set[int]:
        assert self._process is not None
        pid = self._process.pid
        return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))

    @staticmethod
    def _retired(pid: int) -> bool:
        """It says so in its title, or is gone."""
        try:
            return b"shutting down" in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return True

    def close(self) -> None:
        """Stop it at once, and remove its files."""
        process, self._process = self._process, None
        try:
            if process is not None:
                process.terminate()
                process.wait(10)
        finally:
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
            if self._log is not None:
                self._log.close()
            shutil.rmtree(self.directory, ignore_errors=True)
