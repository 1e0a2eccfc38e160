"""Redis URLs: what is understood, what is refused and in which words, and how a connection is made."""

from __future__ import annotations

import ssl

import pytest

from tidings.errors import InvalidSetting
from tidings.redis_url import parse_redis_url
from tidings_gateway.bus.endpoint import Endpoint, endpoint_of


def parse_url(url: str) -> Endpoint:
    return endpoint_of(parse_redis_url(url))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://cache", Endpoint("cache")),
        ("redis://cache:7000/0", Endpoint("cache", 7000)),
        ("redis://cache?db=0", Endpoint("cache")),
        ("redis://:p%40ss@cache", Endpoint("cache", password="p@ss")),
        ("redis://gw:secret@[::1]:7000/", Endpoint("::1", 7000, None, "gw", "secret")),
        ("unix:///run/valkey.sock", Endpoint(path="/run/valkey.sock")),
        ("unix://gw:secret@/run/valkey.sock?db=0", Endpoint(path="/run/valkey.sock", username="gw", password="secret")),
    ],
)
def test_urls(url: str, expected: Endpoint) -> None:
    """The forms operators write."""
    assert parse_url(url) == expected


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://secret@cache", "must start with"),
        ("rediss://:secret@cache?ssl_ca_certs=/nowhere/ca.pem", "cannot be read"),
    ],
)
def test_urls_refused(url: str, why: str) -> None:
    """Said in words, without what may be a password. The grammar has its own tests."""
    with pytest.raises(InvalidSetting, match=why) as raised:
        parse_url(url)
    assert "secret" not in str(raised.value)


def test_tls_is_verified_unless_told_otherwise() -> None:
    """`rediss://` checks certificate and name; each can be switched off by name only."""
    strict = parse_url("rediss://cache").tls
    assert strict is not None
    assert strict.verify_mode is ssl.CERT_REQUIRED
    assert strict.check_hostname
    loose = parse_url("rediss://cache?ssl_cert_reqs=none").tls
    assert loose is not None
    assert loose.verify_mode is ssl.CERT_NONE
    named = parse_url("rediss://cache?ssl_check_hostname=false").tls
    assert named is not None
    assert named.verify_mode is ssl.CERT_REQUIRED
    assert not named.check_hostname
    assert parse_url("redis://cache").tls is None


def test_credentials_are_not_shown() -> None:
    """Neither in the text for people nor in the repr that a traceback may hold."""
    endpoint = parse_url("redis://gw:secret@cache:7000")
    assert str(endpoint) == "cache:7000"
    assert "secret" not in repr(endpoint)
    assert str(Endpoint("::1")) == "[::1]:6379"
    assert str(Endpoint(path="/run/v.sock")) == "/run/v.sock"


def test_auth_command() -> None:
    """With a user the two-word form, which needs Redis 6; with a password alone the one every version knows."""
    assert parse_url("redis://cache").auth is None
    assert parse_url("redis://:p@cache").auth == ("AUTH", "p")
    assert parse_url("redis://u:p@cache").auth == ("AUTH", "u", "p")


def test_the_second_connection_goes_to_the_address_of_the_first() -> None:
    """A name may stand for several servers; the certificate is still checked against the name."""
    endpoint = parse_url("rediss://:p@cache:7000").at(("10.0.0.7", 7000))
    assert (endpoint.host, endpoint.port, endpoint.server_name, endpoint.password) == ("10.0.0.7", 7000, "cache", "p")
    v6 = Endpoint("cache").at(("fe80::1", 6379, 0, 0))
    assert (v6.host, v6.server_name) == ("fe80::1", "cache")
    unix = Endpoint(path="/run/v.sock")
    assert unix.at("") is unix
