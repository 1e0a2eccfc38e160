"""Who is there, when the URL does not name one server: Sentinels or nodes of a Cluster, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tidings.log.names import SLOTS
from tidings.redis_url import Kind
from tidings_gateway.check.finding import Finding, fail, note, ok, warn

MAJORITY_OF = 3
"""Fewer Sentinels cannot tell a dead primary from their own dead network."""


@dataclass(frozen=True, slots=True)
class SentinelFacts:
    """What one Sentinel says. `trouble`: why it says nothing; else `primary` is what it calls primary."""

    at: str
    trouble: str = ""
    primary: str = ""
    flags: tuple[str, ...] = ()
    quorum: int = 0
    sentinels: int = 0
    """It knows, itself included."""
    replicas: int = 0


@dataclass(frozen=True, slots=True)
class Topology:
    """`shards`: each primary of a Cluster with the number of its replicas."""

    kind: Kind = "single"
    service: str = ""
    sentinels: tuple[SentinelFacts, ...] = ()
    cluster: Mapping[str, str] = field(default_factory=dict)
    shards: Mapping[str, int] = field(default_factory=dict)
    trouble: str = ""
    """Why nobody could say where a primary is."""


def judge(topology: Topology) -> Iterator[Finding]:
    if topology.trouble:
        yield fail("connection", f"{topology.trouble}.", "TIDINGS_REDIS_URL, the network, or the servers' own logs")
    if topology.kind == "sentinel":
        yield from _sentinels(topology)
    elif topology.kind == "cluster" and topology.cluster:
        yield from _cluster(topology)


def _sentinels(topology: Topology) -> Iterator[Finding]:
    found = list(_silent(topology)) + list(_agreed(topology))
    yield from found
    told = [sentinel for sentinel in topology.sentinels if not sentinel.trouble]
    if told and not found:
        yield ok("sentinels", f"{told[0].sentinels} agree that {topology.service} is at {told[0].primary}.")


def _silent(topology: Topology) -> Iterator[Finding]:
    for sentinel in topology.sentinels:
        if sentinel.trouble:
            yield warn("sentinels", f"{sentinel.trouble}.", f"start it, or take {sentinel.at} out of TIDINGS_REDIS_URL")


def _agreed(topology: Topology) -> Iterator[Finding]:
    told = [sentinel for sentinel in topology.sentinels if not sentinel.trouble]
    if not told:
        return
    primaries = {sentinel.primary for sentinel in told}
    if len(primaries) > 1:
        words = f"They do not agree who is primary: {', '.join(sorted(primaries))}."
        yield warn(
            "sentinels", words, "a failover under way ends within seconds; else SENTINEL RESET the ones that are wrong"
        )
    first = told[0]
    down = [sentinel.at for sentinel in told if {"s_down", "o_down"} & set(sentinel.flags)]
    if down:
        yield fail("sentinels", f"The primary is down, says {', '.join(down)}.", "see the Sentinels' logs")
    count = max(sentinel.sentinels for sentinel in told)
    if first.quorum > count:
        words = f"A failover needs {first.quorum} Sentinels that agree (quorum), and there are {count}."
        yield fail("sentinels", words, f"SENTINEL SET {topology.service} quorum {count // 2 + 1}")
    elif count < MAJORITY_OF:
        words = f"{count} know each other: with fewer than three, one that is gone may mean that nobody fails over."
        yield warn("sentinels", words, "three, on three machines")
    elif len(topology.sentinels) < MAJORITY_OF:
        words = f"{count} there are, and TIDINGS_REDIS_URL names {len(topology.sentinels)}: name them all."
        yield note("sentinels", words)
    if not max(sentinel.replicas for sentinel in told):
        words = f"{topology.service} has no replica: there is nothing to fail over to."
        yield fail("sentinels", words, "a server with replicaof, on another machine")


def _cluster(topology: Topology) -> Iterator[Finding]:
    found = topology.cluster
    assigned = int(found.get("cluster_slots_assigned", "0"))
    state = found.get("cluster_state", "unknown")
    alone = sorted(primary for primary, replicas in topology.shards.items() if not replicas)
    if assigned < SLOTS:
        words = f"{SLOTS - assigned:,} of {SLOTS:,} slots are nobody's: their users' events are refused."
        yield fail("cluster", words, "CLUSTER ADDSLOTSRANGE, or valkey-cli --cluster fix")
    elif state != "ok":
        words = f"The Cluster's state is {state}: it may refuse everything, or the users of some slots."
        yield fail("cluster", words, "CLUSTER NODES says who failed")
    elif alone:
        words = f"Without a replica: {', '.join(alone)}. When one goes, the users of its slots can do nothing."
        yield warn("cluster", words, "a replica of each, on another machine")
    else:
        yield ok("cluster", f"{len(topology.shards)} primaries serve all slots, each with a replica.")
