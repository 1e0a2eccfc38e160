"""What a publisher is made from."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.tokens import API_KEY
from tidings.errors import InvalidEvent, InvalidSetting
from tidings.publishing.config import Config
from tidings.publishing.http_wire import HttpWire
from tidings.publishing.message import AskPosition
from tidings.publishing.redis_wire import RedisWire


def config(url: str | None = None, **arguments: Any) -> Config:
    names = ("api_key", "prefix", "log_max_events", "log_ttl_s", "meta_ttl_s", "idempotency_ttl_s")
    given = {**dict.fromkeys((*names, "max_event_bytes", "failover")), "deadline_s": 2.0, "max_connections": 16}
    return Config(url, **{**given, **arguments})


def test_the_url_decides_the_way() -> None:
    """redis, rediss and unix go to the log itself, http and https to a gateway."""
    for url in (None, "redis://h", "rediss://h", "unix:///x"):
        assert isinstance(config(url).wire(), RedisWire)
    for url in ("http://h", "https://h/base"):
        assert isinstance(config(url, api_key=API_KEY).wire(), HttpWire)


@pytest.mark.parametrize(
    ("failover", "passed"), [(None, b"trust"), ("auto", b"trust"), ("trust", b"trust"), ("resync", b"resync")]
)
def test_failover(failover: str | None, passed: bytes) -> None:
    """One server is trusted to keep what it acknowledged, unless it is said not to be: a position given to a page must
    be stamped as the gateway's own reads are."""
    batch = config(failover=failover).wire().batch([AskPosition("a")], 2.0)
    assert batch.request.commands[-1][-1] == passed


@pytest.mark.parametrize("url", ["redis+sentinel://s/orders", "redis+cluster://c"])
def test_where_a_replica_takes_over_the_epoch_ends(url: str) -> None:
    """`auto` with Sentinel and Cluster is `resync`: what the old primary acknowledged may be gone."""
    assert config(url)._failover == "resync"
    assert config(url, failover="trust")._failover == "trust"


@pytest.mark.parametrize(
    "arguments",
    [
        {"deadline_s": 0},
        {"deadline_s": -1},
        {"deadline_s": float("inf")},
        {"deadline_s": float("nan")},
        {"max_connections": 0},
        {"prefix": "{"},
        {"failover": "never"},
        {"log_ttl_s": 100, "meta_ttl_s": 60},
        {"api_key": API_KEY},
    ],
)
def test_what_makes_no_sense(arguments: dict[str, Any]) -> None:
    """Refused at once."""
    with pytest.raises(InvalidSetting):
        config(**arguments)


def test_the_limit_of_events() -> None:
    """The one set here, also over HTTP, so that a large event is refused before it is sent."""
    for made in (config(max_event_bytes=300), config("http://h", api_key=API_KEY, max_event_bytes=300)):
        made.event("a", "x" * 100, None, 0)
        with pytest.raises(InvalidEvent):
            made.event("a", "x" * 300, None, 0)
