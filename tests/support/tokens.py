"""Tokens for tests, signed by hand: the gateway's own minting is under test elsewhere."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time

SECRET = "test-secret-0123456789abcdef0123456789abcdef"
API_KEY = "test-api-key-0123456789abcdef0123456789abcdef"


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def mint(user: str, *, secret: str = SECRET, ttl_s: float = 900, **claims: object) -> str:
    """An HS256 JWT for `user`. `claims` are added, or taken out when None."""
    now = int(time.time())
    body: dict[str, object] = {"sub": user, "iat": now, "exp": now + int(ttl_s), **claims}
    body = {name: value for name, value in body.items() if value is not None}
    return sign(body, secret=secret)


def sign(claims: dict[str, object], *, secret: str = SECRET, header: dict[str, object] | None = None) -> str:
    """Sign exactly these claims, with any header."""
    head = _b64(json.dumps(header or {"alg": "HS256", "typ": "JWT"}).encode())
    text = f"{head}.{_b64(json.dumps(claims).encode())}"
    return f"{text}.{_b64(hmac.new(secret.encode(), text.encode(), hashlib.sha256).digest())}"
