"""Which credential counts: the first that is present decides, also when it is bad."""

from __future__ import annotations

from typing import Any

import pytest

from tidings_gateway.auth.credentials import MAX_QUERY_FIELDS, OriginRequired, request_token
from tidings_gateway.auth.tokens import Refusal, Unauthorized


def token(*headers: tuple[str, str], query: str = "", cookie_name: str = "sid", has_origin: bool = True) -> str | None:
    scope: dict[str, Any] = {
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
        "query_string": query.encode(),
    }
    return request_token(scope, cookie_name=cookie_name, has_origin=has_origin)


BEARER = ("authorization", "Bearer from-header")
COOKIE = ("cookie", "a=b; sid=from-cookie; c=d")


def test_the_authorization_header_comes_first() -> None:
    """Then the ticket, then the cookie."""
    assert token(BEARER, COOKIE, query="ticket=t") == "from-header"
    with pytest.raises(Unauthorized):
        token(COOKIE, query="ticket=t")
    assert token(COOKIE) == "from-cookie"
    assert token() is None


def test_a_ticket_is_refused_for_now() -> None:
    """A definite answer: the client must not wait for a store that does not exist."""
    for query in ("ticket=abc", "x=1&ticket=abc", "ticket=", "%74icket=abc&ticket=x"):
        with pytest.raises(Unauthorized) as caught:
            token(query=query)
        assert caught.value.refusal is Refusal.TICKETS


def test_a_query_too_long_to_read_is_refused() -> None:
    """A ticket may hide behind the bound, and then another credential would count."""
    with pytest.raises(Unauthorized):
        token(query="&".join(["a=1"] * MAX_QUERY_FIELDS) + "&ticket=x")


@pytest.mark.parametrize("query", ["token=secret", "access_token=secret", "authorization=Bearer%20secret", "xticket=1"])
def test_a_token_in_the_url_is_no_credential(query: str) -> None:
    """URLs end up in logs of every proxy on the way."""
    assert token(query=query) is None


def test_an_empty_bearer_is_present_and_bad() -> None:
    """It is not skipped in favour of a cookie."""
    assert token(("authorization", "Bearer "), COOKIE) == ""


@pytest.mark.parametrize("value", ["bearer x", "BEARER x", "Bearer  x "])
def test_the_scheme_is_case_insensitive(value: str) -> None:
    """RFC 9110 section 11.1."""
    assert token(("authorization", value)) == "x"


def test_another_scheme_is_no_credential_of_ours() -> None:
    """A proxy's Basic password in front of us is not a token."""
    assert token(("authorization", "Basic dTpw"), COOKIE) == "from-cookie"


def test_two_authorization_headers_are_refused() -> None:
    """Which one counts would be a guess."""
    with pytest.raises(Unauthorized):
        token(BEARER, ("authorization", "Bearer other"))


def test_a_cookie_needs_an_origin() -> None:
    """Browsers send cookies whoever's page asks; only the Origin shows whose it was."""
    with pytest.raises(OriginRequired):
        token(COOKIE, has_origin=False)
    assert token(BEARER, COOKIE, has_origin=False) == "from-header"


def test_only_the_named_cookie_counts() -> None:
    """Without a name in the settings no cookie is ever looked at."""
    assert token(COOKIE, cookie_name="") is None
    assert token(COOKIE, cookie_name="si") is None
    assert token(("cookie", "xsid=1; sid2=2"), cookie_name="sid") is None
    assert token(("cookie", "x=1"), ("cookie", 'sid="quoted"'), cookie_name="sid") == "quoted"
