"""Which credential counts: the first that is present decides, also when it is bad.

In order: `Authorization: Bearer`, `?ticket=`, the cookie named in the settings, and last the `token` of the hello
frame. A token in the URL is never looked at: URLs end up in logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from tidings.errors import TidingsError
from tidings_gateway.auth.tokens import Grant, Refusal, TokenVerifier, Unauthorized

MAX_QUERY_FIELDS = 32


class OriginRequired(TidingsError):
    """The credential is a cookie and there was no Origin: answered with 403 before the upgrade.

    A browser sends cookies whoever's page asks, so only the Origin shows whose page it was.
    """


class Authenticator:
    """Turns the credential of a request, or the token of a `hello` or `auth` frame, into a `Grant`."""

    def __init__(self, verifier: TokenVerifier, *, cookie_name: str = "") -> None:
        self._verifier = verifier
        self._cookie_name = cookie_name

    def from_request(self, scope: Mapping[str, Any], *, has_origin: bool) -> Grant | None:
        """The grant of an HTTP or WebSocket scope; None when it carries no credential, so that the hello frame must.

        Raises `Unauthorized` and `OriginRequired`, as `request_token` does.
        """
        token = request_token(scope, cookie_name=self._cookie_name, has_origin=has_origin)
        return None if token is None else self._verifier.verify(token)

    def from_token(self, token: str | None) -> Grant:
        """The grant of a frame's token. Raises `Unauthorized`."""
        return self._verifier.verify(token)


def request_token(scope: Mapping[str, Any], *, cookie_name: str, has_origin: bool) -> str | None:
    """The token of an HTTP or WebSocket scope; None when it carries none, so that the hello frame must.

    `has_origin`: the request had an Origin header (whether it is allowed is checked before). Raises `Unauthorized` for
    a credential that cannot be a token, and `OriginRequired` for a cookie without an Origin.
    """
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    token = bearer_token(headers)
    if token is not None:
        return token
    if _has_ticket(scope.get("query_string", b"")):
        raise Unauthorized(Refusal.TICKETS)
    if cookie_name:
        cookie = _cookie(headers, cookie_name.encode("ascii"))
        if cookie is not None and not has_origin:
            raise OriginRequired
        return cookie
    return None


def bearer_token(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """What follows `Bearer` in the Authorization header (RFC 6750), None when there is none or it is of another scheme.

    Raises `Unauthorized` for two Authorization headers: which one counts would be a guess.
    """
    found = [value for name, value in headers if name == b"authorization"]
    if not found:
        return None
    if len(found) > 1:
        raise Unauthorized(Refusal.SEVERAL)
    scheme, _, token = found[0].decode("latin-1").strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _has_ticket(query: bytes) -> bool:
    if b"ticket=" not in query:
        return False
    try:
        fields = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS)
    except ValueError:
        return True  # so many fields that they were not read: refused rather than ignored
    return any(name == "ticket" for name, _ in fields)


def _cookie(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> str | None:
    for name, value in headers:
        if name != b"cookie":
            continue
        for pair in value.split(b";"):
            key, equals, text = pair.strip().partition(b"=")
            if equals and key == wanted:
                return text.strip(b'"').decode("latin-1")
    return None
