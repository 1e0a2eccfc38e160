"""Who is asked where the primary is."""

from __future__ import annotations

import pytest

from tidings.redis_url import parse_redis_url
from tidings_gateway.bus.endpoint import Endpoint
from tidings_gateway.bus.locate import OneServer, locator_of
from tidings_gateway.bus.sentinel import Sentinels


async def test_one_server_is_where_the_url_says() -> None:
    """And never moves: there is nobody to ask."""
    locator = locator_of(parse_redis_url("redis://cache:7000"), timeout_ms=100)
    assert isinstance(locator, OneServer)
    assert not locator.watches
    assert await locator.locate() == Endpoint("cache", 7000)
    assert await locator.moved(Endpoint("elsewhere")) is None


@pytest.mark.parametrize("url", ["redis+sentinel://a,b/orders", "rediss+sentinel://a/orders?ssl_cert_reqs=none"])
def test_sentinels_are_asked_again_and_again(url: str) -> None:
    """Also with TLS."""
    locator = locator_of(parse_redis_url(url), timeout_ms=100)
    assert isinstance(locator, Sentinels)
    assert locator.watches
