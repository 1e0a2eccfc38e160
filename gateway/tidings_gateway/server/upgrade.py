"""Is this request a WebSocket handshake we can answer? RFC 6455 section 4.2, and what HTTP itself demands. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
VERSION = b"13"

Header = tuple[bytes, bytes]


class Refusal(NamedTuple):
    """An answer that ends the connection: problem+json (RFC 9457), so that a developer sees what is wrong."""

    status: int
    detail: str
    headers: tuple[Header, ...] = ()

    def encode(self, default_headers: Iterable[Header] = ()) -> bytes:
        title = HTTPStatus(self.status).phrase
        body = json.dumps({"type": "about:blank", "title": title, "status": self.status, "detail": self.detail})
        return response(
            self.status,
            [
                *default_headers,
                (b"content-type", b"application/problem+json"),
                (b"cache-control", b"no-store"),
                *self.headers,
            ],
            body.encode(),
        )


def unavailable(detail: str, retry_ms: int) -> Refusal:
    return Refusal(503, detail, ((b"retry-after", b"%d" % max(1, -(-retry_ms // 1000))),))


class Upgrade(NamedTuple):
    """A handshake that may be accepted: the key to answer, and the subprotocols offered, in the client's order."""

    key: bytes
    subprotocols: list[str]


def wants_websocket(headers: Sequence[Header]) -> bool:
    return any(
        name == b"upgrade" and b"websocket" in (token.strip() for token in value.lower().split(b","))
        for name, value in headers
    )


def check_upgrade(method: bytes, http_version: str, headers: Sequence[Header]) -> Upgrade | Refusal:
    """`headers` with lower-case names, of a request whose Connection and Upgrade ask for a WebSocket."""
    keys: list[bytes] = []
    versions: list[bytes] = []
    protocols: list[str] = []
    hosts = 0
    for name, value in headers:
        match name:
            case b"sec-websocket-key":
                keys.append(value)
            case b"sec-websocket-version":
                versions.append(value.strip())
            case b"sec-websocket-protocol":
                protocols += [token for part in value.decode("latin-1").split(",") if (token := part.strip())]
            case b"host":
                hosts += 1
            case b"transfer-encoding":
                return Refusal(400, "A WebSocket handshake has no body.")
            case b"content-length" if value.strip() != b"0":
                return Refusal(400, "A WebSocket handshake has no body.")
    if method != b"GET":
        return Refusal(405, "A WebSocket handshake is a GET request.", ((b"allow", b"GET"),))
    if http_version != "1.1":
        return Refusal(400, "A WebSocket handshake needs HTTP/1.1.")
    if hosts != 1:
        return Refusal(400, "Exactly one Host is required.")
    if versions != [VERSION]:
        return Refusal(426, "WebSocket version 13 is required.", ((b"sec-websocket-version", VERSION),))
    if len(keys) != 1 or not _is_key(keys[0]):
        return Refusal(400, "Sec-WebSocket-Key must be 16 bytes in base64, once.")
    return Upgrade(keys[0], protocols)


def switching(key: bytes, headers: Iterable[Header]) -> bytes:
    """The 101 response. `headers` are the application's, and the chosen subprotocol."""
    accept = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())
    lines = [
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: ",
        accept,
        b"\r\n",
    ]
    for name, value in headers:
        lines += (name, b": ", value, b"\r\n")
    lines.append(b"\r\n")
    return b"".join(lines)


def response(status: int, headers: Iterable[Header], body: bytes) -> bytes:
    """A whole response, after which the connection closes. Length and Connection are added here."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    lines = [f"HTTP/1.1 {status} {phrase}\r\n".encode()]
    for name, value in headers:
        if name.lower() not in (b"content-length", b"transfer-encoding", b"connection"):
            lines += (name, b": ", value, b"\r\n")
    if status == 426:
        lines.append(b"upgrade: websocket\r\n")
    lines.append(b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body))
    lines.append(body)
    return b"".join(lines)


def _is_key(value: bytes) -> bool:
    try:
        return len(value) == 24 and len(base64.b64decode(value, validate=True)) == 16
    except binascii.Error:
        return False
