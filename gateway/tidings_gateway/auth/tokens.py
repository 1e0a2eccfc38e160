"""Tokens: a JWT says which user a session belongs to, which topics it may follow, and until when.

Only what is needed is read; every refusal is typed and names a rule, never the token.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from joserfc.errors import ExpiredTokenError, InvalidClaimError, JoseError, MissingClaimError
from joserfc.jws import JWSRegistry, extract_compact, validate_compact
from joserfc.jwt import JWTClaimsRegistry

from tidings.errors import InvalidUser, TidingsError
from tidings.log.names import check_user
from tidings_gateway.keys import public_keys, secret_keys

if TYPE_CHECKING:
    from joserfc.jwa import JWSAlgModel
    from joserfc.jwt import ClaimsOption

    from tidings_gateway.settings import Settings

MAX_TOKEN_BYTES = 8_192
"""A hello frame may be no longer, so neither may a token that comes another way."""

MAX_EXPIRY_S = 2**53 // 1000
"""In milliseconds it must still be an integer that a browser can hold: `welcome` tells it how long the token lasts."""

MAX_TOPICS = 16

_TOPIC = re.compile(r"[A-Za-z0-9._:-]{1,64}", re.ASCII)
_TYPES = frozenset({"jwt", "at+jwt", "application/jwt", "application/at+jwt"})


class Refusal(StrEnum):
    """Why a token was refused; for the log. What a client is told is the same for all of them."""

    MISSING = "no token"
    TOO_LARGE = "longer than 8 KiB"
    MALFORMED = "not a signed JWT"
    HEADER = "a header that asks for something not supported (crit, b64 or a typ that is not a JWT's)"
    ALGORITHM = "an algorithm that no configured key may verify"
    SIGNATURE = "a signature that no configured key verifies"
    EXPIRED = "expired"
    NOT_YET = "not valid yet (nbf or iat lies in the future)"
    CLAIM_MISSING = "a required claim is missing"
    CLAIM_WRONG = "a claim with a wrong value"
    TICKETS = "tickets are not enabled"
    SEVERAL = "more than one Authorization header"


class Unauthorized(TidingsError):
    """A definite no: the session is closed with 4401, an HTTP request answered with 401.

    `detail` names the claim or header member at fault. Neither it nor the message holds anything from the token.
    """

    def __init__(self, refusal: Refusal, detail: str = "") -> None:
        super().__init__(f"{refusal.value}: {detail}" if detail else refusal.value)
        self.refusal = refusal
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Grant:
    """What a verified token gives. Times are seconds of the wall clock since 1970.

    `expires_at_s` is the token's `exp`, which may already be past by less than the leeway; the session must end at
    `ends_at_s`, which is the leeway later.
    """

    user: str
    topics: tuple[str, ...]
    expires_at_s: float
    ends_at_s: float
    token_id: str | None


class TokenVerifier:
    """Verifies tokens against a fixed set of keys. Holds no state between tokens.

    `clock` gives the wall clock in seconds. Raises `InvalidKey` (a `ValueError`) when a key cannot be read.
    """

    def __init__(
        self,
        *,
        secrets: Iterable[str] = (),
        keys: Iterable[str] = (),
        algorithms: Iterable[str] = ("HS256", "RS256", "ES256", "EdDSA"),
        issuer: str = "",
        audience: Iterable[str] = (),
        leeway_s: int = 10,
        clock: Callable[[], float] = time.time,
    ) -> None:
        allowed = tuple(algorithms)
        candidates = [*secret_keys(secrets, allowed), *public_keys(keys, allowed)]
        self._candidates = [(key, _KeyRegistry(key.algorithms)) for key in candidates]
        self._leeway_s = leeway_s
        self._audience = list(audience)
        rules: dict[str, ClaimsOption] = {"sub": {"essential": True}, "exp": {"essential": True}}
        if issuer:
            rules["iss"] = {"essential": True, "value": issuer}
        if self._audience:
            rules["aud"] = {"essential": True, "values": self._audience}
        self._claims = JWTClaimsRegistry(now=lambda: int(clock()), leeway=leeway_s, **rules)

    @classmethod
    def from_settings(cls, settings: Settings, *, clock: Callable[[], float] = time.time) -> TokenVerifier:
        return cls(
            secrets=[secret.get_secret_value() for secret in settings.jwt_secret],
            keys=settings.jwt_public_key,
            algorithms=settings.jwt_algorithms,
            issuer=settings.jwt_issuer,
            audience=settings.jwt_audience,
            leeway_s=settings.jwt_leeway_s,
            clock=clock,
        )

    def verify(self, token: str | None) -> Grant:
        """What the token grants. Raises `Unauthorized`."""
        if not token:
            raise Unauthorized(Refusal.MISSING)
        if len(token) > MAX_TOKEN_BYTES:
            raise Unauthorized(Refusal.TOO_LARGE)
        return self._grant(self._verified_claims(token))

    def _verified_claims(self, token: str) -> dict[str, Any]:
        try:
            parts = extract_compact(token.encode("ascii"), registry=_ANY)
            header = parts.headers()
        except (JoseError, ValueError, TypeError, AttributeError, RecursionError):
            raise Unauthorized(Refusal.MALFORMED) from None
        if not isinstance(header.get("alg"), str):
            raise Unauthorized(Refusal.MALFORMED)
        # RFC 7515 section 4.1.11: an extension that must be understood and is not makes the token invalid. There is
        # none that we understand.
        for name in ("crit", "b64"):
            if name in header:
                raise Unauthorized(Refusal.HEADER, name)
        # RFC 8725 section 3.11: a token made for another purpose (a logout token, say) is not one of ours.
        kind = header.get("typ", "JWT")
        if not isinstance(kind, str) or kind.lower() not in _TYPES:
            raise Unauthorized(Refusal.HEADER, "typ")
        fitting = [(key, registry) for key, registry in self._candidates if header["alg"] in key.algorithms]
        if not fitting:
            raise Unauthorized(Refusal.ALGORITHM)
        kid = header.get("kid")
        named = [(key, registry) for key, registry in fitting if kid is not None and key.key_id == kid]
        for key, registry in named or fitting:
            try:
                verified = validate_compact(parts, key.key, registry=registry)
            except (JoseError, ValueError):
                verified = False
            if verified:
                return _parse_claims(parts.payload)
        raise Unauthorized(Refusal.SIGNATURE)

    def _grant(self, claims: dict[str, Any]) -> Grant:
        try:
            self._claims.validate(claims)
        except MissingClaimError as error:
            raise Unauthorized(Refusal.CLAIM_MISSING, error.claim) from None
        except ExpiredTokenError:
            raise Unauthorized(Refusal.EXPIRED) from None
        except InvalidClaimError as error:
            early = error.claim in ("nbf", "iat") and _is_time(claims.get(error.claim))
            raise Unauthorized(Refusal.NOT_YET if early else Refusal.CLAIM_WRONG, error.claim) from None
        if not self._audience and claims.get("aud") is not None:
            # RFC 7519 section 4.1.3: a token meant for somebody, when nobody here was named, is not meant for us.
            raise Unauthorized(Refusal.CLAIM_WRONG, "aud (set TIDINGS_JWT_AUDIENCE to accept it)")
        try:
            check_user(claims["sub"])
        except InvalidUser:
            raise Unauthorized(Refusal.CLAIM_WRONG, "sub") from None
        try:
            expires_at_s = float(claims["exp"])
        except OverflowError:
            raise Unauthorized(Refusal.CLAIM_WRONG, "exp") from None
        if expires_at_s > MAX_EXPIRY_S:
            raise Unauthorized(Refusal.CLAIM_WRONG, "exp")
        topics = _topics(claims.get("tidings"))
        return Grant(claims["sub"], topics, expires_at_s, expires_at_s + self._leeway_s, claims.get("jti"))


class _KeyRegistry(JWSRegistry):
    """The algorithms of one key. Unknown header members are ignored (RFC 7515 section 4); `jku`, `jwk` and `x5u` are
    never followed. No warning for EdDSA: RFC 9864 renamed it, issuers still write it."""

    max_header_length = MAX_TOKEN_BYTES
    """The token as a whole is bounded; a header with a certificate chain needs more than the library's 512 bytes."""

    def __init__(self, algorithms: frozenset[str]) -> None:
        super().__init__(algorithms=algorithms, strict_check_header=False)
        self._own = algorithms

    def get_alg(self, name: str) -> JWSAlgModel:
        if name not in self._own:
            raise Unauthorized(Refusal.ALGORITHM)
        return self.algorithms[name]


_ANY = _KeyRegistry(frozenset())


def _parse_claims(payload: bytes) -> dict[str, Any]:
    try:
        claims = json.loads(payload)
    except (ValueError, RecursionError):
        raise Unauthorized(Refusal.MALFORMED, "the claims are not JSON") from None
    if not isinstance(claims, dict):
        raise Unauthorized(Refusal.MALFORMED, "the claims are not an object")
    return claims


def _topics(claim: object) -> tuple[str, ...]:
    if claim is None:
        return ()
    if not isinstance(claim, dict):
        raise Unauthorized(Refusal.CLAIM_WRONG, "tidings")
    topics = claim.get("topics", [])
    if (
        not isinstance(topics, list)
        or len(topics) > MAX_TOPICS
        or not all(isinstance(topic, str) and _TOPIC.fullmatch(topic) for topic in topics)
        or len(set(topics)) != len(topics)
    ):
        raise Unauthorized(Refusal.CLAIM_WRONG, "tidings.topics")
    return tuple(topics)


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
