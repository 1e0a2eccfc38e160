"""The command line: what it prints, what it refuses, and its exit codes (0 done, 1 failed, 2 used wrongly)."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.support.children import children
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until_sync
from tidings.log.position import Position
from tidings_gateway.auth.tokens import TokenVerifier
from tidings_gateway.cli import run
from tidings_gateway.settings.table import mark, rows, variable

SECRET = "s" * 40
API_KEY = "k" * 40

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run one command in this process: exit code, standard output, standard error."""

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


class TestHelp:
    def test_every_command_is_listed(self, cli: Cli) -> None:
        """`tidings --help` is where a stranger starts."""
        code, out, _ = cli("--help")
        assert code == 0
        for command in ("serve", "dev", "demo", "publish", "check", "tail", "explain", "token"):
            assert f"  {command} " in out
            assert cli(command, "--help")[0] == 0
        assert cli("--version")[1].startswith("tidings ")

    @pytest.mark.parametrize("arguments", [["sreve"], ["serve", "--nope"], ["token"], ["publish", "anna"], []])
    def test_wrong_use_is_exit_code_2(self, cli: Cli, arguments: list[str]) -> None:
        """And never a traceback."""
        code, _, err = cli(*arguments)
        assert code == 2
        assert "Usage" in err

    def test_serve_lists_every_setting_and_takes_no_secret(self, cli: Cli) -> None:
        """One flag per variable, except for secrets, which every user of the machine could read from a flag."""
        out = " ".join(cli("serve", "--help")[1].split())
        for name, field in rows():
            flag = "--" + name.replace("_", "-")
            if mark(field, "file"):
                assert f"{flag}-file" in out
                assert f"[{variable(name)}_FILE]" in out
            if not mark(field, "file") or name == "redis_url":
                assert f"{flag} TEXT" in out
                assert f"[{variable(name)}" in out
        for secret in ("--jwt-secret TEXT", "--api-key TEXT"):
            assert secret not in out


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
        until_sync(lambda: "ready" in _status(f"{url}/readyz"), what="/readyz says ready")
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


class TestToken:
    def test_a_token_that_the_gateway_accepts(self, cli: Cli) -> None:
        """Signed with the first secret; for the time and the topics asked for."""
        code, out, _ = cli(
            *("token", "anna", "--ttl", "60", "--topic", "all", "--topic", "org:7"),
            TIDINGS_JWT_SECRET=f"{SECRET},{'o' * 40}",
        )
        assert code == 0
        grant = TokenVerifier(secrets=[SECRET]).verify(out.strip())
        assert (grant.user, grant.topics) == ("anna", ("all", "org:7"))
        assert 50 < grant.expires_at_s - time.time() <= 60

    @pytest.mark.parametrize(
        ("arguments", "environ", "words"),
        [
            (["anna"], {}, "TIDINGS_JWT_SECRET is not set"),
            (["anna"], {"TIDINGS_JWT_SECRET": "short"}, "at least 32 bytes"),
            (["a b"], {"TIDINGS_JWT_SECRET": SECRET}, "not a user id"),
            (["anna", "--ttl", "0"], {"TIDINGS_JWT_SECRET": SECRET}, "--ttl"),
            (["anna", "--topic", "a b"], {"TIDINGS_JWT_SECRET": SECRET}, "a b"),
        ],
    )
    def test_what_is_wrong_is_said(self, cli: Cli, arguments: list[str], environ: dict[str, str], words: str) -> None:
        """Exit code 2."""
        code, out, err = cli("token", *arguments, **environ)
        assert code == 2
        assert words in err
        assert out == ""


class TestPublish:
    def publish(self, cli: Cli, valkey: ValkeyProcess, prefix: str, *arguments: str, **options: Any) -> Any:
        environ = {"TIDINGS_REDIS_URL": valkey.url, "TIDINGS_PREFIX": prefix}
        return cli("publish", *arguments, **environ, **options)

    def stored(self, valkey: ValkeyProcess, prefix: str) -> list[Any]:
        entries = valkey.cli("XRANGE", f"{prefix}:{{anna}}:log", "-", "+")
        bodies = []
        for _, fields in entries:
            body = fields[b"b"] if isinstance(fields, dict) else fields[fields.index(b"b") + 1]
            bodies.append(json.loads(body)["data"])
        return bodies

    def test_data_from_the_line_a_file_or_standard_input(
        self, cli: Cli, valkey: ValkeyProcess, prefix: str, tmp_path: Path
    ) -> None:
        """JSON in each case; the id is printed."""
        (tmp_path / "data.json").write_text('{"from": "file"}')
        for arguments, stdin in (
            (['{"from": "line"}'], b""),
            ([f"@{tmp_path}/data.json"], b""),
            (["-"], b'{"from": "input"}'),
            ([], b""),
        ):
            code, out, _ = self.publish(cli, valkey, prefix, "anna", "hello", *arguments, stdin=stdin)
            assert code == 0
            Position.parse(out.split()[0])
        assert self.stored(valkey, prefix) == [{"from": "line"}, {"from": "file"}, {"from": "input"}, None]

    def test_an_idempotency_key_stores_once(self, cli: Cli, valkey: ValkeyProcess, prefix: str) -> None:
        """And says so the second time, with the first id."""
        first = self.publish(cli, valkey, prefix, "anna", "e", "1", "--idempotency-key", "k")[1]
        again = self.publish(cli, valkey, prefix, "anna", "e", "2", "--idempotency-key", "k")[1]
        assert first.split()[0] == again.split()[0]
        assert "duplicate" in again
        assert self.stored(valkey, prefix) == [1]

    def test_an_ephemeral_event_is_not_stored(self, cli: Cli, valkey: ValkeyProcess, prefix: str) -> None:
        """It has no id either."""
        code, out, _ = self.publish(cli, valkey, prefix, "anna", "e", "1", "--ephemeral", "--key", "k")
        assert code == 0
        assert out == "ephemeral (0 gateways listening)\n"
        assert self.stored(valkey, prefix) == []

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["anna", "e", "hello"], "is not JSON"),
            (["anna", "e", "{"], "is not JSON"),
            (["anna", "e", "@/nowhere"], "cannot be read"),
            (["anna", "a b", "1"], "event"),
            (["a b", "e", "1"], "not a user id"),
            (["anna", "e", "9007199254740992"], "2^53"),
            (["anna", "e", "1", "--api-key", API_KEY], "--url"),
            (["anna", "e", "1", "--url", "http://127.0.0.1:1"], "TIDINGS_API_KEY"),
        ],
    )
    def test_what_is_wrong_is_said(
        self, cli: Cli, valkey: ValkeyProcess, prefix: str, arguments: list[str], words: str
    ) -> None:
        """Exit code 2, and nothing was stored."""
        code, out, err = self.publish(cli, valkey, prefix, *arguments)
        assert code == 2
        assert words in err
        assert out == ""
        assert self.stored(valkey, prefix) == []

    def test_through_a_gateway(
        self, cli: Cli, program: Callable[..., Program], valkey: ValkeyProcess, prefix: str
    ) -> None:
        """The same command with --url; a wrong key is exit code 1, in words."""
        secrets = {"TIDINGS_JWT_SECRET": SECRET, "TIDINGS_API_KEY": API_KEY}
        gateway = program(
            *("serve", "--listen", "127.0.0.1:0", "--drain-grace-ms", "0", "--drain-window-ms", "0"),
            **secrets,
            TIDINGS_REDIS_URL=valkey.url,
            TIDINGS_PREFIX=prefix,
        )
        url = gateway.wait_for(r"listening on (http://\S+)")[1]
        code, out, _ = cli("publish", "anna", "e", '{"via": "http"}', "--url", url, TIDINGS_API_KEY=API_KEY)
        assert code == 0
        assert Position.parse(out.split()[0]).seq == 1
        assert self.stored(valkey, prefix) == [{"via": "http"}]
        code, _, err = cli("publish", "anna", "e", "1", TIDINGS_URL=url, TIDINGS_API_KEY="w" * 40)
        assert code == 1
        assert "not acknowledged (unauthorized)" in err
        assert gateway.end() == 0

    def test_redis_away_is_exit_code_1(self, cli: Cli, prefix: str) -> None:
        """In words, within the publisher's deadline."""
        code, _, err = cli("publish", "anna", "e", "1", TIDINGS_REDIS_URL="redis://127.0.0.1:1")
        assert code == 1
        assert "not acknowledged (unavailable)" in err


class TestDev:
    def test_what_it_prints_works_as_it_is(self, program: Callable[..., Program], tmp_path: Path) -> None:
        """From an empty directory and environment: the printed command publishes, the printed Python too, and the
        printed token connects."""
        started = program("dev", "--port", "0")
        url = started.wait_for(r"listening on (http://127\.0\.0\.1:\d+)")[1]
        until_sync(lambda: "ready" in _status(f"{url}/readyz"), what="/readyz says ready")
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
            until_sync(lambda url=url: "ready" in _status(f"{url}/readyz"), what="ready")
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


def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    """The base install has no command line of its own: it says what to install, instead of a traceback."""
    code = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'click': raise ModuleNotFoundError(\"No module named 'click'\", name='click')\n"
        "sys.meta_path.insert(0, Missing())\n"
        "from tidings.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert "tidings[gateway]" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    """`tidings serve --help | head -1` prints one line and nothing else."""
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m tidings serve --help | head -n 1"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.stdout.startswith("Usage")
    assert done.stderr == ""


def _status(url: str) -> str:
    from urllib.error import HTTPError

    try:
        return str(get(url)["status"])
    except HTTPError as error:
        return f"not yet: {error.code}"


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
