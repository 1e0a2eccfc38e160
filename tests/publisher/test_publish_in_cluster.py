"""Publishing into a Cluster: each user's log where its slot is, also while that moves."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import orjson
import pytest
import redis

from tests.publisher.conftest import Make
from tests.publisher.hammer import Hammer, close
from tests.publisher.support import RealLog
from tests.support.cluster import Cluster, Node
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until_sync
from tidings import AsyncPublisher, Message, Publisher, PublishError, Receipt
from tidings.log.eventlog import append_command
from tidings.log.names import slot_of
from tidings.log.position import Position
from tidings.log.record import DurableRecord, parse_record
from tidings.publishing.faults import ServerError, fault_of

KINDS = [Publisher, AsyncPublisher]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(replicas=1) as cluster:
        yield cluster


@pytest.fixture
def users(cluster: Cluster) -> list[str]:
    """One user for each primary, in the order of the primaries."""
    return [_user_of(cluster, node) for node in cluster.primaries]


def _user_of(cluster: Cluster, node: Node, name: str = "user") -> str:
    found = (f"{name}{number}" for number in range(1000))
    return next(user for user in found if cluster.owner(slot_of(user)) is node)


def log_of(cluster: Cluster, prefix: str, user: str) -> RealLog:
    return RealLog(cluster.owner(slot_of(user)), prefix, user)


def test_slots_are_the_server_s_own(cluster: Cluster, prefix: str) -> None:
    """What we reckon is what the server reckons, for keys and channel of a user alike."""
    for user in ("a", "anna@example.com", "x" * 128, "~._:+=-"):
        log = RealLog(cluster.primaries[0], prefix, user)
        for name in (log.log_key, log.meta_key, log.names.channel(user), log.names.idem(user, "{k}")):
            assert cluster.slot(name) == slot_of(user)


def test_all_calls(make: Make, cluster: Cluster, users: list[str], prefix: str) -> None:
    """Whoever the user is: stored at the owner of the slot, heard by who listens there, confirmed by its replica."""
    with make(cluster.url, prefix=prefix) as publisher:
        for user in users:
            log = log_of(cluster, prefix, user)
            with log.listen(sharded=True) as channel:
                receipt = publisher.publish(user, "a", 1)
                assert (receipt.duplicate, receipt.listening) == (False, 1)
                heard = parse_record(channel.heard() or b"")
                assert isinstance(heard, DurableRecord)
                assert heard.position.decode() == receipt.position == publisher.position(user)
                assert publisher.publish(user, "a", 2, ephemeral=True) == Receipt(None, listening=1)
                assert publisher.publish(user, "a", 3, min_replicas=1).position


def test_more_replicas_than_there_are(make: Make, cluster: Cluster, prefix: str) -> None:
    """Not acknowledged, and in doubt."""
    with make(cluster.url, prefix=prefix, deadline_s=0.5) as publisher, pytest.raises(PublishError) as caught:
        publisher.publish("ann", "a", 1, min_replicas=2)
    assert (caught.value.code, caught.value.outcome_unknown) == ("unreplicated", True)


def test_many_go_in_one_pipeline_per_node(make: Make, cluster: Cluster, users: list[str], prefix: str) -> None:
    """Results in order, each user's events in order; every node is spoken to on one connection, once its scripts are
    loaded."""
    messages = [Message(users[number % 3], "a", number) for number in range(300)]
    with make(cluster.url, prefix=prefix) as publisher:
        before = [_connections(node) for node in cluster.primaries]
        results = publisher.publish_many(messages)
        opened = [_connections(node) - number for node, number in zip(cluster.primaries, before, strict=True)]
    assert all(isinstance(result, Receipt) for result in results)
    assert [Position.parse(result.position).seq for result in results] == [1 + number // 3 for number in range(300)]
    assert sum(opened) <= 4  # one more for the map, if other publishers have not left one
    for index, user in enumerate(users):
        entries = log_of(cluster, prefix, user).read(None, last=999, limit=999).entries
        assert [orjson.loads(entry.body)["data"] for entry in entries] == list(range(index, 300, 3))


def _connections(node: Node) -> int:
    return int(node.cli("INFO", "stats")["total_connections_received"])


def test_a_seed_that_is_gone(make: Make, cluster: Cluster, prefix: str) -> None:
    """Any node of the URL will do."""
    url = cluster.url.replace("://", "://127.0.0.1:1,")
    with make(url, prefix=prefix) as publisher:
        assert publisher.publish("ann", "a", 1).position


def test_half_way_through_a_move(make: Make, cluster: Cluster, prefix: str) -> None:
    """The keys are with the new owner, those who listen with the old one: new events are stored there and heard here,
    a repeated one is recognised and heard once more."""
    user = f"half-{prefix}"
    slot = slot_of(user)
    old = cluster.owner(slot)
    new = cluster.others(old)[0]
    log = RealLog(old, prefix, user)
    with make(cluster.url, prefix=prefix) as publisher, log.listen(sharded=True) as channel:
        first = publisher.publish(user, "a", 0)
        assert channel.heard()
        cluster.begin_move(slot, new)
        cluster.move_keys(slot, new)
        second = publisher.publish(user, "a", {"half": 1}, idempotency_key="half")
        assert (second.duplicate, second.listening) == (False, 1)
        heard = parse_record(channel.heard() or b"")
        assert isinstance(heard, DurableRecord)
        assert (heard.before.decode(), heard.position.decode()) == (first.position, second.position)
        again = publisher.publish(user, "a", {"other": 1}, idempotency_key="half")
        assert (again.position, again.duplicate) == (second.position, True)
        assert parse_record(channel.heard() or b"") == heard
        assert publisher.publish(user, "a", 1, ephemeral=True).listening == 1
        # The new owner is another primary than the one on which the log began: a new epoch, the same place.
        assert Position.parse(publisher.position(user))[1:] == Position.parse(second.position)[1:]
        cluster.end_move(slot, new)
        third = publisher.publish(user, "a", 2)
        assert Position.parse(third.position).seq == 3


def test_a_new_user_in_a_slot_that_moves(make: Make, cluster: Cluster, prefix: str) -> None:
    """No key of theirs is anywhere yet: the log begins with the new owner, once."""
    user = f"new-{prefix}"
    slot = slot_of(user)
    old = cluster.owner(slot)
    new = cluster.others(old)[0]
    cluster.begin_move(slot, new)
    with make(cluster.url, prefix=prefix) as publisher:
        position = publisher.publish(user, "a", 0, idempotency_key="k").position
        cluster.end_move(slot, new)
        assert publisher.publish(user, "a", 0, idempotency_key="k") == Receipt(position, duplicate=True)
    assert RealLog(new, prefix, user).top.decode() == position


def test_an_append_that_follows_an_ask_too_late(cluster: Cluster, prefix: str) -> None:
    """The slot is on its way back already: refused at its first look-up, with nothing stored, and repeatable."""
    user = f"late-{prefix}"
    slot = slot_of(user)
    old = cluster.owner(slot)
    new = cluster.others(old)[0]
    log = RealLog(old, prefix, user)
    top = log.append().position
    cluster.move(slot, new)
    cluster.begin_move(slot, old)
    log = RealLog(new, prefix, user)
    late = append_command(
        log.names, user, b"{}", epoch="x" * 8, tag=7, idempotency_key="k", sharded=True, asked=True
    ).evalsha()
    with pytest.raises(redis.ResponseError) as caught:
        new.cli(*late)
    fault = fault_of(ServerError(str(caught.value)))
    assert (fault.code, fault.retryable, fault.known) == ("unavailable", True, True)
    cluster.end_move(slot, old)
    assert RealLog(old, prefix, user).top.decode() == top


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["move", "migrate"])
async def test_slots_move_while_publishing(kind: Any, way: str, cluster: Cluster, prefix: str) -> None:
    """Key by key or at once, there and back: every acknowledged event is in its log, once and in order, and none
    failed."""
    publisher = kind(cluster.url, prefix=prefix, log_max_events=50_000, deadline_s=8)
    hammer = Hammer(publisher, [f"{name}-{prefix}" for name in ("ann", "bob", "cid", "dan")])

    def move_each() -> None:
        for user in hammer.users:
            slot = slot_of(user)
            old = cluster.owner(slot)
            new = cluster.others(old)[0]
            if way == "move":
                cluster.begin_move(slot, new)
                _published_meanwhile(hammer)
                cluster.move_keys(slot, new, most=2)
                cluster.end_move(slot, new)
            else:
                cluster.migrate(slot, new)
            _published_meanwhile(hammer)
            getattr(cluster, way)(slot, old)

    await hammer.through(move_each)
    assert hammer.lost(partial(log_of, cluster, prefix)) == set()
    assert (hammer.failed, hammer.unknown) == ({}, {})
    await close(publisher)


def _published_meanwhile(hammer: Hammer) -> None:
    enough = len(hammer.acknowledged) + 10
    until_sync(lambda: len(hammer.acknowledged) >= enough, 10, "events are acknowledged meanwhile")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_replica_takes_over_while_publishing(kind: Any, cluster: Cluster, prefix: str) -> None:
    """In agreement with its primary: nothing that was acknowledged with the replica is lost, and none failed."""
    publisher = kind(cluster.url, prefix=prefix, log_max_events=50_000, deadline_s=8)
    hammer = Hammer(publisher, [_user_of(cluster, node, f"{prefix}-") for node in cluster.primaries], min_replicas=1)
    await hammer.through(lambda: cluster.failover(cluster.primaries[0]))
    assert hammer.lost(partial(log_of, cluster, prefix)) == set()
    assert not hammer.failed
    await close(publisher)


def test_a_frozen_node_holds_up_its_own_users_alone(make: Make, cluster: Cluster, users: list[str]) -> None:
    """The events of the others are acknowledged; of its own it is said that the outcome is unknown."""
    messages = [Message(users[number % 3], "a", number) for number in range(30)]
    with make(cluster.url, prefix="frozen", deadline_s=1) as publisher:
        assert all(isinstance(result, Receipt) for result in publisher.publish_many(messages))
        cluster.primaries[0].freeze()
        try:
            results = publisher.publish_many(messages)
        finally:
            cluster.primaries[0].thaw()
    for number, result in enumerate(results):
        if number % 3:
            assert isinstance(result, Receipt), result
        else:
            assert isinstance(result, PublishError)
            assert result.outcome_unknown


def test_a_primary_that_dies(make: Make, prefix: str) -> None:
    """kill -9: its users' events wait for the replica that takes over, within the deadline; the others' do not wait."""
    with Cluster(replicas=1) as cluster, make(cluster.url, prefix=prefix, deadline_s=10) as publisher:
        dead = cluster.primaries[0]
        user, other = _user_of(cluster, dead), _user_of(cluster, cluster.primaries[1])
        first = publisher.publish(user, "a", 1, min_replicas=1)
        dead.kill()
        with make(cluster.url, prefix=prefix, deadline_s=0.5) as hasty, pytest.raises(PublishError) as caught:
            hasty.publish(user, "a", 2)
        assert (caught.value.code, caught.value.outcome_unknown) == ("unavailable", False)
        assert publisher.publish(other, "a", 1).position
        cluster.failover(dead, "TAKEOVER")
        second = publisher.publish(user, "a", 2)
        assert second.position.partition(".")[0] == first.position.partition(".")[0]
        assert Position.parse(second.position).seq == 2


def test_what_is_no_cluster(make: Make, cluster: Cluster, valkey: ValkeyProcess) -> None:
    """A cluster's URL for one server, and the other way round: said in words, at once."""
    with make(f"redis+cluster://127.0.0.1:{valkey.port}") as publisher:
        with pytest.raises(PublishError, match="redis://") as caught:
            publisher.publish("ann", "a", 1)
        assert (caught.value.code, caught.value.retryable) == ("cluster", False)
    wrong = next(node for node in cluster.primaries if node is not cluster.owner(slot_of("ann")))
    with make(wrong.url) as publisher:
        with pytest.raises(PublishError, match=r"redis\+cluster://") as caught:
            publisher.publish("ann", "a", 1)
        assert (caught.value.code, caught.value.retryable) == ("cluster", False)
