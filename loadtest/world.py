"""The world of `make storm`: a Valkey server and gateways of its own, all of it gone afterwards."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from loadtest.waiting import until
from tidings_gateway.embedded import EmbeddedValkey, die_with_parent, free_port

START_S = 20.0
STOP_S = 40.0
"""Longer than a whole drain, grace and window with the defaults."""


class Gateway:
    """One `tidings serve` on a port that it keeps over restarts."""

    def __init__(self, name: str, environ: dict[str, str], directory: Path) -> None:
        self.name = name
        self.port = free_port()
        self._environ = {**environ, "TIDINGS_LISTEN": f"127.0.0.1:{self.port}", "TIDINGS_GATEWAY_NAME": name}
        self._log = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def ws_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/ws"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def start(self) -> None:
        """Returns when it takes connections. Raises `RuntimeError` with what it said."""
        with self._log.open("ab") as log:
            begin = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tidings", "serve"],
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C must reach us first, so that the end is in order.
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )
        if not until(lambda: not self.running or "listening on" in self.log[begin:], START_S) or not self.running:
            raise RuntimeError(f"gateway {self.name} did not start:\n{self.log[-2000:]}")

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None and self.running:
            self._process.send_signal(number)

    def wait(self) -> int | None:
        """Its exit code; None when it does not end."""
        until(lambda: not self.running, STOP_S)
        return self._process.poll() if self._process is not None else None

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait()


class World:
    """A context manager."""

    def __init__(self, gateways: int = 2) -> None:
        self.secret = secrets.token_hex(32)
        self._stack = contextlib.ExitStack()
        self._directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="tidings-storm-")))
        self._valkey = EmbeddedValkey()
        self._count = gateways
        self.gateways: list[Gateway] = []

    @property
    def redis_url(self) -> str:
        return self._valkey.url

    @property
    def urls(self) -> list[str]:
        return [gateway.ws_url for gateway in self.gateways]

    def __enter__(self) -> World:
        try:
            self._stack.enter_context(self._valkey)
            inherited = {name: text for name, text in os.environ.items() if not name.startswith("TIDINGS_")}
            environ = {
                **inherited,
                "TIDINGS_REDIS_URL": self.redis_url,
                "TIDINGS_JWT_SECRET": self.secret,
                "TIDINGS_API_KEY": secrets.token_hex(32),
                "TIDINGS_ADMIN_LISTEN": "",
            }
            for number in range(self._count):
                gateway = Gateway(f"gateway{number + 1}", environ, self._directory)
                self._stack.callback(gateway.kill)
                gateway.start()
                self.gateways.append(gateway)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def complaints(self) -> Iterator[str]:
        """Tracebacks in what the gateways printed."""
        for gateway in self.gateways:
            if (at := gateway.log.find("Traceback (most recent call last)")) >= 0:
                yield f"{gateway.name}: {gateway.log[at : at + 500]}"
