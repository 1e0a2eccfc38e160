"""The shared settings: arguments, else variables, else defaults, and an error that says which one is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidings import settings
from tidings.errors import InvalidSetting
from tidings.settings import SHARED, first_secret, log_limits, read_variable, split_list

SECRET = "s" * 32


def test_defaults_are_those_of_the_contract() -> None:
    """Without arguments and variables, a publisher fits a gateway that has none either."""
    assert {row.name: row.default for row in SHARED} == {
        "redis_url": "redis://127.0.0.1:6379",
        "prefix": "tidings",
        "failover": "auto",
        "log_max_events": 1000,
        "log_ttl_s": 604_800,
        "meta_ttl_s": 7_776_000,
        "idempotency_ttl_s": 86_400,
        "max_event_bytes": 65_536,
    }
    for row in SHARED:
        assert row.resolve(environ={}) == row.default
        assert row.variable == "TIDINGS_" + row.name.upper()


def test_the_gateway_has_the_same_rows() -> None:
    """Default and bounds of a shared setting are the same for gateways and publishers, or the two would not agree on
    what a log is."""
    from tidings_gateway.settings import Settings

    for row in SHARED:
        field = Settings.model_fields[row.name]
        assert field.default == row.default, row.name
        bounds = {type(bound).__name__: bound for bound in field.metadata}
        low = getattr(bounds.get("Ge"), "ge", None)
        high = getattr(bounds.get("Le"), "le", None)
        assert (low, high) == (row.low, row.high), row.name


def test_argument_then_variable_then_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest wins; the variable is read when it is needed, not at import."""
    monkeypatch.setenv("TIDINGS_LOG_MAX_EVENTS", "50")
    assert settings.LOG_MAX_EVENTS.resolve() == 50
    assert settings.LOG_MAX_EVENTS.resolve(7) == 7
    assert log_limits(log_ttl_s=60).max_events == 50
    monkeypatch.delenv("TIDINGS_LOG_MAX_EVENTS")
    assert settings.LOG_MAX_EVENTS.resolve() == 1000


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("log_max_events", "many", "whole number"),
        ("log_max_events", "0", "from 1 to 1,000,000"),
        ("log_max_events", "1000001", "from 1 to 1,000,000"),
        ("log_ttl_s", "7d", "whole number"),
        ("log_ttl_s", "0", "at least 1"),
        ("meta_ttl_s", "59", "at least 60"),
        ("max_event_bytes", "65537", "from 256 to 65,536"),
        ("prefix", "a b", "1 to 32"),
        ("failover", "maybe", "auto, trust or resync"),
    ],
)
def test_an_error_names_the_variable_and_its_value(name: str, text: str, why: str) -> None:
    """Whoever set it must find it again."""
    row = next(row for row in SHARED if row.name == name)
    with pytest.raises(InvalidSetting) as caught:
        row.resolve(environ={row.variable: text})
    assert (caught.value.name, caught.value.value) == (row.variable, text)
    assert why in caught.value.why
    assert str(caught.value).startswith(f"{row.variable}='{text}': ")


def test_an_error_in_an_argument_names_the_argument() -> None:
    """A bad argument is not blamed on the environment; a number in quotes is no number."""
    with pytest.raises(InvalidSetting) as caught:
        settings.LOG_MAX_EVENTS.resolve("50")  # type: ignore[arg-type]
    assert (caught.value.name, caught.value.value) == ("log_max_events", "50")
    with pytest.raises(InvalidSetting):
        settings.LOG_MAX_EVENTS.resolve(True)


@pytest.mark.parametrize(
    "url",
    [
        "localhost",
        "http://h",
        "redis://",
        "redis://:geheim@h:port",
        "redis://:geheim@h/1",
        "unix://",
        "redis://:geheim@[::1",
    ],
)
def test_a_bad_redis_url_is_never_shown(url: str) -> None:
    """The message says what is wrong with the URL without repeating it: it may hold a password."""
    with pytest.raises(InvalidSetting) as caught:
        settings.REDIS_URL.resolve(environ={"TIDINGS_REDIS_URL": url})
    assert "geheim" not in str(caught.value)
    assert caught.value.name == "TIDINGS_REDIS_URL"


@pytest.mark.parametrize("url", ["redis://h", "rediss://u:p@h:1/0", "unix:///run/valkey.sock", "redis://[::1]:6379"])
def test_good_redis_urls(url: str) -> None:
    """TCP, TLS and local sockets; database 0 may be said."""
    assert settings.REDIS_URL.resolve(url) == url


def test_a_secret_from_a_file(tmp_path: Path) -> None:
    """A variable that ends in _FILE names a file with the secret; both at once is a contradiction."""
    path = tmp_path / "url"
    path.write_text("redis://:geheim@h\n")
    environ = {"TIDINGS_REDIS_URL_FILE": str(path)}
    assert settings.REDIS_URL.resolve(environ=environ) == "redis://:geheim@h"
    with pytest.raises(InvalidSetting, match="keep one of them"):
        settings.REDIS_URL.resolve(environ={**environ, "TIDINGS_REDIS_URL": "redis://h"})
    with pytest.raises(InvalidSetting, match="cannot be read"):
        read_variable("TIDINGS_X", {"TIDINGS_X_FILE": str(tmp_path / "none")}, file=True)
    path.write_bytes(b"\xff")
    with pytest.raises(InvalidSetting, match="UTF-8"):
        read_variable("TIDINGS_X", {"TIDINGS_X_FILE": str(path)}, file=True)
    path.write_bytes(b"x" * 65_537)
    with pytest.raises(InvalidSetting, match="larger than"):
        read_variable("TIDINGS_X", {"TIDINGS_X_FILE": str(path)}, file=True)
    assert read_variable("TIDINGS_X", {"TIDINGS_X_FILE": str(path)}) is None


def test_the_first_secret_of_a_list(tmp_path: Path) -> None:
    """The first signs: comma or line separated, or a JSON list; an argument wins; none is None."""
    other = "o" * 32
    path = tmp_path / "keys"
    path.write_text(f"{SECRET}\n{other}\n")
    for environ in (
        {"TIDINGS_API_KEY": f" {SECRET} , {other}"},
        {"TIDINGS_API_KEY": f'["{SECRET}","{other}"]'},
        {"TIDINGS_API_KEY_FILE": str(path)},
    ):
        assert first_secret("api_key", environ=environ) == SECRET
        assert first_secret("api_key", other, environ) == other
    assert first_secret("api_key", environ={}) is None
    assert first_secret("api_key", environ={"TIDINGS_API_KEY": " , "}) is None


@pytest.mark.parametrize("text", ["geheim", "geheim,", '["geheim', "[7]", '{"a":1}'])
def test_a_bad_secret_is_never_shown(text: str) -> None:
    """Too short to be one, or not a list: the message does not repeat it."""
    with pytest.raises(InvalidSetting) as caught:
        first_secret("jwt_secret", environ={"TIDINGS_JWT_SECRET": text})
    assert "geheim" not in str(caught.value)
    assert caught.value.name == "TIDINGS_JWT_SECRET"
    with pytest.raises(InvalidSetting) as caught:
        first_secret("jwt_secret", "geheim")
    assert caught.value.name == "jwt_secret"
    assert "geheim" not in str(caught.value)


def test_lists() -> None:
    """Empty items do not count; a JSON list must hold texts."""
    assert split_list("") == []
    assert split_list("a, b,\n,c\n") == ["a", "b", "c"]
    with pytest.raises(ValueError, match="strings"):
        split_list("[1]")
