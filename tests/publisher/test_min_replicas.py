"""Acknowledged only when replicas have it too, on real servers with the link between them cut."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.publisher.conftest import Make
from tests.publisher.support import RealLog
from tests.support.proxy import FaultProxy
from tests.support.replicated import Replicated
from tests.support.waiting import until_sync
from tidings import InvalidEvent, Message, PublishError, Receipt
from tidings.log.position import Position


@pytest.fixture(scope="module")
def servers() -> Iterator[Replicated]:
    with Replicated(linked=True) as servers:
        yield servers


def test_a_repetition_goes_on_waiting(make: Make, servers: Replicated, prefix: str) -> None:
    """Stored, but not confirmed: never acknowledged, by a repetition neither, until the replica has it. Then it is the
    event stored first."""
    assert servers.link is not None
    log = RealLog(servers.primary, prefix, "ann")
    with make(servers.primary.url, prefix=prefix, deadline_s=0.6) as publisher:
        assert publisher.publish("ann", "a", 1, min_replicas=1).duplicate is False
        servers.link.call(FaultProxy.blackhole)
        try:
            for _ in range(2):
                with pytest.raises(PublishError) as caught:
                    publisher.publish("ann", "a", 2, idempotency_key="k", min_replicas=1)
                error = caught.value
                assert (error.code, error.retryable, error.outcome_unknown) == ("unreplicated", True, True)
                assert error.idempotency_key == "k"
            assert publisher.publish("ann", "a", 3).position, "who asks for no replica does not wait for one"
        finally:
            servers.link.call(FaultProxy.release)
        until_sync(lambda: servers.primary.cli("WAIT", 1, 100) == 1, 10, "the replica catches up")
        receipt = publisher.publish("ann", "a", 2, idempotency_key="k", min_replicas=1)
        assert receipt.duplicate
        assert Position.parse(receipt.position).seq == 2
    assert len(log.read(None, last=9).entries) == 3


def test_each_of_many_asks_for_itself(make: Make, servers: Replicated, prefix: str) -> None:
    """One that asks for more replicas than there are is an error in its place; the others are acknowledged."""
    with make(servers.primary.url, prefix=prefix, deadline_s=0.6) as publisher:
        one, two, none = publisher.publish_many(
            [Message("ann", "a", 1, min_replicas=1), Message("bob", "a", 1, min_replicas=2), Message("cid", "a", 1)]
        )
        assert isinstance(one, Receipt)
        assert isinstance(two, PublishError)
        assert isinstance(none, Receipt)
        assert two.code == "unreplicated"
        with pytest.raises(InvalidEvent):
            publisher.publish("ann", "a", 1, ephemeral=True, min_replicas=1)
