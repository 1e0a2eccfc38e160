"""A Cluster of real processes: three primaries by default, each with replicas if wanted, and slots that move."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any, Self

import redis

from tests.support.ports import free_port
from tests.support.replicated import is_primary
from tests.support.started import Started
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until_sync

SLOTS = 16_384
_NODE_TIMEOUT_MS = 2_000


class Node(ValkeyProcess):
    """One node. Its bus has a port of its own choosing: the usual one, 10,000 higher, may be somebody else's."""

    def __init__(self, *extra: str) -> None:
        self.bus_port = free_port()
        settings = ["--cluster-enabled", "yes", "--cluster-port", str(self.bus_port)]
        settings += ["--cluster-node-timeout", str(_NODE_TIMEOUT_MS), "--repl-diskless-sync-delay", "0"]
        super().__init__(*settings, *extra)
        self.id = ""

    def start(self, deadline_s: float = 10, *, wait: bool = True) -> Self:
        super().start(deadline_s, wait=wait)
        if wait:
            self.id = self.cli("CLUSTER", "MYID").decode()
        return self


class Cluster(Started):
    """`primaries` share all slots evenly. `nodes` lists the primaries first, then their replicas."""

    def __init__(self, *extra: str, primaries: int = 3, replicas: int = 0) -> None:
        """`replicas`: of each primary."""
        self.primaries = [Node(*extra) for _ in range(primaries)]
        self.replicas = [[Node(*extra) for _ in range(replicas)] for _ in range(primaries)]

    @property
    def nodes(self) -> list[Node]:
        return [*self.primaries, *(node for group in self.replicas for node in group)]

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.primaries)

    def start(self) -> Self:
        """Returns when every node agrees on who serves what, and all slots are served."""
        nodes = self.nodes
        for node in nodes:
            node.start()
        count = len(self.primaries)
        for index, node in enumerate(self.primaries):
            first, after = SLOTS * index // count, SLOTS * (index + 1) // count
            node.cli("CLUSTER", "ADDSLOTSRANGE", first, after - 1)
            node.cli("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
        for node in nodes[1:]:
            nodes[0].cli("CLUSTER", "MEET", "127.0.0.1", node.port, node.bus_port)
        self._until(lambda node: known(node) == len(nodes), "every node knows the others")
        for primary, group in zip(self.primaries, self.replicas, strict=True):
            for replica in group:
                replica.cli("CLUSTER", "REPLICATE", primary.id)
        for group in self.replicas:
            for replica in group:
                until_sync(lambda: replica.cli("ROLE")[3] == b"connected", 10, "the replica is in step")  # noqa: B023
        self._until(lambda node: state(node) == "ok", "every node says that the cluster is ok")
        self._until(lambda node: len(node.cli("CLUSTER", "SLOTS")) == count, "every node has the whole map")
        return self

    def _until(self, holds: Any, what: str, nodes: Iterable[Node] | None = None, deadline_s: float = 15) -> None:
        for node in nodes or self.nodes:
            until_sync(lambda: holds(node), deadline_s, what)  # noqa: B023

    def slot(self, key: str | bytes) -> int:
        """The slot of a key or channel; only what stands in its braces counts."""
        return int(self.primaries[0].cli("CLUSTER", "KEYSLOT", key))

    def owner(self, slot: int) -> Node:
        """Which node serves it, asked of the nodes themselves."""
        for node in self._running:
            if _serves(node, node, slot):
                return node
        raise AssertionError(f"nobody serves slot {slot}")

    def others(self, node: Node) -> list[Node]:
        return [primary for primary in self.primaries if primary is not node]

    # The old way of moving a slot, in three steps, between which everything may happen.

    def begin_move(self, slot: int, to: Node) -> Node:
        """From now on, who asks for an absent key of the slot is sent to `to` (ASK); who asks for some present and some
        absent ones is told TRYAGAIN. Returns the old owner."""
        source = self.owner(slot)
        to.cli("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.cli("CLUSTER", "SETSLOT", slot, "MIGRATING", to.id)
        return source

    def move_keys(self, slot: int, to: Node, *, most: int = 1_000_000) -> int:
        """Carry over at most so many of the keys that are there now. Returns how many were."""
        source = self.owner(slot)
        keys: list[bytes] = source.cli("CLUSTER", "GETKEYSINSLOT", slot, most)
        if keys:
            source.cli("MIGRATE", "127.0.0.1", to.port, "", 0, 5000, "KEYS", *keys)
        return len(keys)

    def end_move(self, slot: int, to: Node) -> None:
        """Carry over the rest and hand the slot over; returns when every node knows."""
        source = self.owner(slot)
        while True:
            while self.move_keys(slot, to, most=100):
                pass
            try:
                # The new owner first: the other way round, for a moment nobody would own it.
                to.cli("CLUSTER", "SETSLOT", slot, "NODE", to.id)
                source.cli("CLUSTER", "SETSLOT", slot, "NODE", to.id)
                break
            except redis.ResponseError as error:
                if "only with masters" in str(error):  # it gave away its last slot and, told so, follows the new owner
                    break
                if "keys" not in str(error):  # one was written in between
                    raise
        self._settle(slot, to)

    def move(self, slot: int, to: Node) -> None:
        """All of it, key by key."""
        self.begin_move(slot, to)
        self.end_move(slot, to)

    def migrate(self, slot: int, to: Node) -> None:
        """All of it at once: the slot is copied in the background and changes hands between two commands
        (``CLUSTER MIGRATESLOTS``, Valkey 9). Clients see MOVED and nothing else."""
        source = self.owner(slot)
        source.cli("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", to.id)
        self._settle(slot, to)

    def _settle(self, slot: int, to: Node) -> None:
        what = f"every node knows the new owner of slot {slot}"
        self._until(lambda node: _serves(node, to, slot), what, self._running)

    def failover(self, primary: Node, *how: str) -> Node:
        """Its first replica takes over, in agreement with it unless `how` is ``FORCE`` or ``TAKEOVER``. Returns the new
        primary, when every node knows it."""
        index = self.primaries.index(primary)
        replica = self.replicas[index][0]
        replica.cli("CLUSTER", "FAILOVER", *how)
        until_sync(lambda: is_primary(replica), 15, "the replica takes over")
        self.primaries[index], self.replicas[index][0] = replica, primary
        self._until(lambda node: _serves(node, replica), "every node knows the new primary", self._running)
        return replica

    @property
    def _running(self) -> list[Node]:
        return [node for node in self.nodes if node.running]

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            for node in self.nodes:
                stack.callback(node.close)


def _serves(asked: Node, node: Node, slot: int | None = None) -> bool:
    """Whether `asked` says that `node` serves the slot, or anything at all."""
    return any(
        owner[2].decode() == node.id and (slot is None or first <= slot <= last)
        for first, last, owner, *_ in asked.cli("CLUSTER", "SLOTS")
    )


def state(node: Node) -> str:
    return _info(node)["cluster_state"]


def known(node: Node) -> int:
    return int(_info(node)["cluster_known_nodes"])


def _info(node: Node) -> dict[str, str]:
    return dict(line.split(":", 1) for line in node.cli("CLUSTER", "INFO").decode().split())
