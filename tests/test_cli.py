"""The command line: what it prints, what it refuses, and its exit codes (0 done, 1 failed, 2 used wrongly)."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.commandline import API_KEY, SECRET, Cli, Program
from tests.support.valkey import ValkeyProcess
from tidings.log.position import Position
from tidings_gateway.auth.tokens import TokenVerifier
from tidings_gateway.cli.dev import free_port_from
from tidings_gateway.settings.table import mark, rows, variable


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


def test_the_next_port_is_none_that_is_spoken_for(capsys: pytest.CaptureFixture[str]) -> None:
    """When the wanted port is taken, and the one after it is to be that of /metrics, it is the one after that."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = free_port_from(port, but=str(port + 1))
    assert found > port + 1
    assert f"Port {port} is taken" in capsys.readouterr().err
