"""A primary with replicas, each a real process; and the link between them, which a test may cut or black-hole."""

from __future__ import annotations

import contextlib
from typing import Any, Self

import redis

from tests.support.proxy import ThreadedProxy
from tests.support.started import Started
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until_sync

# A replica is in step within a tick, and a dead link is noticed within seconds rather than a minute.
_QUICK = ("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")


class Replicated(Started):
    """`primary` and `replicas`. `linked`: the replicas reach the primary through `link`, a proxy; clients do not.

    `extra` goes to the command line of every server. After `promote` the names say who is what now.
    """

    def __init__(self, *extra: str, replicas: int = 1, linked: bool = False) -> None:
        self.primary = ValkeyProcess(*_QUICK, *extra)
        self.replicas = [ValkeyProcess(*_QUICK, *extra) for _ in range(replicas)]
        self.link: ThreadedProxy | None = None
        self._linked = linked
        self._all = [self.primary, *self.replicas]

    def start(self) -> Self:
        """Returns when every replica is online: what is written from now on reaches it."""
        self.primary.start()
        leads_to = self.primary.port
        if self._linked:
            self.link = ThreadedProxy(self.primary.port)
            leads_to = self.link.port
        for replica in self.replicas:
            replica.start()
            replica.cli("REPLICAOF", "127.0.0.1", leads_to)
        self.wait_online()
        return self

    def wait_online(self, deadline_s: float = 10) -> None:
        """Until every replica is in step with the primary."""
        wanted = len(self.replicas)
        until_sync(lambda: online(self.primary) == wanted, deadline_s, f"{wanted} replicas are online")
        for replica in self.replicas:
            until_sync(lambda: role(replica)[3] == b"connected", deadline_s, "the replica is in step")  # noqa: B023

    def promote(self, replica: ValkeyProcess | None = None) -> ValkeyProcess:
        """A replica becomes the primary, and the old primary its replica, in place: both alive, connections open, as
        after a failover by hand. Returns the new primary."""
        new = replica or self.replicas[0]
        new.cli("REPLICAOF", "NO", "ONE")
        self.replicas = [server for server in self._all if server is not new]
        self.primary = new
        for server in self.replicas:
            if server.running:
                server.cli("REPLICAOF", "127.0.0.1", new.port)
        return new

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            for server in self._all:
                stack.callback(server.close)
            if self.link is not None:
                stack.callback(self.link.close)


def role(server: ValkeyProcess) -> Any:
    """The answer to ROLE: ``[b"master", offset, replicas]`` or ``[b"slave", host, port, state, offset]``."""
    return server.cli("ROLE")


def is_primary(server: ValkeyProcess) -> bool:
    """False also when it cuts the connection, as it does while its role changes."""
    try:
        return bool(role(server)[0] == b"master")
    except redis.ConnectionError:
        return False


def online(primary: ValkeyProcess) -> int:
    """How many replicas the primary counts as online."""
    info = primary.cli("INFO", "replication")
    found = (info.get(f"slave{index}", {}) for index in range(info["connected_slaves"]))
    return sum(replica.get("state") == "online" for replica in found)
