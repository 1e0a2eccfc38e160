"""The replicated test servers themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.proxy import FaultProxy
from tests.support.replicated import Replicated, is_primary
from tests.support.waiting import until_sync


@pytest.fixture(scope="module")
def servers() -> Iterator[Replicated]:
    with Replicated(linked=True) as servers:
        yield servers


def test_the_link_can_be_black_holed(servers: Replicated) -> None:
    """What is written meanwhile is acknowledged by the primary alone, and reaches the replica after the release."""
    (replica,) = servers.replicas
    assert servers.link is not None
    servers.link.call(FaultProxy.blackhole)
    servers.primary.cli("SET", "a", "1")
    assert servers.primary.cli("WAIT", 1, 100) == 0
    assert replica.cli("GET", "a") is None
    servers.link.call(FaultProxy.release)
    until_sync(lambda: replica.cli("GET", "a") == b"1", 5, "the replica catches up")


def test_promoted_in_place(servers: Replicated) -> None:
    """The old primary stays up, as a replica of the new one, and refuses writes."""
    old = servers.primary
    new = servers.promote()
    assert is_primary(new)
    servers.wait_online()
    assert servers.replicas == [old]
    with pytest.raises(Exception, match="read only replica"):
        old.cli("SET", "b", "1")
    new.cli("SET", "b", "1")
    assert new.cli("WAIT", 1, 5000) == 1
    assert old.cli("GET", "b") == b"1"
