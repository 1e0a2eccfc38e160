"""`tidings demo` as a whole: what its page can do to it, and that nothing is missed and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.client import Client
from tests.support.ports import free_port
from tests.support.waiting import POLL_S, until


class Demo:
    """The running demo, seen as a browser sees it."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.output = directory / "output"
        clean = {name: text for name, text in os.environ.items() if not name.startswith("TIDINGS_")}
        with self.output.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tidings", "demo", "--port", str(self.port)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**clean, "PYTHONUNBUFFERED": "1"},
                cwd=directory,
            )
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = httpx.AsyncClient(base_url=self.url, timeout=10)

    @property
    def text(self) -> str:
        return self.output.read_text()

    async def ready(self) -> None:
        def up() -> bool:
            assert self.process.poll() is None, self.text
            return f"{self.url}/" in self.text

        await until(up, 40, "the demo is up")

    async def token(self) -> str:
        return str((await self.http.get("/demo/session")).json()["token"])

    async def state(self) -> dict[str, Any]:
        answer = await self.http.get("/demo/state")
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    async def gateways(self) -> dict[str, dict[str, Any]]:
        stage = (await self.http.get("/demo/stage")).json()
        return {gateway["name"]: gateway for gateway in stage["gateways"]}

    async def all_ready(self) -> None:
        async with asyncio.timeout(20):
            while any(gateway["state"] != "ready" for gateway in (await self.gateways()).values()):
                await asyncio.sleep(POLL_S)

    async def redis_answers(self) -> None:
        async with asyncio.timeout(10):
            while (await self.http.get("/demo/state")).status_code != 200:
                await asyncio.sleep(POLL_S)

    async def post(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self.http.post(f"/demo/{what}", json=body)
        assert answer.status_code < 300, answer.text
        result: dict[str, Any] = answer.json()
        return result

    def family(self) -> set[int]:
        """All processes below this one."""
        found, todo = set(), [self.process.pid]
        while todo:
            pid = todo.pop()
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                children = {int(child) for child in task.read_text().split()}
                todo += children
                found |= children
        return found


@pytest.fixture
async def demo(tmp_path: Path) -> AsyncIterator[Demo]:
    made = Demo(tmp_path)
    try:
        await made.ready()
        yield made
    finally:
        await made.http.aclose()
        if made.process.poll() is None:
            made.process.kill()
        made.process.wait()


@pytest.mark.full
@pytest.mark.timeout(180)
async def test_nothing_is_missed_whatever_the_buttons_do(demo: Demo) -> None:
    """A page stays connected through a deploy of both gateways, a kill -9 and a frozen Redis, while events are
    published: every one arrives, in order, once, without a resync, and its session says which gateway it is on."""
    token = await demo.token()
    async with Client(f"ws://127.0.0.1:{demo.port}/v1/ws", token) as client:
        await client.until_synced()
        assert client.welcomes[-1]["session"].split("-")[0] in ("A", "B")
        job = (await demo.post("jobs", {"seconds": 1}))["id"]
        await demo.post("burst", {"count": 500})
        events = await client.until_events(501, 20)
        assert sum(event.event == "burst.item" for event in events) == 500
        assert [event.data["id"] for event in events if event.event == "job.complete"] == [job]
        assert {frame["event"] for frame in client.ephemerals} == {"job.progress"}

        await demo.post("restart", {})
        published = 501
        while {name: gateway["starts"] for name, gateway in (await demo.gateways()).items()} != {"A": 2, "B": 2}:
            await demo.post("burst", {"count": 10})
            published += 10
            await asyncio.sleep(0.1)  # time: the pace of the publisher
        await client.until_events(published, 20)
        assert client.connections > 1, "the page was never moved"

        await demo.all_ready()
        here = client.welcomes[-1]["session"].split("-")[0]
        os.kill((await demo.gateways())[here]["pid"], signal.SIGKILL)
        await demo.post("burst", {"count": 10})
        published += 10
        await client.until_events(published, 20)
        await demo.all_ready()

        await demo.post("freeze", {"seconds": 1})
        await demo.redis_answers()
        await demo.post("burst", {"count": 10})
        published += 10
        await client.until_events(published, 20)
        assert (await demo.state())["published"] == published == len(client.events)
        client.check()
        assert client.resyncs == []


async def test_the_page_and_the_client_come_from_one_address(demo: Demo) -> None:
    """The page, its files, the client's modules and the socket: one origin, under a strict policy."""
    page = await demo.http.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for path in re.findall(r'(?:src|href)="(/[^"]+)"', page.text):
        answer = await demo.http.get(path)
        assert answer.status_code == 200, path
        imports = re.findall(r'from "(\.\.?/[^"]+)"', answer.text) if path.endswith(".js") else []
        for name in imports:
            assert (await demo.http.get(str(httpx.URL(path).join(name)))).status_code == 200, name
    assert (await demo.http.get("/livez")).json() == {"status": "alive"}
    refused = await demo.http.get("/v1/ws", headers={"origin": "https://evil.example"})
    assert refused.status_code == 403


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
async def test_it_ends_cleanly(demo: Demo, number: signal.Signals) -> None:
    """Exit code 0 within seconds, with a page connected and a job running; no process stays, not even a frozen one."""
    token = await demo.token()
    async with Client(f"ws://127.0.0.1:{demo.port}/v1/ws", token) as client:
        await client.until_synced()
        await demo.post("jobs", {"seconds": 60})
        await demo.post("freeze", {"seconds": 10})
        family = demo.family()
        assert len(family) >= 3
        demo.process.send_signal(number)
        await until(lambda: demo.process.poll() is not None, 20, "the demo has ended")
        assert demo.process.returncode == 0, demo.text
        assert "Traceback" not in demo.text
    left = [pid for pid in family if Path(f"/proc/{pid}/cmdline").exists()]
    assert left == []


async def test_it_leaves_nothing_behind_when_it_is_killed(demo: Demo) -> None:
    """kill -9: the gateways and Valkey end with it."""
    family = demo.family()
    demo.process.kill()
    demo.process.wait()
    await until(lambda: not [pid for pid in family if _alive(pid)], 10, "all its processes are gone")


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
