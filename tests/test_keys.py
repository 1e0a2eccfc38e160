"""Keys: read from what people paste into a variable, and refused when they could not be meant."""

from __future__ import annotations

import json

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from tidings_gateway.keys import InvalidKey, check_public_key, public_keys, secret_keys
from tidings_gateway.settings import SettingsError, load_settings

ALL = ("HS256", "RS256", "PS256", "ES256", "ES384", "ES512", "EdDSA")
RSA = RSAKey.generate_key(2048)
EC = ECKey.generate_key("P-256")
SHORT_RSA = (
    rsa.generate_private_key(65537, 1024)
    .public_key()
    .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    .decode()
)


def pem(key: RSAKey | ECKey | OKPKey, *, private: bool = False) -> str:
    return key.as_bytes("PEM", private=private).decode()


def test_a_key_verifies_the_algorithms_of_its_type_only() -> None:
    """An algorithm is never chosen by the token alone: the key must be of its type, and the list must allow it."""
    assert secret_keys(["x" * 32], ALL)[0].algorithms == {"HS256"}
    assert public_keys([pem(RSA)], ALL)[0].algorithms == {"RS256", "PS256"}
    assert public_keys([pem(EC)], ALL)[0].algorithms == {"ES256"}
    assert public_keys([pem(ECKey.generate_key("P-384"))], ALL)[0].algorithms == {"ES384"}
    assert public_keys([pem(OKPKey.generate_key("Ed25519"))], ALL)[0].algorithms == {"EdDSA", "Ed25519"}
    assert public_keys([pem(RSA)], ["HS256", "ES256"])[0].algorithms == set()


def test_a_key_meant_for_one_algorithm_verifies_no_other() -> None:
    """RFC 7517 section 4.4: `alg` in a JSON Web Key narrows it."""
    jwk = {**RSA.as_dict(private=False), "alg": "PS256"}
    assert public_keys([json.dumps(jwk)], ALL)[0].algorithms == {"PS256"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (pem(RSA, private=True), "private key"),
        (json.dumps(EC.as_dict(private=True)), "private key"),
        (SHORT_RSA, "1024 bits"),
        (json.dumps(OctKey.generate_key(256).as_dict()), "TIDINGS_JWT_SECRET"),
        (pem(OKPKey.generate_key("X25519")), "curve"),
        (pem(ECKey.generate_key("secp256k1")), "curve"),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "cannot|can be read"),
        ('{"keys": []}', "without a key"),
        ('{"keys": 7}', "neither"),
        ("{}", "neither"),
        ('{"kty": "RSA"}', "can be read"),
        ("{", "can be read"),
    ],
    ids=["private", "private jwk", "short", "secret", "x25519", "secp256k1", "broken", "none", "7", "{}", "kty", "{"],
)
def test_a_key_that_cannot_be_meant_is_refused_in_words(text: str, why: str) -> None:
    """A private key must not lie in the gateway, a weak one must not count; the message never repeats the key."""
    with pytest.raises(InvalidKey, match=why) as caught:
        check_public_key(text)
    assert text not in str(caught.value)


def test_several_keys_in_one_variable() -> None:
    """PEM blocks one after the other, with real line ends or with the two characters that env files have instead."""
    joined = pem(RSA) + pem(EC)
    for text in (joined, joined.replace("\n", "\\n"), json.dumps([pem(RSA), pem(EC)])):
        assert len(load_settings({"TIDINGS_JWT_PUBLIC_KEY": text}).jwt_public_key) == 2


def test_the_settings_name_the_variable_of_a_bad_key() -> None:
    """It is found at the start, not when the first user's token is refused."""
    with pytest.raises(SettingsError, match="TIDINGS_JWT_PUBLIC_KEY: ") as caught:
        load_settings({"TIDINGS_JWT_PUBLIC_KEY": pem(RSA, private=True)})
    assert "PRIVATE KEY-----" not in str(caught.value)
    with pytest.raises(SettingsError, match="neither a PEM block"):
        load_settings({"TIDINGS_JWT_PUBLIC_KEY": "ssh-rsa AAAA"})
