"""The end of a server: a real process, real signals, and peers of every kind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from tests.server.serving import serving
from tests.support.children import spawn
from tests.support.rawsocket import Ended, RawSocket, upgrade_request
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
FAST = {"drain_grace_ms": 100, "drain_window_ms": 500, "drain_settle_ms": 300, "drain_stop_ms": 600}
TOTAL_S = 1.5
"""All of `FAST` together. What a test measures beside it is the machine's own slowness."""
COMPLAINTS = ("Traceback", "never retrieved", "never awaited", "Exception in", "Error")


class Process:
    def __init__(self, directory: Path, **told: Any) -> None:
        self._path = directory / "log"
        self._file = self._path.open("wb")
        self.settings = {"port": 0, **FAST, **told.pop("settings", {})}
        command = [sys.executable, "-m", "tests.server.program", json.dumps({"settings": self.settings, **told})]
        self._process = spawn(command, log=self._file, cwd=ROOT)
        self.port = 0

    @property
    def log(self) -> str:
        return self._path.read_text()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ws(self, path: str = "/v1/ws") -> str:
        return f"ws://127.0.0.1:{self.port}{path}"

    async def says(self, text: str) -> None:
        await until(lambda: text in self.log or self._process.poll() is not None, 20, f"the process says {text!r}")
        assert text in self.log, self.log

    async def started(self) -> Process:
        await self.says("listening on")
        found = re.search(r"listening on http://127\.0\.0\.1:(\d+)$", self.log, re.MULTILINE)
        assert found is not None
        self.port = int(found[1])
        return self

    def signal(self, number: int = signal.SIGTERM) -> None:
        self._process.send_signal(number)

    async def exit_code(self, within_s: float) -> int:
        """The process ends within so many seconds (and some for a busy machine)."""
        started = time.monotonic()
        await until(lambda: self._process.poll() is not None, within_s + 5, "the process ends")
        assert time.monotonic() - started < within_s + 1.5, self.log
        assert isinstance(self._process.returncode, int)
        return self._process.returncode

    async def ended_well(self, within_s: float = TOTAL_S) -> None:
        assert await self.exit_code(within_s) == 0, self.log
        assert not [word for word in COMPLAINTS if word in self.log], self.log

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._file.close()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Any]:
    """Starts a process told what to do; it does not outlive the test."""
    made: list[Process] = []

    def start(**told: Any) -> Process:
        directory = tmp_path / str(len(made))
        directory.mkdir()
        made.append(Process(directory, **told))
        return made[-1]

    yield start
    for process in made:
        process.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_everybody_gets_a_close_frame(processes: Any, number: int) -> None:
    """SIGTERM or SIGINT with 100 sockets: each gets its goodbye and then 1012 with a reason, spread over the window;
    exit code 0, nothing but information in the log (Kludex/uvicorn #1344)."""
    process = await processes().started()
    clients = [await connect(process.ws(), ping_interval=None) for _ in range(100)]
    moments: list[float] = []

    async def see_off(client: Any) -> None:
        word, moment = (await client.recv()).split()
        assert word == "goodbye"
        moments.append(float(moment))
        await client.wait_closed()
        assert (client.close_code, client.close_reason) == (1012, "draining")

    process.signal(number)
    await asyncio.gather(*(see_off(client) for client in clients))
    await process.ended_well()
    assert max(moments) - min(moments) > 0.25, "not spread"
    assert "stopped" in process.log


async def test_handshakes_under_way(processes: Any) -> None:
    """SIGTERM between upgrade and answer: 503 with Retry-After; between accept and attach: 1012. Never a reset."""
    process = await processes().started()
    async with await RawSocket.tcp(process.url) as waiting, await RawSocket.tcp(process.url) as accepted:
        await waiting.send_bytes(upgrade_request(process.ws("/wait")))
        await accepted.send_bytes(upgrade_request(process.ws("/wait-after")))
        assert await accepted.response() == 101
        process.signal()
        assert await waiting.response() == 503
        assert "retry-after" in waiting.headers
        assert await waiting.recv_end() is False
    assert await process.exit_code(TOTAL_S) == 0
    assert "Traceback" not in process.log


async def test_peers_that_never_answer(processes: Any) -> None:
    """Peers that neither read nor answer, with full buffers, half of them mid-handshake or mid-request: the process
    still ends in its time, with 0."""
    process = await processes(settings={"close_timeout_ms": 60_000}).started()
    silent = [await RawSocket.connect(process.ws(), receive_buffer=4096) for _ in range(20)]
    for raw in silent[:10]:
        for _ in range(6):
            await raw.send_text("x" * 8000)  # echoed into a buffer that nobody empties
    idle = [await RawSocket.tcp(process.url) for _ in range(3)]
    await idle[0].send_bytes(upgrade_request(process.ws())[:-1])
    await idle[1].send_bytes(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n")
    process.signal()
    assert await process.exit_code(TOTAL_S) == 0
    assert "Traceback" not in process.log
    for raw in silent + idle:
        raw.close()


async def test_the_listener_stays(processes: Any) -> None:
    """In the grace newcomers are served; in the window they get 503 with Retry-After, and plain requests an answer."""
    process = await processes(settings={"drain_grace_ms": 400, "drain_window_ms": 3000}).started()
    stays = await RawSocket.connect(process.ws("/wait-after"))  # keeps the window open
    process.signal()
    await process.says("readiness is off")
    async with connect(process.ws(), ping_interval=None) as newcomer:
        await process.says("letting go of")
        async with await RawSocket.connect(process.ws(), expect=503) as refused:
            assert refused.headers["retry-after"] == "5"
        async with await RawSocket.tcp(process.url) as plain:
            await plain.send_bytes(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert await plain.response() == 200
            assert plain.headers["connection"] == "close"
        await newcomer.wait_closed()
        assert newcomer.close_code == 1012
    stays.close()
    process.signal()
    await process.exit_code(3)


async def test_requests_are_served_to_the_end(processes: Any) -> None:
    """A request under way at SIGTERM is answered in full if it ends in time, else with 503; a begun answer that does
    not end is cut off. None of them holds the process up."""
    process = await processes().started()
    raws = [await RawSocket.tcp(process.url) for _ in range(3)]
    for raw, path in zip(raws, ("/sleep", "/wait", "/endless"), strict=True):
        await raw.send_bytes(b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n" % path.encode())
    assert await raws[2].response() == 200
    process.signal()
    assert await raws[0].response() == 200
    assert raws[0].headers["connection"] == "close"
    await raws[0].body()
    assert await raws[1].response() == 503
    with pytest.raises(Ended):
        await raws[2].body()
    assert await process.exit_code(TOTAL_S) == 0
    assert "Traceback" not in process.log
    for raw in raws:
        raw.close()


async def test_answers_are_flushed(processes: Any) -> None:
    """An answer that is complete, but not yet read by its client, is not cut off."""
    process = await processes(settings={"drain_window_ms": 5000}).started()
    async with await RawSocket.tcp(process.url) as raw:
        await raw.send_bytes(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        assert await raw.response() == 200
        process.signal()
        await process.says("letting go of")
        await asyncio.sleep(1)  # time: longer than everything that follows the window
        assert len(await raw.body()) == 8_000_000
    await process.ended_well()


@pytest.mark.parametrize("numbers", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT)])
async def test_second_signal(processes: Any, numbers: tuple[int, int]) -> None:
    """A second signal ends the process at once, with 1, whatever the drain is doing; no traceback."""
    process = await processes(settings={"drain_grace_ms": 60_000, "drain_window_ms": 60_000}).started()
    raws = [await RawSocket.connect(process.ws()) for _ in range(3)]
    process.signal(numbers[0])
    await process.says("readiness is off")
    process.signal(numbers[1])
    assert await process.exit_code(0.5) == 1
    assert not [word for word in COMPLAINTS if word in process.log], process.log
    assert "stopped" in process.log
    for raw in raws:
        await raw.recv_end()
        raw.close()


async def test_third_signal(processes: Any) -> None:
    """A third signal does not even wait for the application's own shutdown."""
    process = await processes(shutdown="hang", settings={"drain_grace_ms": 60_000}).started()
    process.signal()
    await process.says("readiness is off")
    process.signal()
    await process.says("stopping")
    process.signal()
    assert await process.exit_code(0.3) == 1


async def test_signal_while_starting(processes: Any) -> None:
    """SIGTERM before the application has started: no drain, exit code 0 as soon as it has, or has had its time."""
    slow, hanging = processes(startup=0.3), processes(startup="hang")
    for process in (slow, hanging):
        await process.says("starting")
        process.signal()
    await slow.ended_well()
    await hanging.ended_well()
    for process in (slow, hanging):
        assert "listening on" not in process.log
        assert "draining" not in process.log


@pytest.mark.parametrize("shutdown", ["hang", "fail"])
async def test_application_that_does_not_shut_down(processes: Any, shutdown: str) -> None:
    """An application that hangs or fails in its own shutdown does not hold the process up; the exit code says so."""
    process = await processes(shutdown=shutdown).started()
    process.signal()
    assert await process.exit_code(TOTAL_S) == 1


async def test_application_that_blocks_the_loop(processes: Any) -> None:
    """Even a blocked event loop ends in its time."""
    process = await processes(shutdown="block").started()
    process.signal()
    assert await process.exit_code(TOTAL_S + 0.5) == 1
    assert "did not end within" in process.log


async def test_port_in_use(processes: Any) -> None:
    """A port that is taken: exit code 1, and the log says why."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process = processes(settings={"port": taken.getsockname()[1]})
        assert await process.exit_code(10) == 1
    assert "in use" in process.log


async def test_application_that_does_not_start(processes: Any) -> None:
    """A failing start-up: exit code 1."""
    process = processes(startup="fail")
    assert await process.exit_code(10) == 1
    assert "as told" in process.log


async def test_uvicorn_is_told_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """What uvicorn would take from the environment does not count."""
    monkeypatch.setenv("WEB_CONCURRENCY", "7")
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    async with serving() as served:
        config = served.server.config
        assert config.workers == 1
        assert config.forwarded_allow_ips == "127.0.0.1,::1"
        assert config.ws_protocol_class is None


async def test_send_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """SO_SNDBUF is on every connection when asked for, and the kernel's own otherwise."""
    sizes = []
    for asked in (0, 20_000):
        async with serving(send_buffer_bytes=asked) as served, await RawSocket.connect(served.ws()):
            handlers = served.app.handlers
            await until(handlers.__len__)
            sock = handlers[0].socket._transport.get_extra_info("socket")
            sizes.append(sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))
    assert sizes[0] > 60_000
    assert sizes[1] == 40_000  # the kernel doubles it, for its own book-keeping (socket(7))


async def test_stop_from_within() -> None:
    """`stop()` is the first signal, for a program that embeds the server."""
    async with serving(drain_grace_ms=0, drain_window_ms=50) as served:
        async with connect(served.ws()) as client:
            served.server.stop()
            await client.wait_closed()
            assert client.close_code == 1012
        await until(lambda: not served.server.servers[0].is_serving())
    assert served.server.exit_code in (0, 1)  # the fixture ends it by force


def test_nothing_is_printed_but_the_line() -> None:
    """Standard output holds the `listening on` line that programs wait for, in the form they look for, IPv6 too."""
    code = (
        "import sys, threading, os, signal\n"
        "from tests.server.program import Program\n"
        "from tidings_gateway.server.draining import Draining\n"
        "from tidings_gateway.server.server import GatewayServer\n"
        "from tidings_gateway.server.settings import ServerSettings\n"
        "class App(Program):\n"
        "    async def __call__(self, scope, receive, send):\n"
        "        for kind in ('startup', 'shutdown'):\n"
        "            await receive(); await send({'type': f'lifespan.{kind}.complete'})\n"
        "            if kind == 'startup': threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()\n"
        "settings = ServerSettings(host='::1', port=0, drain_grace_ms=0, drain_window_ms=0)\n"
        "sys.exit(GatewayServer(App(0, 0), settings, Draining()).run_process())\n"
    )
    with contextlib.closing(socket.socket(socket.AF_INET6)) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("no IPv6 here")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"listening on http://\[::1\]:\d+\n", done.stdout)
    assert done.stderr == ""
