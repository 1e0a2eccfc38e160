"""The rules that `tests/conftest.py` lays on every test turn red when they are broken."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.sources import ROOT

BAD_TESTS = """
import asyncio, subprocess, time
import pytest

def test_leaves_a_child():
    test_leaves_a_child.process = subprocess.Popen(["sleep", "60"])

def test_ends_it():
    test_leaves_a_child.process.kill()
    test_leaves_a_child.process.wait()

async def test_leaves_a_task():
    test_leaves_a_task.task = asyncio.create_task(asyncio.sleep(60))

async def test_blocks_the_loop():
    import tidings.blocking
    tidings.blocking.nap()

@pytest.mark.may_block("the loop is not the subject")
async def test_may_block():
    import tidings.blocking
    tidings.blocking.nap()

def test_is_fine():
    pass

@pytest.mark.skip("for the test")
def test_is_skipped():
    pass
"""


def _run(directory: Path, *arguments: str, ci: bool = False) -> subprocess.CompletedProcess[str]:
    (directory / "test_bad.py").write_text(BAD_TESTS)
    (directory / "plugin.py").write_text(
        "import sys, types, time, tidings\n"
        "module = types.ModuleType('tidings.blocking')\n"
        "code = compile('import time\\ndef nap(): time.sleep(0.001)', tidings.__path__[0] + '/blocking.py', 'exec')\n"
        "exec(code, module.__dict__)\n"
        "sys.modules['tidings.blocking'] = tidings.blocking = module\n"
    )
    env = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("PYTEST_")}
    paths = [str(directory), str(ROOT), str(ROOT / "publisher"), str(ROOT / "gateway")]
    env |= {"PYTHONPATH": os.pathsep.join(paths), **({"CI": "true"} if ci else {})}
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "plugin", "-o", "asyncio_mode=auto"]
    command += ["-p", "no:cacheprovider", "-rA", "--rootdir", str(directory), *arguments, "test_bad.py"]
    return subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_what_is_left_over_or_blocks_fails_the_test(tmp_path: Path) -> None:
    """A child process, a task, and a blocking call of our code each fail the test that caused them, and no other."""
    output = _run(tmp_path).stdout
    assert "child processes left over" in output
    assert "tasks left over" in output
    assert "BlockingError" in output
    for name in ("test_ends_it", "test_may_block", "test_is_fine"):
        assert f"PASSED test_bad.py::{name}" in output, output
    assert "FAILED test_bad.py::test_blocks_the_loop" in output, output
    for name in ("test_leaves_a_child", "test_leaves_a_task"):
        assert f"ERROR test_bad.py::{name}" in output, output


def test_a_skip_is_a_failure_in_ci(tmp_path: Path) -> None:
    """With CI=true the run fails when a test was skipped, and only then."""
    in_ci = _run(tmp_path, "-k", "test_is", ci=True)
    assert in_ci.returncode == 1
    assert "skipped tests count as failures" in in_ci.stdout
    assert _run(tmp_path, "-k", "test_is_fine", ci=True).returncode == 0
