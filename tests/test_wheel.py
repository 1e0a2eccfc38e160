"""The package as it is installed: what is in it, what it brings, and that it works from pip alone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.support.waiting import until_sync

ROOT = Path(__file__).resolve().parent.parent

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(directory), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = directory.glob("*.whl")
    return made


def install(directory: Path, requirement: str) -> Path:
    """A new environment with nothing but this; returns its bin directory."""
    venv.create(directory, with_pip=True)
    python = str(directory / "bin" / "python")
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return directory / "bin"


def test_the_wheel_holds_what_runs_and_nothing_else(wheel: Path) -> None:
    """Both packages, the scripts for Redis, the browser client with every module it imports, and the demo page."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        client = {name: archive.read(name).decode() for name in names if name.endswith(".js")}
    for name in ("tidings/py.typed", "tidings/log/append.lua", "tidings/log/read.lua", "tidings_gateway/py.typed"):
        assert name in names
    assert "tidings_gateway/web/demo/index.html" in names
    for name, text in client.items():
        for imported in re.findall(r"""from "(\.\.?/[^"]+)\"""", text):
            # The page's modules are served below /demo/, the client's at the root: the same as their directories.
            assert os.path.normpath(f"{os.path.dirname(name)}/{imported}") in names, f"{name} imports {imported}"
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"tidings", "tidings_gateway"}
    assert not [name for name in names if "test" in name or "node_modules" in name or name.endswith(".pyc")]


def test_the_base_install_is_light(wheel: Path, tmp_path: Path) -> None:
    """A worker that publishes gets redis and orjson, and a command that says what it lacks."""
    binaries = install(tmp_path / "venv", str(wheel))
    listed = subprocess.check_output([binaries / "python", "-m", "pip", "list", "--format", "json"], text=True)
    packages = {package["name"].lower() for package in json.loads(listed)} - {"pip", "setuptools"}
    assert packages - {"async-timeout"} == {"tidings", "redis", "orjson"}
    done = subprocess.run([binaries / "tidings", "dev"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "tidings[gateway]" in done.stderr


def test_dev_and_demo_work_from_pip_alone(wheel: Path, tmp_path: Path) -> None:
    """In a clean environment, in an empty directory: an event is published, the client and the page are served."""
    binaries = install(tmp_path / "venv", f"tidings[dev] @ {wheel.as_uri()}")
    empty = tmp_path / "empty"
    empty.mkdir()
    environ = {"PATH": str(binaries), "HOME": str(empty), "PYTHONUNBUFFERED": "1"}
    for command, ready in (("dev", r"listening on (http://\S+)"), ("demo", r"demo is at (http://\S+)/ ")):
        output = empty / command
        with output.open("wb") as file:
            process = subprocess.Popen(
                [binaries / "tidings", command, "--port", "0"],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environ,
                cwd=empty,
            )
        try:
            url = _wait_for(process, output, ready)
            with urlopen(f"{url}/tidings.js", timeout=10) as script:
                assert b"class Tidings" in script.read()
            with urlopen(f"{url}/tidings.d.ts", timeout=10) as types:
                assert b"class Tidings" in types.read()
            if command == "demo":
                with urlopen(f"{url}/", timeout=10) as page:
                    assert page.headers["content-security-policy"]
            else:
                key = _wait_for(process, output, r"Bearer ([\w-]+)")
                headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
                body = b'{"user":"anna","event":"hello","data":1}'
                with urlopen(Request(f"{url}/v1/publish", body, headers), timeout=10) as answer:
                    assert json.loads(answer.read())["id"]
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0, output.read_text()
        finally:
            process.kill()
            process.wait()


def _wait_for(process: subprocess.Popen[bytes], output: Path, pattern: str) -> str:
    def found() -> re.Match[str] | None:
        assert process.poll() is None, output.read_text()
        return re.search(pattern, output.read_text())

    match = until_sync(found, 60, pattern)
    assert match is not None
    return match[1]
