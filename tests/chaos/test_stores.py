"""The Redis of a run is of the shape that its strikes need."""

from __future__ import annotations

import pytest
import redis

from tests.chaos.stores import Single, Watched, store_for


async def test_a_failover_needs_sentinels() -> None:
    """And a single server says that it has nothing to fail over to."""
    single, watched = store_for(["kill", "flush"]), store_for(["kill", "failover"])
    assert isinstance(single, Single)
    assert isinstance(watched, Watched)
    with pytest.raises(redis.RedisError, match="nothing to fail over to"):
        await single.failover()


@pytest.mark.full
async def test_a_failover_right_after_a_death() -> None:
    """The other server is the primary when it returns, whatever came before."""
    async with Watched() as store:
        first = store.primary
        assert store.url.startswith("redis+sentinel://")
        await store.failover()
        second = store.primary
        assert second is not first
        second.kill()
        second.start()
        await store.failover()
        assert store.primary.role() == b"master"
