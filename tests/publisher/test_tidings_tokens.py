"""Tokens that the gateway takes."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from tests.support.tokens import SECRET
from tidings import mint_token
from tidings.errors import InvalidSetting, InvalidTopic, InvalidUser

OTHER = "other-secret-0123456789abcdef0123456789abcdef"


def claims(token: str, secret: str = SECRET) -> dict[str, Any]:
    return jwt.decode(token, OctKey.import_key(secret), algorithms=["HS256"]).claims


def test_the_claims() -> None:
    """sub, iat, exp after the lifetime asked for, an id of its own; topics only if there are any."""
    now = int(time.time())
    one = claims(mint_token("alice", secret=SECRET))
    assert one["sub"] == "alice"
    assert now - 1 <= one["iat"] <= now + 60
    assert one["exp"] == one["iat"] + 900
    assert set(one) == {"sub", "iat", "exp", "jti"}
    two = claims(mint_token("alice", ["all", "org:7"], ttl_s=60, secret=SECRET))
    assert two["exp"] == two["iat"] + 60
    assert two["tidings"] == {"topics": ["all", "org:7"]}
    assert one["jti"] != two["jti"]


def test_the_first_secret_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an argument the first of the list signs, as the gateway says it does."""
    monkeypatch.setenv("TIDINGS_JWT_SECRET", f"{OTHER},{SECRET}")
    assert claims(mint_token("alice"), OTHER)["sub"] == "alice"
    assert claims(mint_token("alice", secret=SECRET))["sub"] == "alice"


def test_what_the_gateway_compares_is_in_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """With issuer and audience set for the gateway, the same variables make tokens it takes."""
    monkeypatch.setenv("TIDINGS_JWT_ISSUER", "us")
    monkeypatch.setenv("TIDINGS_JWT_AUDIENCE", "push, other")
    found = claims(mint_token("alice", secret=SECRET))
    assert (found["iss"], found["aud"]) == ("us", "push")
    found = claims(mint_token("alice", secret=SECRET, issuer="me", audience="them"))
    assert (found["iss"], found["aud"]) == ("me", "them")


def test_the_gateway_takes_it() -> None:
    """The gateway's own verifier finds the user and the topics."""
    from tidings_gateway.auth.tokens import TokenVerifier

    grant = TokenVerifier(secrets=[SECRET]).verify(mint_token("alice", ["all"], secret=SECRET))
    assert (grant.user, list(grant.topics)) == ("alice", ["all"])


def test_what_is_refused() -> None:
    """No user, a bad topic, too many of them, no lifetime, no secret, a short one, or a key pair's half."""
    with pytest.raises(InvalidUser):
        mint_token("a b", secret=SECRET)
    with pytest.raises(InvalidTopic):
        mint_token("a", ["a~b"], secret=SECRET)
    for topics in ("all", [f"t{number}" for number in range(17)]):
        with pytest.raises(InvalidSetting):
            mint_token("a", topics, secret=SECRET)
    with pytest.raises(InvalidSetting):
        mint_token("a", ttl_s=0, secret=SECRET)
    with pytest.raises(InvalidSetting, match="TIDINGS_JWT_SECRET"):
        mint_token("a")
    with pytest.raises(InvalidSetting, match="32 bytes"):
        mint_token("a", secret="geheim")
    with pytest.raises(InvalidSetting, match="not a secret") as caught:
        mint_token("a", secret=RSAKey.generate_key(2048).as_pem(private=False).decode())
    assert "BEGIN" not in str(caught.value)


def test_a_missing_extra_is_named() -> None:
    """Without joserfc, the error says what to install; nothing else of the package needs it."""
    code = (
        "import sys; sys.modules['joserfc'] = None\n"
        "import tidings\n"
        "try: tidings.mint_token('a', secret='s' * 32)\n"
        "except tidings.MissingExtra as error: print(error.extra, error.module, error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "tokens joserfc joserfc is not installed: pip install 'tidings[tokens]'"
