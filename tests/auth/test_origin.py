"""Origins: exact matches, and nothing that looks like one."""

from __future__ import annotations

import pytest

from tidings_gateway.auth.origin import OriginPolicy

GOOD = "https://app.example.com"
POLICY = OriginPolicy([GOOD, "http://localhost:3000", "https://app.example.com:8443"])


def headers(*origins: str) -> list[tuple[bytes, bytes]]:
    return [(b"host", b"push.example.com"), *((b"origin", origin.encode("latin-1")) for origin in origins)]


@pytest.mark.parametrize("origin", [GOOD, "http://localhost:3000", "https://app.example.com:8443"])
def test_a_listed_origin_is_allowed(origin: str) -> None:
    """As it stands in the list, as browsers send it."""
    check = POLICY.check(headers(origin))
    assert check.allowed
    assert check.origin == origin


def test_no_origin_is_told_from_a_refused_one() -> None:
    """Programs send none; whether that is enough depends on the credential."""
    check = POLICY.check(headers())
    assert check.allowed
    assert check.origin is None


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "*",
        "https://app.example.com.evil.example",
        "https://evilapp.example.com",
        "https://example.com",
        "https://sub.app.example.com",
        "http://app.example.com",
        "https://app.example.com:444",
        "https://app.example.com:443",
        "https://app.example.com.",
        "https://APP.example.com",
        "HTTPS://app.example.com",
        "https://app.example.com/",
        "https://app.example.com/page",
        "https://app.example.com@evil.example",
        " https://app.example.com",
        "https://app.example.com https://evil.example",
        "https://app.example.com,https://evil.example",
        "https://app\u00adexample.com",
        "localhost",
        "http://localhost",
        "http://localhost:3001",
    ],
)
def test_look_alikes_are_refused(origin: str) -> None:
    """No suffix, prefix, scheme, port, dot or letter may differ."""
    assert not POLICY.check(headers(origin)).allowed


def test_two_origin_headers_are_refused() -> None:
    """Which one counts would be a guess, and somebody between us and the browser may guess otherwise."""
    assert not POLICY.check(headers(GOOD, "https://evil.example")).allowed
    assert not POLICY.check(headers("https://evil.example", GOOD)).allowed
    assert not POLICY.check(headers(GOOD, GOOD)).allowed


def test_an_empty_list_allows_no_page() -> None:
    """Nothing is allowed until somebody says so."""
    assert not OriginPolicy([]).check(headers(GOOD)).allowed


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("http://localhost", True),
        ("http://localhost:5173", True),
        ("https://localhost:5173", True),
        ("http://127.0.0.1:8080", True),
        ("http://[::1]:8080", True),
        ("http://localhost.evil.example", False),
        ("http://localhost:80.evil.example", False),
        ("http://127.0.0.1.evil.example", False),
        ("http://evil.example/localhost", False),
        ("http://127.0.0.2", False),
        ("ftp://localhost", False),
        ("null", False),
    ],
)
def test_localhost_stands_for_every_port_of_this_machine(origin: str, allowed: bool) -> None:
    """For development: servers of front ends choose their own ports. Still nobody else's names."""
    assert OriginPolicy(["localhost"]).allows(origin) is allowed


def test_a_refused_origin_is_shown_bounded_and_printable() -> None:
    """It is a stranger's text, and goes into a log line and an answer."""
    check = POLICY.check(headers("https://evil\x1b[2J\xff" + "x" * 1000))
    assert len(check.shown) <= 200
    assert check.shown.isprintable()
    assert check.shown.isascii()
