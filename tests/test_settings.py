"""The settings: read from the environment, checked together, explained in words, and never told to a log."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tidings import settings as shared
from tidings_gateway.settings import Listen, Settings, SettingsError, load_settings
from tidings_gateway.settings.document import markdown
from tidings_gateway.settings.limits import RESERVED_DESCRIPTORS, default_max_connections
from tidings_gateway.settings.table import GROUPS, mark, rows, variable

SECRET = "s" * 32
ROOT = Path(__file__).resolve().parent.parent


def problems(environ: dict[str, str], **given: Any) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load_settings(environ, **given)
    return [str(problem) for problem in caught.value.problems]


def test_without_any_variable_every_setting_has_its_default() -> None:
    """An empty environment is a complete configuration, except for the secrets, which have no default."""
    settings = load_settings({})
    assert settings == Settings()
    assert settings.listen == Listen("127.0.0.1", 8080)
    assert settings.redis_url == "redis://127.0.0.1:6379"
    assert (settings.heartbeat_ms, settings.heartbeat_timeout_ms) == (20_000, 10_000)
    assert (settings.queue_events, settings.queue_bytes) == (256, 262_144)
    assert (settings.drain_grace_ms, settings.drain_window_ms) == (5_000, 20_000)
    assert settings.jwt_secret == settings.api_key == settings.allowed_origins == ()


def test_each_variable_sets_its_field() -> None:
    """A field is read from TIDINGS_ and its name in upper case."""
    settings = load_settings(
        {
            "TIDINGS_LISTEN": "0.0.0.0:80",
            "TIDINGS_HEARTBEAT_MS": "30000",
            "TIDINGS_ALLOWED_ORIGINS": "https://a.example, https://b.example:8443",
            "TIDINGS_READY_REDIS": "always",
            "TIDINGS_PREFIX": "app:blue",
            "HOME": "/root",
        }
    )
    assert settings.listen == Listen("0.0.0.0", 80)
    assert settings.heartbeat_ms == 30_000
    assert settings.allowed_origins == ("https://a.example", "https://b.example:8443")
    assert settings.ready_redis == "always"
    assert settings.prefix == "app:blue"


def test_a_flag_wins_over_its_variable() -> None:
    """What is typed on the command line is meant more than what is in the environment."""
    environ = {"TIDINGS_HEARTBEAT_MS": "1000", "TIDINGS_HEARTBEAT_TIMEOUT_MS": "500"}
    settings = load_settings(environ, heartbeat_ms="2000")
    assert settings.heartbeat_ms == 2000
    assert settings.heartbeat_timeout_ms == 500


def test_constructing_settings_does_not_look_at_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings are plain values: code that has them decides alone what is in them."""
    monkeypatch.setenv("TIDINGS_HEARTBEAT_MS", "77777")
    assert Settings().heartbeat_ms == 20_000
    assert load_settings().heartbeat_ms == 77_777


def test_a_table_row_that_publishers_have_too_is_theirs() -> None:
    """Default, bounds and reason of shared settings come from the publisher's table, so that the two cannot differ."""
    for row in shared.SHARED:
        field = Settings.model_fields[row.name]
        assert field.get_default() == row.default
        assert field.description == row.reason
    assert problems({"TIDINGS_LOG_MAX_EVENTS": "1000001"}) == [
        "TIDINGS_LOG_MAX_EVENTS='1000001': must be at most 1000000"
    ]


class TestLists:
    @pytest.mark.parametrize(
        "text",
        [f"{SECRET},{'t' * 40}", f" {SECRET} , {'t' * 40} ,", f'["{SECRET}", "{"t" * 40}"]', f"{SECRET}\n{'t' * 40}\n"],
    )
    def test_a_list_is_comma_or_line_separated_or_json(self, text: str) -> None:
        """Several secrets may be given, so that one can be replaced while both are valid."""
        settings = load_settings({"TIDINGS_JWT_SECRET": text})
        assert [secret.get_secret_value() for secret in settings.jwt_secret] == [SECRET, "t" * 40]

    def test_json_keeps_commas(self) -> None:
        """A secret that holds a comma can be given as JSON."""
        secret = "a,b" * 20
        assert load_settings({"TIDINGS_API_KEY": f'["{secret}"]'}).api_key[0].get_secret_value() == secret

    @pytest.mark.parametrize(("text", "why"), [("[", "starts like a JSON list"), ("[1]", "strings only")])
    def test_a_broken_json_list_is_explained(self, text: str, why: str) -> None:
        """A list that starts as JSON is never taken for a comma separated one."""
        assert why in problems({"TIDINGS_API_KEY": text})[0]

    def test_an_empty_list_is_empty(self) -> None:
        """A variable set to nothing is the same as one that is not set."""
        settings = load_settings(
            {"TIDINGS_ALLOWED_ORIGINS": "", "TIDINGS_JWT_SECRET": " ", "TIDINGS_JWT_PUBLIC_KEY": ""}
        )
        assert settings.allowed_origins == settings.jwt_secret == settings.jwt_public_key == ()


class TestFiles:
    def test_a_secret_may_be_read_from_a_file(self, tmp_path: Path) -> None:
        """Container secrets are files; the line end that editors add is not part of the secret."""
        path = tmp_path / "secret"
        path.write_text(f"{SECRET}\n")
        settings = load_settings({"TIDINGS_JWT_SECRET_FILE": str(path)})
        assert settings.jwt_secret[0].get_secret_value() == SECRET

    def test_a_variable_and_its_file_exclude_each_other(self, tmp_path: Path) -> None:
        """Two sources for one secret would leave open which one counts."""
        found = problems({"TIDINGS_API_KEY_FILE": str(tmp_path / "x"), "TIDINGS_API_KEY": SECRET})
        assert "TIDINGS_API_KEY_FILE" in found[0]
        assert "keep one of them" in found[0]
        assert SECRET not in "".join(found)

    def test_a_file_that_cannot_be_read_is_named(self, tmp_path: Path) -> None:
        """The message says which variable, which path, and why."""
        found = problems({"TIDINGS_JWT_SECRET_FILE": str(tmp_path / "nowhere")})
        assert "nowhere" in found[0]
        assert "No such file" in found[0]

    @pytest.mark.parametrize(("data", "why"), [(b"\xff" * 40, "UTF-8"), (b"x" * 70_000, "larger than")])
    def test_a_file_that_is_no_secret_is_refused(self, tmp_path: Path, data: bytes, why: str) -> None:
        """A wrong path must not read a whole disk into memory."""
        path = tmp_path / "secret"
        path.write_bytes(data)
        assert why in problems({"TIDINGS_API_KEY_FILE": str(path)})[0]

    def test_other_settings_have_no_file_twin(self) -> None:
        """Only what may be secret is read from files."""
        assert "no such setting" in problems({"TIDINGS_LISTEN_FILE": "/etc/hostname"})[0]


class TestUnknownNames:
    def test_a_misspelt_name_is_an_error_that_names_the_nearest(self) -> None:
        """A setting that is silently ignored is worse than one that stops the start."""
        assert problems({"TIDINGS_HEARTBEAT": "1", "TIDINGS_ALLOWED_ORIGIN": "x"}) == [
            "TIDINGS_ALLOWED_ORIGIN: there is no such setting; did you mean TIDINGS_ALLOWED_ORIGINS?",
            "TIDINGS_HEARTBEAT: there is no such setting; did you mean TIDINGS_HEARTBEAT_MS?",
        ]

    def test_the_value_of_an_unknown_name_is_not_shown(self) -> None:
        """It may be a secret whose name was misspelt."""
        assert SECRET not in "".join(problems({"TIDINGS_JWT_SECRETS": SECRET}))

    def test_what_kubernetes_injects_is_ignored_with_one_line(self, caplog: pytest.LogCaptureFixture) -> None:
        """A Service called `tidings` must not stop the pods behind it from starting."""
        environ = {
            "TIDINGS_PORT": "tcp://10.0.0.1:8080",
            "TIDINGS_SERVICE_HOST": "10.0.0.1",
            "TIDINGS_SERVICE_PORT": "8080",
            "TIDINGS_SERVICE_PORT_HTTP": "8080",
            "TIDINGS_PORT_8080_TCP": "tcp://10.0.0.1:8080",
            "TIDINGS_PORT_8080_TCP_PROTO": "tcp",
            "TIDINGS_REDIS_PORT_6379_TCP_ADDR": "10.0.0.2",
            "TIDINGS_REDIS_SERVICE_HOST": "10.0.0.2",
        }
        with caplog.at_level(logging.INFO, logger="tidings.settings"):
            load_settings(environ)
        assert len(caplog.records) == 1
        assert "TIDINGS_REDIS_SERVICE_HOST" in caplog.text

    def test_every_problem_is_told_at_once(self) -> None:
        """Nobody should have to start the gateway five times to find five mistakes."""
        found = problems(
            {"TIDINGS_LISTEN": "8080", "TIDINGS_NOPE": "1", "TIDINGS_QUEUE_EVENTS": "many", "TIDINGS_JWT_SECRET": "x"}
        )
        assert len(found) == 4


class TestValues:
    @pytest.mark.parametrize(
        ("text", "listen"),
        [
            ("127.0.0.1:8080", ("127.0.0.1", 8080)),
            ("0.0.0.0:0", ("0.0.0.0", 0)),
            ("[::1]:8080", ("::1", 8080)),
            ("[::]:65535", ("::", 65535)),
            ("[fe80::1%eth0]:1", ("fe80::1%eth0", 1)),
            ("gateway.internal:80", ("gateway.internal", 80)),
        ],
    )
    def test_listen_takes_hosts_and_ipv6(self, text: str, listen: tuple[str, int]) -> None:
        """HOST:PORT, IPv6 in brackets, port 0 for one that the kernel chooses; it is written back as it was read."""
        parsed = load_settings({"TIDINGS_LISTEN": text}).listen
        assert parsed == listen
        assert str(parsed) == text

    @pytest.mark.parametrize(
        "text",
        [
            *("8080", ":8080", "127.0.0.1", "127.0.0.1:", "::1:8080", "[::1]", "[1.2.3.4]:1", "a:65536", "a:-1"),
            *("a b:1", "http://a:1", "a:٨", ""),
        ],
    )
    def test_listen_refuses_anything_else(self, text: str) -> None:
        """No guessing: an address that is read wrongly exposes a service, or hides it."""
        assert problems({"TIDINGS_LISTEN": text})[0].startswith("TIDINGS_LISTEN=")

    @pytest.mark.parametrize(
        ("text", "hint"),
        [
            ("*", "every site on the web"),
            ("null", "anybody can send it"),
            ("https://a.example/", "write https://a.example"),
            ("https://A.example", "write https://a.example"),
            ("https://a.example:443", "leave the default port out"),
            ("http://a.example:80", "leave the default port out"),
            ("a.example", "scheme://host"),
            ("https://a.example/page", "without a path"),
            ("https://*.example", "scheme://host"),
            ("ftp://a.example", "scheme://host"),
        ],
    )
    def test_an_origin_that_no_browser_sends_is_refused(self, text: str, hint: str) -> None:
        """An entry that can never match would only show as pages that cannot connect."""
        assert hint in problems({"TIDINGS_ALLOWED_ORIGINS": text})[0]

    @pytest.mark.parametrize("text", ["https://a.example", "http://localhost:3000", "https://[::1]:8443", "localhost"])
    def test_an_origin_as_browsers_send_it_is_taken(self, text: str) -> None:
        """Scheme, host, and the port unless it is the default one; `localhost` for any port of this machine."""
        assert load_settings({"TIDINGS_ALLOWED_ORIGINS": text}).allowed_origins == (text,)

    @pytest.mark.parametrize(
        ("text", "ok"),
        [("", True), ("/push", True), ("/a/b-c", True), ("push", False), ("/push/", False), ("/a?b", False)],
    )
    def test_base_path(self, text: str, ok: bool) -> None:
        """A base path is put before every route as it stands."""
        if ok:
            assert load_settings({"TIDINGS_BASE_PATH": text}).base_path == text
        else:
            assert "must be empty, or a path" in problems({"TIDINGS_BASE_PATH": text})[0]

    @pytest.mark.parametrize(
        "text", ["http://x", "redis://", "redis://h/1", "redis://h:p", "unix://", "localhost:6379"]
    )
    def test_a_redis_url_that_cannot_work_is_refused_without_being_shown(self, text: str) -> None:
        """It may hold a password, and a database other than 0 would mix two installations on the channels."""
        found = problems({"TIDINGS_REDIS_URL": text})
        assert found[0].startswith("TIDINGS_REDIS_URL: ")

    def test_numbers_are_explained_in_words(self) -> None:
        """No message speaks in the validator's own terms."""
        assert problems({"TIDINGS_QUEUE_EVENTS": "many"}) == ["TIDINGS_QUEUE_EVENTS='many': must be a whole number"]
        assert problems({"TIDINGS_JWT_LEEWAY_S": "61"}) == ["TIDINGS_JWT_LEEWAY_S='61': must be at most 60"]
        assert "must be 'start' or 'always'" in problems({"TIDINGS_READY_REDIS": "no"})[0]


class TestSecrets:
    @pytest.mark.parametrize("name", ["TIDINGS_JWT_SECRET", "TIDINGS_API_KEY"])
    @pytest.mark.parametrize("text", ["short", "x" * 31, f"{'x' * 32},y"])
    def test_a_short_secret_is_refused(self, name: str, text: str) -> None:
        """A key shorter than its hash can be searched for (RFC 7518 section 3.2)."""
        found = problems({name: text})
        assert "at least 32 are needed" in found[0]
        assert text not in found[0]

    def test_an_api_key_may_be_given_by_its_digest(self) -> None:
        """The gateway then never holds the key itself."""
        entry = "sha256:" + "0f" * 32
        assert load_settings({"TIDINGS_API_KEY": entry}).api_key[0].get_secret_value() == entry
        assert "64 hexadecimal digits" in problems({"TIDINGS_API_KEY": "sha256:" + "x" * 64})[0]

    def test_a_digest_is_no_jwt_secret(self) -> None:
        """Only API keys have that form; here the text would be the secret itself, and a published one."""
        assert "at least 32" in problems({"TIDINGS_JWT_SECRET": "sha256:abc"})[0]

    def test_secrets_are_in_no_text_made_from_settings(self) -> None:
        """repr, str, JSON and error messages may all end up in a log."""
        password = "hunter2hunter2"
        settings = load_settings(
            {"TIDINGS_JWT_SECRET": SECRET, "TIDINGS_API_KEY": SECRET, "TIDINGS_REDIS_URL": f"redis://u:{password}@h"}
        )
        for text in (repr(settings), str(settings)):
            assert SECRET not in text
            assert password not in text
        with pytest.raises(ValidationError) as caught:
            Settings(jwt_secret="tooshort-canary", redis_url=f"redis://u:{password}@h/9")  # type: ignore[arg-type]
        assert "canary" not in str(caught.value)
        assert password not in str(caught.value)


class TestTogether:
    @pytest.mark.parametrize(
        ("environ", "both"),
        [
            ({"TIDINGS_PAGE_EVENTS": "300"}, ("TIDINGS_PAGE_EVENTS (300)", "TIDINGS_QUEUE_EVENTS (256)")),
            ({"TIDINGS_PAGE_BYTES": "300000"}, ("TIDINGS_PAGE_BYTES (300000)", "TIDINGS_QUEUE_BYTES (262144)")),
            ({"TIDINGS_PAGE_BYTES": "1024"}, ("TIDINGS_MAX_EVENT_BYTES (65536)", "TIDINGS_PAGE_BYTES (1024)")),
            ({"TIDINGS_HELD_BYTES": "1024"}, ("TIDINGS_MAX_EVENT_BYTES (65536)", "TIDINGS_HELD_BYTES (1024)")),
            ({"TIDINGS_LOG_TTL_S": "9999999"}, ("TIDINGS_LOG_TTL_S (9999999)", "TIDINGS_META_TTL_S (7776000)")),
            ({"TIDINGS_HEARTBEAT_MS": "5000"}, ("TIDINGS_HEARTBEAT_TIMEOUT_MS (10000)", "TIDINGS_HEARTBEAT_MS (5000)")),
            ({"TIDINGS_LOG_MAX_EVENTS": "10"}, ("TIDINGS_PAGE_EVENTS (128)", "TIDINGS_LOG_MAX_EVENTS (10)")),
            (
                {"TIDINGS_WRITE_HIGH_WATER_BYTES": "300000"},
                ("TIDINGS_WRITE_HIGH_WATER_BYTES (300000)", "TIDINGS_QUEUE_BYTES (262144)"),
            ),
        ],
    )
    def test_settings_that_contradict_each_other_are_refused(
        self, environ: dict[str, str], both: tuple[str, str]
    ) -> None:
        """Each value may be fine alone: the message names both and says why they cannot stand together."""
        found = problems(environ)
        assert len(found) == 1
        assert all(name in found[0] for name in both)

    def test_a_secret_without_an_algorithm_for_it_is_refused(self) -> None:
        """Every token would be refused, one by one, for a reason nobody sees."""
        found = problems({"TIDINGS_JWT_SECRET": SECRET, "TIDINGS_JWT_ALGORITHMS": "RS256"})
        assert "TIDINGS_JWT_ALGORITHMS" in found[0]

    def test_none_is_not_an_algorithm(self) -> None:
        """Unsigned tokens cannot be allowed, in whatever spelling."""
        for name in ("none", "None", "nOnE", "NONE"):
            assert "TIDINGS_JWT_ALGORITHMS" in problems({"TIDINGS_JWT_ALGORITHMS": name})[0]


def test_max_connections_leaves_descriptors_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full gateway must still be able to reach Redis, open its log and answer /livez."""
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    assert default_max_connections() == 1024 - RESERVED_DESCRIPTORS
    assert Settings().max_connections == 1024 - RESERVED_DESCRIPTORS
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert default_max_connections() > 0


def test_the_documentation_is_the_table() -> None:
    """docs/settings.md is what `python -m tidings_gateway.settings` prints: a changed default cannot go unsaid."""
    assert (ROOT / "docs" / "settings.md").read_text() == markdown()


def test_every_row_explains_itself() -> None:
    """A row without a reason, or a heading without its row, is a mistake in the table."""
    names = [name for name, _ in rows()]
    assert set(GROUPS) <= set(names)
    assert names[0] in GROUPS
    for name, field in rows():
        assert field.description, name
        assert field.description.endswith("."), name
        assert variable(name) == f"TIDINGS_{name.upper()}"
        assert bool(mark(field, "secret")) <= bool(mark(field, "file")), f"{name}: a secret needs a file twin"
