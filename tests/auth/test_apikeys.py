"""API keys: any of several, compared by digest."""

from __future__ import annotations

import hashlib

import pytest

from tidings_gateway.auth.apikeys import ApiKeys

FIRST, SECOND = "first-" + "k" * 32, "second-" + "k" * 32


def test_any_of_the_keys_is_accepted() -> None:
    """While a key is being replaced, the old and the new one are good."""
    keys = ApiKeys([FIRST, SECOND])
    assert keys.accepts(FIRST)
    assert keys.accepts(SECOND)


@pytest.mark.parametrize("presented", ["", FIRST[:-1], FIRST + "x", FIRST.upper(), " " + FIRST, "\udcff", "é"])
def test_anything_else_is_refused(presented: str) -> None:
    """Whole keys only; whatever bytes a header can hold."""
    assert not ApiKeys([FIRST]).accepts(presented)


def test_a_key_may_be_given_by_its_digest() -> None:
    """And its digest is not itself a key."""
    entry = "sha256:" + hashlib.sha256(FIRST.encode()).hexdigest()
    keys = ApiKeys([entry])
    assert keys.accepts(FIRST)
    assert not keys.accepts(entry)


def test_without_keys_nothing_is_accepted() -> None:
    """An empty list closes the door."""
    assert not ApiKeys([])
    assert not ApiKeys([]).accepts("")


def test_every_key_is_compared_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time an answer takes says neither which key matched nor whether one did."""
    import hmac

    compared: list[bytes] = []
    real = hmac.compare_digest

    def counting(a: bytes, b: bytes) -> bool:
        compared.append(b)
        return real(a, b)

    monkeypatch.setattr("tidings_gateway.auth.apikeys.hmac.compare_digest", counting)
    keys = ApiKeys([FIRST, SECOND])
    for presented in (FIRST, SECOND, "neither"):
        compared.clear()
        keys.accepts(presented)
        assert len(compared) == 2


def test_the_header() -> None:
    """Authorization: Bearer, once."""
    keys = ApiKeys([FIRST])
    good = (b"authorization", f"Bearer {FIRST}".encode())
    assert keys.authorize([good])
    assert not keys.authorize([])
    assert not keys.authorize([good, good])
    assert not keys.authorize([(b"authorization", f"Basic {FIRST}".encode())])
