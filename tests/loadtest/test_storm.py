"""`make storm` and locust itself, each as a process of its own: gevent changes the whole process it is in."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.support.gateway import GatewayProcess
from tests.support.ports import free_port
from tests.support.sources import ROOT
from tests.support.tokens import API_KEY, SECRET
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until


async def ran(tmp_path: Path, *command: str, **env: str) -> tuple[int | None, str]:
    """Its exit code and what it printed."""
    output = tmp_path / "output"
    with output.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", *command, stdout=log, stderr=log, cwd=ROOT, env={**os.environ, **env}
        )
        try:
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    return process.returncode, output.read_text()


@pytest.mark.timeout(120)
async def test_a_small_storm(tmp_path: Path) -> None:
    """Every connection of 40 pages is reset while events flow: all back, all caught up, nothing lost, nothing twice."""
    code, text = await ran(tmp_path, "loadtest", "--users", "40", "--connect-per-s", "40", "--steady-s", "1")
    assert code == 0, text
    assert "40 connections were reset; 40 pages left and were back" in text
    assert "lost 0, repeated 0" in text
    assert text.rstrip().endswith("\nOK")


@pytest.mark.full
@pytest.mark.timeout(400)
@pytest.mark.parametrize("strike", ["cut", "drain", "kill", "both"])
async def test_the_storm(tmp_path: Path, strike: str) -> None:
    """`make storm` with 500 pages, in each of its ways."""
    code, text = await ran(tmp_path, "loadtest", "--strike", strike)
    assert code == 0, text


async def test_locust_against_a_deployment(valkey: ValkeyProcess, prefix: str, tmp_path: Path) -> None:
    """`locust -f loadtest/locustfile.py --host ws://…` with a secret and an API key: it runs to its verdict."""
    async with GatewayProcess(valkey.url, prefix=prefix) as gateway:
        code, text = await ran(
            tmp_path,
            *("locust", "-f", "loadtest/locustfile.py", "--headless", "--users", "10", "--spawn-rate", "10"),
            *("--host", gateway.ws_url.removesuffix("/v1/ws"), "--publish-url", gateway.url, "--steady-s", "0.5"),
            TIDINGS_JWT_SECRET=SECRET,
            TIDINGS_API_KEY=API_KEY,
        )
    assert code == 0, text
    assert "10 connections were reset" in text
    assert "lost 0, repeated 0" in text


@pytest.mark.full
@pytest.mark.timeout(120)
async def test_two_workers_and_a_master(valkey: ValkeyProcess, prefix: str, tmp_path: Path) -> None:
    """Each worker judges its own pages of its own users; the master has every verdict, and its exit code is theirs."""
    locust = ("locust", "-f", "loadtest/locustfile.py")
    port = str(free_port())
    async with GatewayProcess(valkey.url, prefix=prefix) as gateway:
        env = {"TIDINGS_JWT_SECRET": SECRET, "TIDINGS_API_KEY": API_KEY}
        flags = ("--host", gateway.ws_url.removesuffix("/v1/ws"), "--publish-url", gateway.url, "--steady-s", "0.5")
        runs = [
            ran(
                tmp_path / "master",
                *(*locust, "--master", "--master-bind-port", port, "--expect-workers", "2", "--headless"),
                *("--users", "10", "--spawn-rate", "10", *flags),
                **env,
            ),
            *(ran(tmp_path / name, *locust, "--worker", "--master-port", port, **env) for name in ("one", "other")),
        ]
        for name in ("master", "one", "other"):
            (tmp_path / name).mkdir()
        (code, text), *_ = await asyncio.gather(*runs)
    assert code == 0, text
    assert text.count("5 connections were reset") == 2, text
    assert text.count("lost 0, repeated 0") == 2, text
    assert "2 of 2 workers are well\nOK" in text


async def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    """In the middle of a run: exit code 130, no traceback, and its servers are gone with it."""
    output = tmp_path / "output"
    with output.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "loadtest", "--users", "5", stdout=log, stderr=log, cwd=ROOT, start_new_session=True
        )
        await until(lambda: "pages are live" in output.read_text(), 30)
        process.send_signal(signal.SIGINT)
        code = await asyncio.wait_for(process.wait(), 20)
    assert code == 130, output.read_text()
    assert "Traceback" not in output.read_text()


@pytest.mark.full
async def test_a_store_that_forgets_costs_a_refetch(prefix: str, tmp_path: Path) -> None:
    """All data goes away under pages that nobody strikes: each is told to refetch, does so, and what was acknowledged
    is then in its state or handed over."""
    output = tmp_path / "output"
    with ValkeyProcess() as valkey:
        async with GatewayProcess(valkey.url, prefix=prefix) as gateway:
            running = asyncio.create_task(
                ran(
                    tmp_path,
                    *("locust", "-f", "loadtest/locustfile.py", "--headless", "--users", "10", "--spawn-rate", "10"),
                    *("--host", gateway.ws_url.removesuffix("/v1/ws"), "--publish-url", gateway.url),
                    *("--strike", "none", "--strikes", "0", "--steady-s", "2", "--rate", "50"),
                    TIDINGS_JWT_SECRET=SECRET,
                    TIDINGS_API_KEY=API_KEY,
                )
            )
            try:
                await until(lambda: output.exists() and "10 pages are live" in output.read_text(), 30)
                valkey.cli("FLUSHALL")
                code, text = await running
            finally:
                running.cancel()
    assert code == 0, text
    assert "lost 0, repeated 0" in text
    assert "told to refetch 0" not in text


async def test_locust_without_a_secret_says_so(tmp_path: Path) -> None:
    """A sentence and exit code 1, instead of pages that fail one after the other."""
    code, text = await ran(
        tmp_path,
        *("locust", "-f", "loadtest/locustfile.py", "--headless", "--users", "1", "--host", "ws://127.0.0.1:1"),
        TIDINGS_JWT_SECRET="",
    )
    assert code == 1, text
    assert "TIDINGS_JWT_SECRET is needed" in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(["--rate", "0"], "--rate"), (["--strike", "hail"], "--strike")],
)
async def test_a_wrong_flag_is_named(tmp_path: Path, arguments: list[str], named: str) -> None:
    """Exit code 2 and a sentence, before anything is started."""
    code, text = await ran(tmp_path, "loadtest", *arguments)
    assert code == 2, text
    assert named in text
    assert "Traceback" not in text
