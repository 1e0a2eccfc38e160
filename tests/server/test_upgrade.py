"""Which requests are WebSocket handshakes, and what those that are not are told."""

from __future__ import annotations

import json

import pytest

from tidings_gateway.server.upgrade import (
    Refusal,
    Upgrade,
    check_upgrade,
    response,
    switching,
    unavailable,
    wants_websocket,
)

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
GOOD = [
    (b"host", b"example.com"),
    (b"upgrade", b"websocket"),
    (b"connection", b"Upgrade"),
    (b"sec-websocket-key", KEY),
    (b"sec-websocket-version", b"13"),
]


def without(name: bytes) -> list[tuple[bytes, bytes]]:
    return [header for header in GOOD if header[0] != name]


def test_good_handshake() -> None:
    """The handshake of RFC 6455 1.2 is taken, with the subprotocols in the client's order, over several lines."""
    offers = [(b"sec-websocket-protocol", b"chat, tidings.v1"), (b"sec-websocket-protocol", b" other,")]
    assert check_upgrade(b"GET", "1.1", GOOD + offers) == Upgrade(KEY, ["chat", "tidings.v1", "other"])


def test_accept_key() -> None:
    """The answer to the key is the one RFC 6455 1.3 computes."""
    answer = switching(KEY, [(b"sec-websocket-protocol", b"chat")])
    assert answer.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert b"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in answer
    assert answer.endswith(b"sec-websocket-protocol: chat\r\n\r\n")


@pytest.mark.parametrize(
    ("method", "version", "headers", "status"),
    [
        pytest.param(b"POST", "1.1", GOOD, 405, id="POST"),
        pytest.param(b"GET", "1.0", GOOD, 400, id="HTTP/1.0"),
        pytest.param(b"GET", "1.1", without(b"host"), 400, id="no host"),
        pytest.param(b"GET", "1.1", [*GOOD, (b"host", b"other")], 400, id="two hosts"),
        pytest.param(b"GET", "1.1", without(b"sec-websocket-key"), 400, id="no key"),
        pytest.param(b"GET", "1.1", [*GOOD, (b"sec-websocket-key", KEY)], 400, id="two keys"),
        pytest.param(b"GET", "1.1", without(b"sec-websocket-version"), 426, id="no version"),
        pytest.param(
            b"GET", "1.1", [*without(b"sec-websocket-version"), (b"sec-websocket-version", b"8")], 426, id="version 8"
        ),
        pytest.param(b"GET", "1.1", [*GOOD, (b"content-length", b"5")], 400, id="a body"),
        pytest.param(b"GET", "1.1", [*GOOD, (b"transfer-encoding", b"chunked")], 400, id="a chunked body"),
    ],
)
def test_refused(method: bytes, version: str, headers: list[tuple[bytes, bytes]], status: int) -> None:
    """What RFC 6455 4.2.1 demands is demanded, and a handshake has no body."""
    checked = check_upgrade(method, version, headers)
    assert isinstance(checked, Refusal)
    assert checked.status == status


def test_wrong_version_names_the_right_one() -> None:
    """426 says which version would do (RFC 6455 4.4)."""
    checked = check_upgrade(b"GET", "1.1", without(b"sec-websocket-version"))
    assert isinstance(checked, Refusal)
    answer = checked.encode()
    assert b"\r\nsec-websocket-version: 13\r\n" in answer
    assert b"\r\nupgrade: websocket\r\n" in answer


def test_empty_body_is_none() -> None:
    """Some proxies add `Content-Length: 0`."""
    assert isinstance(check_upgrade(b"GET", "1.1", [*GOOD, (b"content-length", b"0")]), Upgrade)


@pytest.mark.parametrize(
    "key", [b"", b"short", KEY[:-2], KEY + b"A", b"!" * 24, b"dGhlIHNhbXBsZSBub25jZSE=", b"\xff" * 24]
)
def test_bad_keys(key: bytes) -> None:
    """A key is 16 bytes in base64, nothing else."""
    assert isinstance(
        check_upgrade(b"GET", "1.1", [*without(b"sec-websocket-key"), (b"sec-websocket-key", key)]), Refusal
    )


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(b"websocket", True), (b"WebSocket", True), (b"h2c, websocket", True), (b"h2c", False), (b"websocket2", False)],
)
def test_wants_websocket(value: bytes, wanted: bool) -> None:
    """The Upgrade header is a list of tokens in any case."""
    assert wants_websocket([(b"upgrade", value)]) is wanted


def test_refusal_is_a_problem() -> None:
    """A refusal is a whole response with a body for developers (RFC 9457), after which the connection ends."""
    head, _, body = unavailable("Later.", 1500).encode([(b"date", b"now")]).partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 503 Service Unavailable"
    assert {
        b"date: now",
        b"content-type: application/problem+json",
        b"retry-after: 2",
        b"connection: close",
        b"cache-control: no-store",
        b"content-length: %d" % len(body),
    } == set(lines[1:])
    assert json.loads(body) == {
        "type": "about:blank",
        "title": "Service Unavailable",
        "status": 503,
        "detail": "Later.",
    }


def test_response_frames_itself() -> None:
    """Length and connection are ours to say: what an application says about them would contradict."""
    answer = response(299, [(b"Content-Length", b"9"), (b"transfer-encoding", b"chunked"), (b"x", b"y")], b"ab")
    assert answer == b"HTTP/1.1 299 \r\nx: y\r\ncontent-length: 2\r\nconnection: close\r\n\r\nab"
