"""`tidings tail` and `tidings explain`, as processes against a real server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.fakes import Desk, entry, page, position
from tests.support.ports import free_port
from tests.support.sources import ROOT
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until_sync
from tidings import Publisher
from tidings_gateway.cli import run
from tidings_gateway.core.feed import Feed
from tidings_gateway.session import Session
from tidings_gateway.tail import HIGH_WATER_BYTES
from tidings_gateway.tail import Tail as SessionTail


class Tail:
    """One `tidings tail` whose lines go to a file, or to the pipe `to`."""

    def __init__(self, directory: Path, url: str, prefix: str, *arguments: str, to: int | None = None) -> None:
        self.directory = directory
        clean = {name: text for name, text in os.environ.items() if not name.startswith("TIDINGS_")}
        path = os.pathsep.join(str(ROOT / name) for name in ("publisher", "gateway"))
        environ = {"PYTHONPATH": path, "TIDINGS_REDIS_URL": url, "TIDINGS_PREFIX": prefix}
        environ |= {"TIDINGS_REDIS_TIMEOUT_MS": "500", "TIDINGS_CANARY_TIMEOUT_MS": "500"}
        with (directory / "out").open("wb") as out, (directory / "err").open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tidings", "tail", *arguments],
                env={**clean, **environ},
                stdin=subprocess.DEVNULL,
                stdout=out if to is None else to,
                stderr=err,
            )

    @property
    def lines(self) -> list[dict[str, Any]]:
        text = (self.directory / "out").read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    @property
    def told(self) -> str:
        return (self.directory / "err").read_text()

    def numbers(self) -> list[int]:
        return [line["data"] for line in self.lines if line["type"] == "event" and "id" in line]

    def until(self, count: int) -> list[int]:
        until_sync(lambda: len(self.numbers()) >= count, 20, f"{count} events (so far {self.told})")
        return self.numbers()

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(10)


@contextmanager
def tailing(directory: Path, url: str, prefix: str, *arguments: str, to: int | None = None) -> Iterator[Tail]:
    """Without `--from` or `--last` it begins where its first read finds the log, some time after it subscribed: a test
    that publishes to it says where to begin."""
    tail = Tail(directory, url, prefix, *arguments, to=to)
    try:
        yield tail
        assert "Traceback" not in tail.told
    finally:
        tail.process.kill()
        tail.process.wait()


Cli = Callable[..., tuple[int, str]]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, prefix: str) -> Cli:
    """One command in this process: exit code, and all it said."""

    # It is for a whole process: here it would silence the tests that come after.
    monkeypatch.setattr("tidings_gateway.telemetry.logs.setup_logging", lambda *_: None)

    def call(url: str, *arguments: str) -> tuple[int, str]:
        monkeypatch.setenv("TIDINGS_REDIS_URL", url)
        monkeypatch.setenv("TIDINGS_PREFIX", prefix)
        monkeypatch.setenv("TIDINGS_REDIS_TIMEOUT_MS", "1000")
        code = run(arguments)
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return code, said.out + said.err

    return call


def test_events_as_they_come_after_the_last_few(valkey: ValkeyProcess, prefix: str, tmp_path: Path) -> None:
    """One JSON object a line, as a page gets it; ephemeral ones too; Ctrl-C is the way to end it, and no failure."""
    with Publisher(valkey.url, prefix=prefix) as publisher:
        for number in range(1, 6):
            publisher.publish("ann", "n", number)
        publisher.publish("bob", "n", 99)
        with tailing(tmp_path, valkey.url, prefix, "ann", "--last", "2") as tail:
            assert tail.until(2) == [4, 5]
            assert all(line["replay"] for line in tail.lines)
            receipt = publisher.publish("ann", "n", 6)
            publisher.publish("ann", "progress", 50, ephemeral=True)
            until_sync(lambda: len(tail.lines) == 4, 10)
            sixth, progress = tail.lines[2:]
            assert (sixth["id"], sixth["event"], sixth["data"]) == (receipt.position, "n", 6)
            assert "replay" not in sixth
            assert (progress["event"], progress["data"]) == ("progress", 50)
            assert tail.end() == 0
            assert tail.told == ""


def test_from_a_position(valkey: ValkeyProcess, prefix: str, tmp_path: Path) -> None:
    """What follows it, and nothing twice; where that cannot be proved, a line that says so stands first."""
    with Publisher(valkey.url, prefix=prefix, log_max_events=5) as publisher:
        positions = [publisher.publish("ann", "n", number).position for number in range(1, 4)]
        with tailing(tmp_path, valkey.url, prefix, "ann", "--from", str(positions[0])) as tail:
            assert tail.until(2) == [2, 3]
            for number in range(4, 10):
                publisher.publish("ann", "n", number)
            assert tail.until(8) == list(range(2, 10))
            assert tail.end() == 0
        with tailing(tmp_path, valkey.url, prefix, "ann", "--from", str(positions[0])) as tail:
            until_sync(lambda: tail.lines, 20)
            assert [(line["type"], line["reason"], line["missed"]) for line in tail.lines] == [("resync", "trimmed", 8)]
            publisher.publish("ann", "n", 10)
            assert tail.until(1) == [10]


def test_it_outlives_its_redis(prefix: str, tmp_path: Path) -> None:
    """Killed and back: said in words on standard error, and the events go on without a hole. Emptied: a resync line."""
    with (
        ValkeyProcess("--appendonly", "yes", "--appendfsync", "always") as server,
        tailing(tmp_path, server.url, prefix, "ann", "--last", "3") as tail,
    ):
        with Publisher(server.url, prefix=prefix) as publisher:
            publisher.publish("ann", "n", 1)
            assert tail.until(1) == [1]
            server.restart(kill=True)
            publisher.publish("ann", "n", 2)
            publisher.publish("ann", "n", 3)
            assert tail.until(3) == [1, 2, 3]
        assert [line["type"] for line in tail.lines] == ["event"] * 3
        assert f"Redis at 127.0.0.1:{server.port}" in tail.told
        assert "trying again until it works" in tail.told
        server.cli("FLUSHALL")
        server.cli("CLIENT", "KILL", "TYPE", "pubsub")
        until_sync(lambda: tail.lines[-1]["type"] == "resync", 20)
        assert tail.lines[-1]["reason"] == "epoch"
        assert tail.end() == 0


def test_in_a_cluster(prefix: str, tmp_path: Path, cli: Cli) -> None:
    """A user's log lives in one slot; tail and explain find it through any node."""
    with Cluster() as cluster, Publisher(cluster.url, prefix=prefix) as publisher:
        first = publisher.publish("ann", "n", 1).position
        with tailing(tmp_path, cluster.url, prefix, "ann", "--last", "1") as tail:
            assert tail.until(1) == [1]
            publisher.publish("ann", "n", 2)
            assert tail.until(2) == [1, 2]
            assert tail.end() == 0
        assert "1 event came after it" in cli(cluster.url, "explain", str(first), "--user", "ann")[1]


def test_a_reader_that_stops_and_reads_on(valkey: ValkeyProcess, prefix: str, tmp_path: Path) -> None:
    """A pipe that is full stops neither the link to Redis nor the order of the lines: what did not fit comes out of the
    log. A reader that goes away ends it without complaint."""
    reading, writing = os.pipe()
    with tailing(tmp_path, valkey.url, prefix, "ann", "--last", "1000", to=writing) as tail:
        os.close(writing)
        with Publisher(valkey.url, prefix=prefix) as publisher:
            for number in range(800):
                publisher.publish("ann", "n", {"n": number, "pad": "x" * 1500})
            with os.fdopen(reading, "rb", closefd=False) as lines:
                told = [json.loads(lines.readline()) for _ in range(800)]
            assert [line["data"]["n"] for line in told] == list(range(800))
            assert tail.told == ""
            os.close(reading)
            publisher.publish("ann", "n", 800)
        assert tail.process.wait(10) == 0
        assert tail.told == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tail", "ann", "--from", "yesterday"], "'yesterday' is not a position"),
        (["tail", "ann", "--from", "epoch0001.1-2", "--last", "3"], "give one of them"),
        (["tail", "a nn"], "a nn"),
        (["explain", "epoch0001.1-2"], "--user"),
    ],
)
def test_wrong_use_is_said(cli: Cli, arguments: list[str], words: str) -> None:
    """Exit code 2, before Redis is asked."""
    code, text = cli("redis://127.0.0.1:1", *arguments)
    assert code == 2
    assert words in text


def test_explain(cli: Cli, valkey: ValkeyProcess, prefix: str) -> None:
    """Up to date, behind, no position at all, and no Redis to ask (exit code 1)."""
    with Publisher(valkey.url, prefix=prefix) as publisher:
        first, second = (publisher.publish("ann", "n", number).position for number in (1, 2))
    assert "1 event came after it" in cli(valkey.url, "explain", str(first), "--user", "ann")[1]
    code, text = cli(valkey.url, "explain", str(second), "--user", "ann")
    assert code == 0
    assert "up to date" in text
    assert "This is not a position" in cli(valkey.url, "explain", "x", "--user", "ann")[1]
    code, text = cli(f"redis://127.0.0.1:{free_port()}", "explain", str(first), "--user", "ann")
    assert code == 1
    assert "tidings: nothing listens at 127.0.0.1" in text


async def test_what_waits_for_a_reader_is_bounded(tmp_path: Path) -> None:
    """A pipe that nobody reads: no more lines are made than the bound, then a page; the rest stays in the log, and is
    read when there is room."""
    reading, writing = os.pipe()
    desk = Desk(queue_events=256, queue_bytes=262_144)
    tail = SessionTail(writing)
    feed = Feed(position(0), held_max_events=8, held_max_bytes=65_536)
    session = tail.session = Session(desk.hub, "ann", tail, feed, desk.limits)
    session.open()
    desk.confirm()
    await desk.bus.answer(page(0, 0))
    for seq in range(1, 2001):
        desk.hear(entry(seq, 1000))
    assert HIGH_WATER_BYTES < tail.lines.waiting_bytes < HIGH_WATER_BYTES + 2500
    assert session.queued_bytes < 262_144
    assert not feed.live
    os.close(reading)  # nobody ever will
    await asyncio.wait_for(tail.ended, 5)
    session.close()
    await tail.lines.close()
    os.close(writing)
