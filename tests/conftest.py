"""Fixtures and house rules for every test."""

from __future__ import annotations

import asyncio
import inspect
import os
import secrets
import time
from collections.abc import AsyncIterator, Iterator

import pytest
from blockbuster import BlockBuster
from hypothesis import HealthCheck, settings

from tests.support.children import children
from tests.support.commandline import cli as cli
from tests.support.commandline import program as program
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import POLL_S

for _name in [name for name in os.environ if name.startswith("TIDINGS_")]:
    del os.environ[_name]  # A developer's own settings must not decide how the tests end.

# `HYPOTHESIS_PROFILE=full` searches twenty times longer. Tests that set their own `max_examples` should multiply by
# `settings().max_examples // 100` to follow the profile.
settings.register_profile(
    "test", max_examples=100, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("full", settings.get_profile("test"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "test"))

LEFTOVER_GRACE_S = 2.0
"""How long after its end a test's child processes and tasks may take to go away."""

_HELPERS = ("resource_tracker", "forkserver")
"""Children that belong to Python's own multiprocessing and stay for the whole run."""


@pytest.fixture(scope="session")
def valkey() -> Iterator[ValkeyProcess]:
    """A running server for this worker, shared by all its tests: keep to your `prefix`, never flush, stop or freeze it.

    A test that harms its server makes its own `ValkeyProcess`.
    """
    with ValkeyProcess() as server:
        yield server


@pytest.fixture
def prefix() -> str:
    """A key prefix that no other test uses."""
    return f"t-{secrets.token_hex(6)}"


@pytest.fixture(autouse=True)
def _no_child_left_over() -> Iterator[None]:
    before = set(children())
    yield
    end = time.monotonic() + LEFTOVER_GRACE_S
    while left := {pid: command for pid, command in children().items() if pid not in before}:
        left = {pid: command for pid, command in left.items() if not any(name in command for name in _HELPERS)}
        if not left:
            return
        if time.monotonic() > end:
            pytest.fail(f"child processes left over: {left}")
        time.sleep(POLL_S)


@pytest.fixture
async def _no_task_left_over() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    own = asyncio.current_task()
    end = time.monotonic() + LEFTOVER_GRACE_S
    while left := {task for task in asyncio.all_tasks() - before if task is not own}:
        if time.monotonic() > end:
            pytest.fail(f"tasks left over: {sorted(map(repr, left))}")
        await asyncio.sleep(POLL_S)


@pytest.fixture
def _no_blocking_call() -> Iterator[None]:
    """A call of our code that blocks the event loop fails the test. What a test itself does is not watched."""
    guard = BlockBuster(scanned_modules=["tidings", "tidings_gateway"])
    guard.activate()
    try:
        yield
    finally:
        guard.deactivate()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "may_block(reason): our own code may block the event loop in this test")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            # First in the list: set up before, and torn down after, everything the test asks for itself.
            names = ["_no_task_left_over"]
            if item.get_closest_marker("may_block") is None:
                names.append("_no_blocking_call")
            item.fixturenames[:0] = names


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a skipped test is a failure: what is not run is not known to work."""
    if not os.environ.get("CI") or hasattr(session.config, "workerinput"):
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and reporter.stats.get("skipped") and session.exitstatus == pytest.ExitCode.OK:
        reporter.write_line("CI=true: skipped tests count as failures", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
