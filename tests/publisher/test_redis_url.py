"""Redis URLs: what is understood, and what is refused in which words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.errors import InvalidSetting
from tidings.redis_url import Address, Credentials, RedisUrl, TlsOptions, parse_redis_url

CACHE = (Address("cache", 6379),)
GW = Credentials("secret", "gw")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://cache", RedisUrl("single", CACHE)),
        (" REDIS://Cache:6379/ \n", RedisUrl("single", CACHE)),
        ("redis://cache:7000/0", RedisUrl("single", (Address("cache", 7000),))),
        ("redis://cache?db=0", RedisUrl("single", CACHE)),
        ("redis://:p%40s+s@cache", RedisUrl("single", CACHE, credentials=Credentials("p@s+s"))),
        ("redis://:@cache", RedisUrl("single", CACHE, credentials=Credentials(""))),
        ("redis://gw:secret@[::1]:7000/", RedisUrl("single", (Address("::1", 7000),), credentials=GW)),
        ("unix:///run/v%20k.sock", RedisUrl("single", path="/run/v k.sock")),
        ("unix://gw:secret@/run/valkey.sock?db=0", RedisUrl("single", path="/run/valkey.sock", credentials=GW)),
        ("rediss://cache", RedisUrl("single", CACHE, tls=TlsOptions())),
        ("redis+cluster://cache", RedisUrl("cluster", CACHE)),
        (
            "rediss+cluster://gw:secret@a:1,b,[::1]:3/0?ssl_ca_certs=/ca.pem",
            RedisUrl(
                "cluster",
                (Address("a", 1), Address("b", 6379), Address("::1", 3)),
                credentials=GW,
                tls=TlsOptions(ca_certs="/ca.pem"),
            ),
        ),
        ("redis+sentinel://s/orders", RedisUrl("sentinel", (Address("s", 26379),), service="orders")),
        (
            "redis+sentinel://gw:secret@s1:1,s2:2,s3/orders/0?sentinel_username=w&sentinel_password=a%26+b",
            RedisUrl(
                "sentinel",
                (Address("s1", 1), Address("s2", 2), Address("s3", 26379)),
                service="orders",
                credentials=GW,
                sentinel_credentials=Credentials("a&+b", "w"),
            ),
        ),
        (
            "rediss+sentinel://s/orders?ssl_cert_reqs=none",
            RedisUrl(
                "sentinel",
                (Address("s", 26379),),
                service="orders",
                tls=TlsOptions(cert_reqs="none", check_hostname=False),
            ),
        ),
    ],
)
def test_urls(url: str, expected: RedisUrl) -> None:
    """The forms operators write."""
    assert parse_redis_url(url) == expected


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "not a URL"),
        ("cache:6379", "not a URL"),
        ("http://:secret@cache", "must start with"),
        ("redis+other://:secret@cache", "must start with"),
        ("redis://", "must name a host"),
        ("redis://:secret@", "must name a host"),
        ("redis://:secret@:6379", "not a URL"),
        ("redis://:secret@cache:port", "not a URL"),
        ("redis://:secret@cache:0", "1 to 65535"),
        ("redis://:secret@cache:65536", "1 to 65535"),
        ("redis://:secret@[::1", "not a URL"),
        ("redis://:sec#ret@cache", "%23"),
        ("redis://:secret@cache/1", "database other than 0"),
        ("redis://:secret@cache?db=3", "database other than 0"),
        ("redis://secret@cache", "no password"),
        ("redis://:secret@a,b", "several hosts"),
        ("redis://:secret@cache?socket_timeout=5", "socket_timeout"),
        ("redis://:secret@cache?ssl_ca_certs=x", "ssl_ca_certs"),
        ("redis://cache?sentinel_password=secret", "sentinel_password"),
        ("redis://cache?a:secret", r"\(not shown\)"),
        ("rediss://:secret@cache?ssl_cert_reqs=maybe", "ssl_cert_reqs"),
        ("unix://", "must name the socket"),
        ("unix://run/valkey.sock", "must name the socket"),
        ("unix:///run/valkey.sock?db=1", "database other than 0"),
        ("redis+sentinel://:secret@s", "must name the service"),
        ("redis+sentinel://:secret@s/a b", "must name the service"),
        ("redis+sentinel://:secret@/orders", "must name a host"),
        ("redis+sentinel://:secret@s/orders/1", "database other than 0"),
        ("redis+sentinel://s/orders?sentinel_username=secret", "no password"),
        ("redis+cluster://:secret@a,,b", "not a URL"),
        ("redis+cluster://:secret@a/orders", "database other than 0"),
    ],
)
def test_urls_refused(url: str, why: str) -> None:
    """Said in words, without what may be a password."""
    with pytest.raises(InvalidSetting, match=why) as raised:
        parse_redis_url(url)
    assert "secret" not in str(raised.value)


@given(st.text())
def test_any_text_is_understood_or_refused(text: str) -> None:
    """Never another error, and never an address out of nothing."""
    try:
        parsed = parse_redis_url(f"redis+cluster://{text}")
    except InvalidSetting:
        return
    assert parsed.addresses


def test_a_name_is_checked_only_where_the_certificate_is() -> None:
    """`rediss` verifies both; each can be switched off by name only."""
    assert parse_redis_url("rediss://h").tls == TlsOptions()
    assert parse_redis_url("rediss://h?ssl_check_hostname=False").tls == TlsOptions(check_hostname=False)
    assert parse_redis_url("rediss://h?ssl_cert_reqs=optional").tls == TlsOptions(
        cert_reqs="optional", check_hostname=False
    )
    assert parse_redis_url("redis://h").tls is None


def test_credentials_are_not_shown() -> None:
    """Neither in the text for people nor in the repr that a traceback may hold."""
    url = parse_redis_url("redis+sentinel://gw:secret@a,[::1]:5/orders?sentinel_password=secret")
    assert str(url) == "a:26379,[::1]:5 (orders)"
    assert "secret" not in repr(url)
    assert str(parse_redis_url("unix://:secret@/run/v.sock")) == "/run/v.sock"
