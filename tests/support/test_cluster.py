"""The test Cluster itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from tests.support.cluster import Cluster
from tests.support.replicated import is_primary


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(replicas=1) as cluster:
        yield cluster


@pytest.mark.parametrize("way", ["move", "migrate"])
def test_a_slot_moves(cluster: Cluster, way: str) -> None:
    """Key by key, or at once: the new owner has the key, every node sends there."""
    key = f"p:{{{way}}}"
    slot = cluster.slot(key)
    old = cluster.owner(slot)
    new, third = cluster.others(old)
    old.cli("SET", key, "1")
    getattr(cluster, way)(slot, new)
    assert cluster.owner(slot) is new
    assert new.cli("GET", key) == b"1"
    for node in (old, third):
        with pytest.raises(redis.exceptions.MovedError) as moved:
            node.cli("GET", key)
        assert moved.value.port == new.port


def test_half_way_through_a_move(cluster: Cluster) -> None:
    """An absent key is asked for elsewhere, a present one is answered."""
    slot = cluster.slot("{half}")
    old = cluster.owner(slot)
    new = cluster.others(old)[0]
    old.cli("SET", "{half}a", "1")
    assert cluster.begin_move(slot, new) is old
    assert old.cli("GET", "{half}a") == b"1"
    with pytest.raises(redis.exceptions.AskError):
        old.cli("GET", "{half}b")
    with pytest.raises(redis.exceptions.TryAgainError):
        old.cli("MGET", "{half}a", "{half}b")
    assert cluster.move_keys(slot, new) == 1
    cluster.end_move(slot, new)
    assert new.cli("GET", "{half}a") == b"1"


def test_a_replica_takes_over(cluster: Cluster) -> None:
    """In agreement with its primary, nothing is lost; the names say who is what."""
    old = cluster.primaries[0]
    new = cluster.failover(old)
    assert is_primary(new)
    assert not is_primary(old)
    assert cluster.primaries[0] is new
    assert cluster.replicas[0] == [old]
