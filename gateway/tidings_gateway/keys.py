"""Keys that verify tokens, each bound to the algorithms of its own type.

An HMAC secret can never be a public key and a public key can never verify an HMAC: the two come from two settings and
never meet. (Taking a public key for an HMAC secret is how tokens were forged in many libraries.)
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import ECKey, Key, OctKey, OKPKey, RSAKey, import_key

MIN_RSA_BITS = 2048
"""RFC 7518 section 3.3."""

_EC_ALGORITHMS = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}


class InvalidKey(ValueError):
    """A key that cannot be used. The message never repeats the key."""


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A key, its `kid` if it has one, and the algorithms it may verify."""

    key: Key
    key_id: str | None
    algorithms: frozenset[str]


def secret_keys(secrets: Iterable[str], allowed: Iterable[str]) -> list[VerificationKey]:
    """HMAC keys. Raises `InvalidKey` for text that is really a public or private key."""
    algorithms = frozenset(name for name in allowed if name.startswith("HS"))
    return [VerificationKey(_import_secret(secret), None, algorithms) for secret in secrets]


def public_keys(texts: Iterable[str], allowed: Iterable[str]) -> list[VerificationKey]:
    """Keys from PEM blocks, JSON Web Keys or key sets. Raises `InvalidKey`."""
    names = frozenset(allowed)
    keys = []
    for text in texts:
        for key in _import_public(text):
            kid = key.get("kid")
            keys.append(VerificationKey(key, kid if isinstance(kid, str) else None, _fitting(key, names)))
    return keys


def check_secret_key(text: str) -> str:
    """For the settings: `text`, or `InvalidKey`."""
    _import_secret(text)
    return text


def check_public_key(text: str) -> str:
    """For the settings: `text`, or `InvalidKey`."""
    _import_public(text)
    return text


def _import_secret(text: str) -> OctKey:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", SecurityWarning)
            return OctKey.import_key(text)
    except (ValueError, JoseError, SecurityWarning):
        raise InvalidKey("is an asymmetric key, not a secret; a public key belongs in TIDINGS_JWT_PUBLIC_KEY") from None


def _import_public(text: str) -> list[Key]:
    try:
        sources: list[Any] = _jwks(text) if text.lstrip().startswith("{") else [text]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SecurityWarning)  # of short keys, which are refused below
            keys = [_import_one(source) for source in sources]
    except InvalidKey:
        raise
    except (ValueError, TypeError, KeyError, JoseError):
        raise InvalidKey("is not a public key that can be read (RSA, EC or Ed25519; PEM or JSON Web Key)") from None
    if not keys:
        raise InvalidKey("is a key set without a key")
    return keys


def _jwks(text: str) -> list[Any]:
    parsed = json.loads(text)
    keys = parsed.get("keys", None) if "kty" not in parsed else [parsed]
    if not isinstance(keys, list) or not all(isinstance(key, dict) for key in keys):
        raise InvalidKey("is JSON but neither a JSON Web Key (RFC 7517) nor a set of them")
    return keys


def _import_one(source: str | dict[str, Any]) -> Key:
    if isinstance(source, dict):
        if source.get("kty") not in ("RSA", "EC", "OKP"):
            raise InvalidKey("has a kty other than RSA, EC and OKP; a shared secret belongs in TIDINGS_JWT_SECRET")
        return _checked(import_key(source))
    for kind in ("RSA", "EC", "OKP"):
        try:
            key = import_key(source, kind)
        except JoseError:  # another type of key
            continue
        return _checked(key)
    raise InvalidKey("is of a type that cannot verify tokens (RSA, EC or Ed25519 can)")


def _checked(key: Key) -> Key:
    if key.is_private:
        raise InvalidKey("is a private key; the gateway needs, and should hold, only the public one")
    if isinstance(key, RSAKey) and key.public_key.key_size < MIN_RSA_BITS:
        raise InvalidKey(f"is an RSA key of {key.public_key.key_size} bits; at least {MIN_RSA_BITS} are needed")
    if not _fitting(key, None):
        raise InvalidKey("is on a curve that no supported algorithm uses (P-256, P-384, P-521 and Ed25519 are)")
    return key


def _fitting(key: Key, allowed: frozenset[str] | None) -> frozenset[str]:
    """The algorithms a key of this type may verify: of those `allowed`, or all (None)."""
    if isinstance(key, RSAKey):
        names = {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
    elif isinstance(key, ECKey):
        curve = _EC_ALGORITHMS.get(key.curve_name)
        names = {curve} if curve else set()
    elif isinstance(key, OKPKey) and key.curve_name == "Ed25519":
        # RFC 9864 renamed EdDSA over this curve to Ed25519; issuers write either.
        names = {"EdDSA", "Ed25519"}
        allowed = allowed | {"Ed25519"} if allowed is not None and "EdDSA" in allowed else allowed
    else:
        names = set()
    stated = key.get("alg")
    if isinstance(stated, str):  # RFC 7517 section 4.4: meant for this algorithm only
        names &= {stated}
    return frozenset(names if allowed is None else names & allowed)
