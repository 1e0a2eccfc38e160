"""`tidings serve` and `tidings dev`: what they need, what they say, and how they end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.support.children import children
from tests.support.commandline import API_KEY, SECRET, Cli, Program, get, status
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until_sync
from tidings.log.position import Position


class TestServe:
    def test_it_refuses_to_start_without_secrets(self, program: Callable[..., Program]) -> None:
        """Otherwise anybody could connect as anybody. In words, exit code 2."""
        started = program("serve")
        assert started.process.wait(30) == 2
        assert "TIDINGS_JWT_SECRET: is not set" in started.text
        assert "TIDINGS_JWT_PUBLIC_KEY" in started.text
        assert "TIDINGS_API_KEY: is not set" in started.text
        assert "Traceback" not in started.text

    @pytest.mark.parametrize(
        ("arguments", "environ", "words"),
        [
            ([], {"TIDINGS_HEARTBEAT": "1"}, "did you mean TIDINGS_HEARTBEAT_MS?"),
            (["--listen", "nowhere"], {}, "TIDINGS_LISTEN='nowhere': expected HOST:PORT"),
            (["--page-events", "900"], {}, "TIDINGS_PAGE_EVENTS (900) is more than TIDINGS_QUEUE_EVENTS (256)"),
            (["--jwt-secret-file", "/nowhere"], {}, "TIDINGS_JWT_SECRET_FILE='/nowhere': cannot be read"),
            ([], {"TIDINGS_API_KEY": "short-canary"}, "TIDINGS_API_KEY: item 1 is 12 bytes long"),
        ],
    )
    def test_bad_settings_are_told_in_words(
        self, cli: Cli, arguments: list[str], environ: dict[str, str], words: str
    ) -> None:
        """Which variable, which value, why; exit code 2; no secret is repeated."""
        code, _, err = cli("serve", *arguments, **environ)
        assert code == 2
        assert words in err
        assert "canary" not in err

    def test_flags_win_and_it_serves_until_sigterm(
        self, program: Callable[..., Program], valkey: ValkeyProcess, tmp_path: Path
    ) -> None:
        """Secrets from files, the rest from flags; `listening on` when it can take connections; exit code 0."""
        for name, text in (("jwt", SECRET), ("api", API_KEY)):
            (tmp_path / name).write_text(text + "\n")
        started = program(
            "serve",
            *("--listen", "127.0.0.1:0", "--redis-url", valkey.url, "--drain-grace-ms", "0"),
            *("--drain-window-ms", "100", "--jwt-secret-file", str(tmp_path / "jwt")),
            *("--api-key-file", str(tmp_path / "api")),
            TIDINGS_REDIS_URL="redis://127.0.0.1:1",
            TIDINGS_API_KEY="x" * 40,
        )
        url = started.wait_for(r"listening on (http://127\.0\.0\.1:\d+)")[1]
        assert get(f"{url}/livez") == {"status": "alive"}
        until_sync(lambda: "ready" in status(f"{url}/readyz"), what="/readyz says ready")
        assert "position" in get(f"{url}/v1/position?user=anna", Authorization=f"Bearer {API_KEY}")
        assert started.end() == 0
        assert "Traceback" not in started.text
        assert SECRET not in started.text
        assert API_KEY not in started.text

    def test_a_taken_port_is_exit_code_1(self, program: Callable[..., Program]) -> None:
        """In words: which address, and that it is taken."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            started = program(
                "serve", "--listen", f"127.0.0.1:{port}", TIDINGS_JWT_SECRET=SECRET, TIDINGS_API_KEY=API_KEY
            )
            assert started.process.wait(30) == 1
        assert str(port) in started.text
        assert "in use" in started.text
        assert "Traceback" not in started.text


class TestDev:
    def test_what_it_prints_works_as_it_is(self, program: Callable[..., Program], tmp_path: Path) -> None:
        """From an empty directory and environment: the printed command publishes, the printed Python too, and the
        printed token connects."""
        started = program("dev", "--port", "0")
        url = started.wait_for(r"listening on (http://127\.0\.0\.1:\d+)")[1]
        until_sync(lambda: "ready" in status(f"{url}/readyz"), what="/readyz says ready")
        text = started.text
        command = re.search(r"curl .*?\n.*?\n.*?'\n", text, re.DOTALL)
        assert command is not None
        answer = json.loads(subprocess.check_output(["bash", "-c", command.group().replace("curl", "curl -sS", 1)]))
        assert Position.parse(answer["id"]).seq == 1
        code = re.search(r"from tidings import Publisher\n.*\n", text)
        assert code is not None
        lines = "\n".join(line.strip() for line in code.group().splitlines())
        subprocess.run([sys.executable, "-c", lines], check=True, cwd=tmp_path)
        key = re.search(r"Bearer ([\w-]+)", text)
        assert key is not None
        position = get(f"{url}/v1/position?user=anna", Authorization=f"Bearer {key[1]}")["position"]
        assert Position.parse(position).seq == 2
        module = re.search(r'from "(http\S+/tidings\.js)"', text)
        assert module is not None
        with urlopen(module[1], timeout=5) as script:
            assert script.headers["content-type"].startswith("text/javascript")
        assert started.end(signal.SIGINT) == 0
        assert "Traceback" not in started.text

    def test_a_taken_port_is_passed_over(self, program: Callable[..., Program]) -> None:
        """Two projects on one machine are normal; what is printed is the port in use, and that it is another: a page
        made for the wanted one would talk to somebody else."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            started = program("dev", "--port", str(port))
            chosen = started.wait_for(r"listening on http://127\.0\.0\.1:(\d+)")[1]
            assert int(chosen) > port
            assert f"http://127.0.0.1:{chosen}/tidings.js" in started.text
            assert f"Port {port} is taken, so this is on {chosen}." in started.text
            started.end()

    def test_it_says_which_secrets_are_made_up(self, program: Callable[..., Program]) -> None:
        """And that they change at every start; one that was set is not called made up."""
        started = program("dev", "--port", "0")
        started.wait_for("listening on")
        assert "TIDINGS_JWT_SECRET and TIDINGS_API_KEY are made up, anew at every start" in started.text
        assert "is taken" not in started.text
        started.end()
        started = program("dev", "--port", "0", TIDINGS_JWT_SECRET="s" * 32)
        started.wait_for("listening on")
        assert "TIDINGS_API_KEY is made up" in started.text
        assert "TIDINGS_JWT_SECRET" not in started.text
        started.end()

    def test_data_is_kept_where_asked(self, program: Callable[..., Program], tmp_path: Path) -> None:
        """With --data the events of yesterday are there today; without it nothing is left behind."""
        positions = []
        for _ in range(2):
            started = program("dev", "--port", "0", "--data", str(tmp_path / "kept"))
            url = started.wait_for(r"listening on (http://127\.0\.0\.1:\d+)")[1]
            until_sync(lambda url=url: "ready" in status(f"{url}/readyz"), what="ready")
            key = started.wait_for(r"Bearer ([\w-]+)")[1]
            positions.append(get(f"{url}/v1/position?user=anna", Authorization=f"Bearer {key}")["position"])
            redis_url = started.wait_for(r'Publisher\("(redis://\S+)"\)')[1]
            subprocess.run(
                [sys.executable, "-m", "tidings", "publish", "anna", "e", "1"],
                check=True,
                env={**os.environ, "TIDINGS_REDIS_URL": redis_url},
                stdout=subprocess.DEVNULL,
            )
            assert started.end() == 0
        first, second = map(Position.parse, positions)
        assert (first.epoch, first.seq, second.seq) == (second.epoch, 0, 1)

    @pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux ends children with their parent")
    def test_its_valkey_ends_with_it_however_it_ends(self, program: Callable[..., Program]) -> None:
        """kill -9 leaves no server behind."""
        started = program("dev", "--port", "0")
        started.wait_for("listening on")
        (valkey_pid,) = _children_of(started.process.pid)
        started.end(signal.SIGKILL)
        until_sync(lambda: not Path(f"/proc/{valkey_pid}/cmdline").exists(), what="valkey-server is gone")

    def test_a_bad_user_is_told_before_anything_starts(self, cli: Cli) -> None:
        """Exit code 2."""
        code, _, err = cli("dev", "--user", "a b")
        assert code == 2
        assert "not a user id" in err
        assert not [
            command for command in children().values() if "valkey-server" in command and "tidings-dev" in command
        ]


def _children_of(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


def test_a_gateway_told_to_end_while_it_is_still_starting_ends_with_0() -> None:
    """SIGTERM during the imports is no failure, and finds a handler also where the process is PID 1."""
    program = (
        "import os, signal, tidings.__main__ as m; m.end_quietly_until_served(); os.kill(os.getpid(), signal.SIGTERM)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
