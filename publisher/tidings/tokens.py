"""Minting the token a page connects with. Needs ``tidings[tokens]`` (joserfc), imported at the first call."""

from __future__ import annotations

import secrets
import time
import warnings
from collections.abc import Sequence
from typing import Any

from tidings.errors import InvalidSetting, MissingExtra
from tidings.log.names import check_topic, check_user
from tidings.log.position import MAX_TOPICS
from tidings.settings import HIDDEN, first_secret, read_variable, split_list

TOKEN_TTL_S = 900


def mint_token(
    user: str,
    topics: Sequence[str] = (),
    ttl_s: int = TOKEN_TTL_S,
    *,
    secret: str | None = None,
    issuer: str | None = None,
    audience: str | None = None,
) -> str:
    """A JWT (HS256) that lets whoever holds it listen as `user`, and to `topics`, for `ttl_s` seconds.

    `secret`: default the first of ``TIDINGS_JWT_SECRET``, of at least 32 bytes. `issuer` and `audience`: default
    ``TIDINGS_JWT_ISSUER`` and the first of ``TIDINGS_JWT_AUDIENCE``, which the gateway compares when they are set.
    Raises `InvalidUser`, `InvalidTopic`, `InvalidSetting`, `MissingExtra`.
    """
    claims: dict[str, Any] = {"sub": check_user(user)}
    if isinstance(topics, str) or len(topics) > MAX_TOPICS:
        raise InvalidSetting("topics", topics, f"must be a list of at most {MAX_TOPICS}")
    names = [check_topic(topic) for topic in topics]
    if ttl_s <= 0:
        raise InvalidSetting("ttl_s", ttl_s, "must be above 0")
    key = first_secret("jwt_secret", secret)
    if key is None:
        raise InvalidSetting("TIDINGS_JWT_SECRET", None, "is needed to sign a token")
    now = int(time.time())
    claims |= {"iat": now, "exp": now + int(ttl_s), "jti": secrets.token_urlsafe(12)}
    if iss := issuer or read_variable("TIDINGS_JWT_ISSUER"):
        claims["iss"] = iss
    if aud := audience or next(iter(split_list(read_variable("TIDINGS_JWT_AUDIENCE") or "")), None):
        claims["aud"] = aud
    if names:
        claims["tidings"] = {"topics": names}
    return _sign(claims, key)


def _sign(claims: dict[str, Any], secret: str) -> str:
    try:
        from joserfc import jwt
        from joserfc.errors import JoseError, SecurityWarning
        from joserfc.jwk import OctKey
    except ImportError:
        raise MissingExtra("tokens", "joserfc") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", SecurityWarning)
            key = OctKey.import_key(secret)
    except (ValueError, JoseError, SecurityWarning):
        raise InvalidSetting("jwt_secret", HIDDEN, "is a public or private key, not a secret") from None
    return jwt.encode({"alg": "HS256", "typ": "JWT"}, claims, key)
