"""A gateway as a real process: `python -m tidings serve`, told everything by its environment."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from tests.support.children import spawn
from tests.support.ports import free_port
from tests.support.tokens import API_KEY, SECRET
from tests.support.waiting import until, until_sync

ROOT = Path(__file__).parents[2]

_LISTENING = re.compile(r"listening on http://([0-9.]+):([0-9]+)")
_METRICS = re.compile(r"metrics on (http://[0-9.]+:[0-9]+)/metrics")
_COMPLAINTS = ("Traceback (most recent call last)", "was never retrieved", "was never awaited", "Exception in callback")

ASK_EVERY_S = 0.02

FAST_DRAIN = {"TIDINGS_DRAIN_GRACE_MS": "200", "TIDINGS_DRAIN_WINDOW_MS": "1000", "TIDINGS_RETRY_MS": "500"}
"""A whole drain in about a second, for tests that are not about its length."""


class GatewayProcess:
    """One `tidings serve`. The port is chosen here and kept over restarts; with `port=0` the kernel chooses it.

    `env` names settings in full (`TIDINGS_QUEUE_EVENTS`); a value of None takes the variable away.
    """

    def __init__(
        self,
        redis_url: str,
        *,
        prefix: str = "tidings",
        env: Mapping[str, str | None] | None = None,
        name: str = "gateway",
        port: int | None = None,
    ) -> None:
        self.name = name
        self.port = free_port() if port is None else port
        self.directory = Path(tempfile.mkdtemp(prefix="tidings-gateway-"))
        self.settings: dict[str, str | None] = {
            "TIDINGS_REDIS_URL": redis_url,
            "TIDINGS_PREFIX": prefix,
            "TIDINGS_JWT_SECRET": SECRET,
            "TIDINGS_API_KEY": API_KEY,
            **(env or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._started_at = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ws_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/ws"

    @property
    def admin_url(self) -> str:
        """Where /metrics is, as its log says (at the level info)."""
        found = _METRICS.search(self.log, self._started_at)
        assert found, "the log does not say where /metrics is"
        return found[1]

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """Everything it printed, over all starts."""
        path = self.directory / "gateway.log"
        return path.read_text(errors="replace") if path.exists() else ""

    # Starting

    async def start(self, deadline_s: float = 20, *, ready: bool = True) -> GatewayProcess:
        """Returns when it takes connections and, unless `ready` is off, has reached its Redis (`/readyz`)."""
        self.launch()
        await until(self._listens, deadline_s, f"{self.name} listens")
        if ready:
            await until(self._ready, deadline_s, f"{self.name} has reached Redis", every_s=ASK_EVERY_S)
        return self

    async def _ready(self) -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            path = f"{self.settings.get('TIDINGS_BASE_PATH') or ''}/readyz"
            writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
            return (await reader.readline()).startswith(b"HTTP/1.1 200")
        finally:
            writer.close()

    def start_sync(self, deadline_s: float = 20) -> GatewayProcess:
        self.launch()
        until_sync(self._listens, deadline_s, f"{self.name} listens")
        return self

    def launch(self) -> None:
        """Start the process and do not wait."""
        assert not self.running, "already started"
        self._close_log()
        self._log = (self.directory / "gateway.log").open("ab")
        self._started_at = self._log.tell()
        env = {name: value for name, value in os.environ.items() if not name.startswith("TIDINGS_")}
        env |= {"PYTHONUNBUFFERED": "1", "PYTHONPATH": f"{ROOT / 'publisher'}{os.pathsep}{ROOT / 'gateway'}"}
        settings = {"TIDINGS_LISTEN": f"127.0.0.1:{self.port}", "TIDINGS_ADMIN_LISTEN": "127.0.0.1:0", **self.settings}
        env |= {name: value for name, value in settings.items() if value is not None}
        self._process = spawn([sys.executable, "-m", "tidings", "serve"], log=self._log, env=env, cwd=self.directory)

    def _listens(self) -> bool:
        found = _LISTENING.search(self.log, self._started_at)
        if found:
            self.port = int(found[2])
            return True
        if not self.running:
            assert self._process is not None
            raise RuntimeError(f"{self.name} ended with {self._process.returncode}:\n{self.log[-4000:]}")
        return False

    # Ending

    def sigterm(self) -> None:
        self.signal(signal.SIGTERM)

    def signal(self, number: int) -> None:
        assert self._process is not None, "not started"
        self._process.send_signal(number)

    def freeze(self) -> None:
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """`kill -9`, waited for."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
        self._close_log()

    async def wait_exit(self, deadline_s: float = 30) -> int:
        """The exit code (negative: killed by that signal). Raises `NotReached` when it is still running."""
        process = self._process
        assert process is not None, "not started"
        await until(lambda: process.poll() is not None, deadline_s, f"{self.name} ends", every_s=0.02)
        self._close_log()
        return process.returncode

    async def stop(self, deadline_s: float = 30) -> int:
        """SIGTERM and wait."""
        self.sigterm()
        return await self.wait_exit(deadline_s)

    async def close(self, *, check: bool = True) -> None:
        """End it whatever it does, remove its files, and fail on a traceback in its log unless `check` is off."""
        log = ""
        try:
            if self.running:
                self.thaw()
                self.sigterm()
                self.sigterm()  # The second signal skips the drain.
                await self.wait_exit(10)
        finally:
            self.kill()
            log = self.log
            shutil.rmtree(self.directory, ignore_errors=True)
        if check:
            assert_quiet(log, self.name)

    async def __aenter__(self) -> GatewayProcess:
        try:
            return await self.start()
        except BaseException:
            await self.close(check=False)
            raise

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            print(f"--- log of {self.name} ---\n{self.log[-8000:]}")  # pytest shows it with the failure
        await self.close(check=kind is None)

    def _close_log(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    # Looking inside

    def rss_bytes(self) -> int:
        """Resident memory now."""
        fields = Path(f"/proc/{self.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

    def descriptors(self) -> int:
        """Open file descriptors now."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def cpu_s(self) -> float:
        """User and system time used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def assert_quiet(self) -> None:
        assert_quiet(self.log, self.name)


def assert_quiet(log: str, name: str = "gateway") -> None:
    """No traceback and no forgotten task or coroutine in what a process printed."""
    for complaint in _COMPLAINTS:
        if (at := log.find(complaint)) >= 0:
            raise AssertionError(f"{complaint!r} in the log of {name}:\n{log[max(0, at - 500) : at + 4000]}")


async def gather_exits(*gateways: GatewayProcess, deadline_s: float = 30) -> list[int]:
    """The exit codes of several gateways that are on their way out."""
    return list(await asyncio.gather(*(gateway.wait_exit(deadline_s) for gateway in gateways)))
