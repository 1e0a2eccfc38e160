"""The command line, called in this process (`cli`) or run as one of its own (`program`): fixtures for every test."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.support.waiting import until_sync

SECRET = "s" * 40
API_KEY = "k" * 40

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run one command in this process: exit code, standard output, standard error."""
    from tidings_gateway.cli import run  # late: most tests need no command line

    def call(*arguments: str, stdin: bytes = b"", **environ: str) -> tuple[int, str, str]:
        for name, text in environ.items():
            monkeypatch.setenv(name, text)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = run(arguments)
        output = capsys.readouterr()
        assert "Traceback" not in output.err
        return code, output.out, output.err

    return call


class Program:
    """`tidings …` as a process of its own, whose output can be waited for."""

    def __init__(self, directory: Path, *arguments: str, **environ: str) -> None:
        self.output = directory / f"output-{time.monotonic_ns()}"
        clean = {name: text for name, text in os.environ.items() if not name.startswith("TIDINGS_")}
        with self.output.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tidings", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**clean, "PYTHONUNBUFFERED": "1", **environ},
                cwd=directory,
            )

    @property
    def text(self) -> str:
        return self.output.read_text()

    def wait_for(self, pattern: str, deadline_s: float = 30) -> re.Match[str]:
        def found() -> re.Match[str] | None:
            match = re.search(pattern, self.text)
            if match is None and self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode}:\n{self.text}")
            return match

        match = until_sync(found, deadline_s, pattern)
        assert match is not None
        return match

    def end(self, number: signal.Signals = signal.SIGTERM, deadline_s: float = 30) -> int:
        self.process.send_signal(number)
        return self.process.wait(deadline_s)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Start a `Program`; what still runs at the end of the test is killed."""
    started: list[Program] = []

    def start(*arguments: str, **environ: str) -> Program:
        started.append(Program(tmp_path, *arguments, **environ))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def get(url: str, **headers: str) -> Any:
    with urlopen(Request(url, headers=headers), timeout=5) as answer:
        return json.loads(answer.read())


def status(url: str) -> str:
    """What a health route says of itself; while it is a refusal, its status code."""
    try:
        return str(get(url)["status"])
    except HTTPError as error:
        return f"not yet: {error.code}"
