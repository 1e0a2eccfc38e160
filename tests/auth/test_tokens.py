"""Tokens: what is accepted, and everything that must not be."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from joserfc.jwk import ECKey, Key, OctKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry, serialize_compact

from tidings_gateway.auth.tokens import MAX_TOKEN_BYTES, Grant, Refusal, TokenVerifier, Unauthorized
from tidings_gateway.keys import InvalidKey

NOW = 1_800_000_000
SECRET = "correct horse battery staple and some more"
RSA = RSAKey.generate_key(2048)
EC = ECKey.generate_key("P-256")
ED = OKPKey.generate_key("Ed25519")


def pem(key: RSAKey | ECKey | OKPKey) -> str:
    return key.as_bytes("PEM", private=False).decode()


def make(
    claims: dict[str, Any] | bytes | None = None,
    *,
    key: Key | None = None,
    alg: str = "HS256",
    header: dict[str, Any] | None = None,
) -> str:
    """A signed token. The claims are added to a good set; None as a value removes a claim."""
    if not isinstance(claims, bytes):
        merged = {"sub": "anna", "exp": NOW + 900, "iat": NOW, **(claims or {})}
        claims = json.dumps({name: value for name, value in merged.items() if value is not None}).encode()
    registry = JWSRegistry(algorithms=[alg], strict_check_header=False)
    # The library would not make what an attacker can: its own checks of the header are put aside.
    registry.check_header = lambda header: None  # type: ignore[method-assign]
    registry.get_alg = lambda name: JWSRegistry.algorithms[name]  # type: ignore[method-assign]
    return serialize_compact(
        {"alg": alg, "typ": "JWT", **(header or {})}, claims, key or OctKey.import_key(SECRET), registry=registry
    )


def unsigned(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    parts = [json.dumps(header).encode(), json.dumps(claims).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def verifier(**changes: Any) -> TokenVerifier:
    return TokenVerifier(**{"secrets": [SECRET], "clock": lambda: float(NOW), **changes})


def refusal(token: str | None, **changes: Any) -> Refusal:
    with pytest.raises(Unauthorized) as caught:
        verifier(**changes).verify(token)
    return caught.value.refusal


def test_a_good_token_gives_user_topics_and_end() -> None:
    """The grant is all that the gateway ever learns from a token."""
    token = make({"jti": "t-1", "tidings": {"topics": ["all", "org:7"]}})
    assert verifier().verify(token) == Grant("anna", ("all", "org:7"), NOW + 900.0, NOW + 910.0, "t-1")


@pytest.mark.parametrize(
    ("key", "alg"),
    [(RSA, "RS256"), (EC, "ES256"), (ED, "EdDSA"), (ED, "Ed25519")],
    ids=["RS256", "ES256", "EdDSA", "Ed25519"],
)
def test_public_keys_verify_what_their_private_halves_sign(key: RSAKey | ECKey | OKPKey, alg: str) -> None:
    """RSA, EC and Ed25519 keys, as PEM and as JSON Web Key; RFC 9864's name for EdDSA too."""
    token = make(key=key, alg=alg)
    jwk = json.dumps(key.as_dict(private=False))
    for text in (pem(key), jwk, json.dumps({"keys": [json.loads(jwk)]})):
        assert verifier(secrets=[], keys=[text]).verify(token).user == "anna"


def test_secret_and_public_key_side_by_side() -> None:
    """Both kinds may be configured: each verifies its own tokens only."""
    both = verifier(keys=[pem(RSA), pem(EC)])
    for token in (make(), make(key=RSA, alg="RS256"), make(key=EC, alg="ES256")):
        assert both.verify(token).user == "anna"


def test_all_secrets_verify() -> None:
    """While a secret is being replaced, tokens of the old and of the new one are good."""
    rotating = verifier(secrets=["n" * 32, SECRET])
    assert rotating.verify(make()).user == "anna"
    assert rotating.verify(make(key=OctKey.import_key("n" * 32))).user == "anna"
    assert refusal(make(key=OctKey.import_key("o" * 32)), secrets=["n" * 32, SECRET]) is Refusal.SIGNATURE


class TestForgeries:
    @pytest.mark.parametrize("alg", ["none", "None", "nOnE", "NONE", "", "HS1", "hs256"])
    def test_an_unsigned_token_is_refused(self, alg: str) -> None:
        """No spelling of "none", and no unknown algorithm, needs no key."""
        claims = {"sub": "anna", "exp": NOW + 900}
        for signature in (b"", b"x" * 32):
            assert refusal(unsigned({"alg": alg}, claims, signature)) is Refusal.ALGORITHM

    @pytest.mark.parametrize("space", ["", "\n", " \n\n", "\r\n"])
    def test_a_public_key_is_never_an_hmac_secret(self, space: str) -> None:
        """Everybody has the public key: a token "signed" with its text as an HS256 secret must not verify."""
        for text in (pem(RSA), pem(RSA).strip(), pem(EC)):
            forged = self._hmac(space + text + space)
            assert refusal(forged, secrets=[], keys=[text]) is Refusal.ALGORITHM
            assert refusal(forged, keys=[text]) is Refusal.SIGNATURE

    @staticmethod
    def _hmac(text: str) -> str:
        import hashlib
        import hmac

        head = unsigned({"alg": "HS256", "typ": "JWT"}, {"sub": "anna", "exp": NOW + 900}).rstrip(".")
        tag = hmac.new(text.encode(), head.encode(), hashlib.sha256).digest()
        return f"{head}.{base64.urlsafe_b64encode(tag).rstrip(b'=').decode()}"

    def test_a_public_key_given_as_a_secret_stops_the_start(self) -> None:
        """The same confusion, made by the operator: refused when the keys are read, surrounded by space or not."""
        for text in (pem(RSA), f"\n  {pem(EC)}", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ"):
            with pytest.raises(InvalidKey, match="TIDINGS_JWT_PUBLIC_KEY"):
                verifier(secrets=[text])

    def test_an_algorithm_that_is_not_allowed_is_refused(self) -> None:
        """The allow-list is ours, never the token's."""
        assert refusal(make(alg="HS512")) is Refusal.ALGORITHM
        assert refusal(make(key=RSA, alg="PS256"), keys=[pem(RSA)]) is Refusal.ALGORITHM
        assert verifier(algorithms=["HS512"]).verify(make(alg="HS512")).user == "anna"

    def test_keys_in_the_header_are_not_used(self) -> None:
        """`jwk`, `jku` and `x5u` name a key of the sender's choice: it is neither used nor fetched."""
        evil = RSAKey.generate_key(2048)
        extra = {
            "jwk": evil.as_dict(private=False),
            "jku": "https://evil.example/keys",
            "x5u": "https://evil.example/c",
        }
        assert refusal(make(key=evil, alg="RS256", header=extra), keys=[pem(RSA)]) is Refusal.SIGNATURE
        assert verifier().verify(make(header={"jku": "https://evil.example/keys"})).user == "anna"

    @pytest.mark.parametrize(
        "header", [{"crit": ["exp"], "exp": 1}, {"crit": ["x"], "x": 1}, {"crit": []}, {"b64": False, "crit": ["b64"]}]
    )
    def test_a_critical_extension_is_refused(self, header: dict[str, Any]) -> None:
        """RFC 7515 section 4.1.11: what must be understood and is not makes the token invalid."""
        assert refusal(make(header=header)) is Refusal.HEADER

    @pytest.mark.parametrize("typ", ["logout+jwt", "secevent+jwt", "JWE", 7])
    def test_a_token_for_another_purpose_is_refused(self, typ: object) -> None:
        """RFC 8725 section 3.11: the same key may sign other kinds of token."""
        assert refusal(make(header={"typ": typ})) is Refusal.HEADER

    @pytest.mark.parametrize("typ", ["JWT", "jwt", "at+jwt"])
    def test_the_types_of_access_tokens_are_accepted(self, typ: str) -> None:
        """RFC 9068 names access tokens at+jwt; case does not matter."""
        assert verifier().verify(make(header={"typ": typ})).user == "anna"

    def test_every_changed_byte_breaks_the_signature(self) -> None:
        """Nothing of a token can be changed without its key."""
        token = make()
        for index in range(0, len(token), 7):
            changed = token[:index] + ("A" if token[index] != "A" else "B") + token[index + 1 :]
            with pytest.raises(Unauthorized):
                verifier().verify(changed)


class TestTimes:
    @pytest.mark.parametrize(("exp", "ok"), [(NOW + 1, True), (NOW - 5, True), (NOW - 10, False), (NOW - 300, False)])
    def test_exp_has_only_the_stated_leeway(self, exp: int, ok: bool) -> None:
        """Clocks differ by seconds; a token is good until its end plus the leeway and no longer."""
        if ok:
            assert verifier().verify(make({"exp": exp})).expires_at_s == exp
        else:
            assert refusal(make({"exp": exp})) is Refusal.EXPIRED

    @pytest.mark.parametrize("claim", ["nbf", "iat"])
    @pytest.mark.parametrize(("ahead", "ok"), [(1, True), (10, True), (11, False), (300, False)])
    def test_a_token_from_the_future_waits(self, claim: str, ahead: int, ok: bool) -> None:
        """An issuer a second ahead is normal; one five minutes ahead is a mistake."""
        token = make({claim: NOW + ahead})
        if ok:
            assert verifier().verify(token).user == "anna"
        else:
            assert refusal(token) is Refusal.NOT_YET

    @pytest.mark.parametrize("exp", ["soon", True, [], {}, "NaN"])
    def test_an_exp_that_is_no_number_is_refused(self, exp: object) -> None:
        """It would otherwise never expire."""
        assert refusal(make({"exp": exp})) is Refusal.CLAIM_WRONG

    @pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"1e999", b"9" * 400])
    def test_an_exp_that_is_not_finite_is_refused(self, number: bytes) -> None:
        """Every comparison with NaN is false, so such a token would never expire."""
        assert refusal(make(b'{"sub":"anna","exp":%b}' % number)) is Refusal.CLAIM_WRONG

    def test_the_leeway_is_a_setting(self) -> None:
        """No leeway at all is possible."""
        assert refusal(make({"exp": NOW}), leeway_s=0) is Refusal.EXPIRED
        assert verifier(leeway_s=60).verify(make({"exp": NOW - 59})).ends_at_s == NOW + 1


class TestClaims:
    @pytest.mark.parametrize("claim", ["sub", "exp"])
    def test_required_claims(self, claim: str) -> None:
        """Without a user there is nobody to serve; without an end a stolen token is good for ever."""
        assert refusal(make({claim: None})) is Refusal.CLAIM_MISSING

    @pytest.mark.parametrize("sub", [7, ["anna"], {"a": 1}, True])
    def test_sub_must_be_a_string(self, sub: object) -> None:
        """User 7 and user "7" would otherwise depend on who formats the number."""
        assert refusal(make({"sub": sub})) is Refusal.CLAIM_WRONG

    @pytest.mark.parametrize("sub", ["a b", "a{b}", "*", "a\n", "ä", "a" * 129, "a/b", "a\u0000"])
    def test_sub_must_be_a_user_id(self, sub: str) -> None:
        """What is no user id is refused at this door too; nothing is normalised."""
        assert refusal(make({"sub": sub})) is Refusal.CLAIM_WRONG

    @pytest.mark.parametrize(
        "claim",
        [
            "all",
            {"topics": "all"},
            {"topics": [1]},
            {"topics": ["a b"]},
            {"topics": [""]},
            {"topics": ["x" * 65]},
            {"topics": [f"t{i}" for i in range(17)]},
            {"topics": ["a", "a"]},
            {"topics": {"all": True}},
            {"topics": ["*\n"]},
        ],
    )
    def test_topics_are_exact_names(self, claim: object) -> None:
        """At most 16 names of the topic grammar, none twice: a claim that is read half would grant half."""
        assert refusal(make({"tidings": claim})) is Refusal.CLAIM_WRONG

    @pytest.mark.parametrize("claim", [{}, {"topics": []}, {"other": 1}])
    def test_no_topics(self, claim: object) -> None:
        """A token without topics grants the user's own log only."""
        assert verifier().verify(make({"tidings": claim})).topics == ()

    def test_issuer(self) -> None:
        """When an issuer is named, no other's token counts, nor one without."""
        assert verifier(issuer="https://id.example").verify(make({"iss": "https://id.example"})).user == "anna"
        assert refusal(make({"iss": "https://id.example.evil"}), issuer="https://id.example") is Refusal.CLAIM_WRONG
        assert refusal(make(), issuer="https://id.example") is Refusal.CLAIM_MISSING

    def test_audience(self) -> None:
        """RFC 7519 section 4.1.3: who is not named in `aud` must refuse the token, also when nobody is configured."""
        assert verifier(audience=["push"]).verify(make({"aud": ["app", "push"]})).user == "anna"
        assert verifier(audience=["push", "other"]).verify(make({"aud": "other"})).user == "anna"
        assert refusal(make({"aud": "app"}), audience=["push"]) is Refusal.CLAIM_WRONG
        assert refusal(make(), audience=["push"]) is Refusal.CLAIM_MISSING
        assert refusal(make({"aud": "app"})) is Refusal.CLAIM_WRONG

    def test_a_token_id_must_be_a_string(self) -> None:
        """Revocation will compare it."""
        assert refusal(make({"jti": 7})) is Refusal.CLAIM_WRONG


class TestGarbage:
    @pytest.mark.parametrize("token", [None, ""])
    def test_no_token(self, token: str | None) -> None:
        """A missing token is told from a bad one, in the log only."""
        assert refusal(token) is Refusal.MISSING

    @pytest.mark.parametrize(
        "token",
        [
            *("a", "a.b", "a.b.c", "a.b.c.d", "....", "W10.e30.x", "bnVsbA.e30.x", "eyJhbGciOjF9.e30.x"),
            *("é.é.é", "\0.\0.\0", "\ud800.a.b", " ", "." * 8000),
        ],
    )
    def test_what_is_no_jwt(self, token: str) -> None:
        """No input makes anything but a refusal."""
        assert refusal(token) is Refusal.MALFORMED

    def test_a_deeply_nested_header_is_no_jwt(self) -> None:
        """The header is parsed before the signature is checked, so it must not be able to do harm."""
        nested = base64.urlsafe_b64encode(b'{"alg":' + b"[" * 5000).rstrip(b"=").decode()
        assert refusal(f"{nested}.e30.x") is Refusal.MALFORMED

    def test_a_huge_token_is_not_even_looked_at(self) -> None:
        """A megabyte of base64 must not cost a megabyte of decoding per connection."""
        assert refusal(make({"pad": "x" * 1_000_000})[: MAX_TOKEN_BYTES + 1]) is Refusal.TOO_LARGE
        assert refusal("x" * 1_000_000) is Refusal.TOO_LARGE

    @pytest.mark.parametrize("payload", [b"", b"[]", b"null", b'"sub"', b"{", b"[" * 3000, b"\xff"])
    def test_signed_claims_that_are_no_object(self, payload: bytes) -> None:
        """A signature does not make sense of nonsense."""
        assert refusal(make(payload)) is Refusal.MALFORMED

    def test_no_message_holds_the_token(self) -> None:
        """Refusals are logged: whatever is wrong, nothing of the token may be in the text."""
        canary = "canary-7f3a"
        tokens = [
            make({"sub": f"{canary} x"}),
            make({"iss": canary, "exp": 1}),
            make(header={"typ": canary}),
            make({"tidings": {"topics": [f"{canary} "]}}),
            unsigned({"alg": canary}, {"sub": canary}),
            f"{canary}.{canary}.{canary}",
        ]
        for token in tokens:
            with pytest.raises(Unauthorized) as caught:
                verifier(issuer="x").verify(token)
            text = f"{caught.value} {caught.value!r} {caught.value.detail}"
            assert canary not in text
            assert token not in text
            assert caught.value.__cause__ is None


def test_a_kid_chooses_among_keys_and_an_unknown_one_does_not_exclude() -> None:
    """With several keys the named one is tried; a key without a name still counts."""
    first = ECKey.generate_key("P-256", {"kid": "one"})
    second = ECKey.generate_key("P-256", {"kid": "two"})
    keys = [json.dumps({"keys": [first.as_dict(private=False), second.as_dict(private=False)]})]
    for key in (first, second):
        for kid in ("one", "two", "three", None):
            token = make(key=key, alg="ES256", header={"kid": kid} if kid else {})
            named_other = kid in ("one", "two") and kid != key.kid
            if named_other:
                assert refusal(token, secrets=[], keys=keys) is Refusal.SIGNATURE
            else:
                assert verifier(secrets=[], keys=keys).verify(token).user == "anna"
