"""healthcheck.py: asks where the gateway listens."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.support.ports import free_port
from tests.support.sources import ROOT


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response({"/livez": 200, "/push/livez": 200}.get(self.path, 404))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def port() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def _check(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "http_proxy": "http://127.0.0.1:9", **settings}
    command = [sys.executable, "-I", str(ROOT / "deploy" / "healthcheck.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=10, env=environ)


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1", "localhost"])
@pytest.mark.parametrize("base", ["", "/push"])
def test_zero_when_it_answers(port: int, host: str, base: str) -> None:
    """On any form of TIDINGS_LISTEN, below TIDINGS_BASE_PATH, whatever proxy the container is told to use."""
    done = _check(TIDINGS_LISTEN=f"{host}:{port}", TIDINGS_BASE_PATH=base)
    assert (done.returncode, done.stderr) == (0, "")


def test_one_when_it_answers_something_else(port: int) -> None:
    """Somebody else's server on the port is not the gateway."""
    done = _check(TIDINGS_LISTEN=f"127.0.0.1:{port}", TIDINGS_BASE_PATH="/elsewhere")
    assert done.returncode == 1
    assert "404" in done.stderr


def test_another_path(port: int) -> None:
    """`/readyz`, for whoever rolls; the server of this test has none."""
    done = _check("/readyz", TIDINGS_LISTEN=f"127.0.0.1:{port}")
    assert done.returncode == 1
    assert "/readyz" in done.stderr


@pytest.mark.parametrize("host", ["127.0.0.1", "[::]"])
def test_one_when_nobody_answers(host: str) -> None:
    """In one line, without a traceback."""
    done = _check(TIDINGS_LISTEN=f"{host}:{free_port()}")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
