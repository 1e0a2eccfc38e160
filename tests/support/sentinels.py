"""Sentinels as real processes, over a primary with replicas: who is the primary is theirs to say, and to change."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Self

import redis

from tests.support.replicated import Replicated, is_primary
from tests.support.started import Started
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until_sync

DOWN_AFTER_MS = 500
_FAILOVER_TIMEOUT_MS = 3_000
"""Not how long a failover takes: after twice as long one that came to nothing is tried again."""
_LINKED_FAILOVER_TIMEOUT_MS = 60_000
"""After so long a replica that follows another address than the primary's, such as a proxy's, is put right."""

# Sentinel's own periods, seconds by default, which a test would only wait for. Of a primary that is down, a replica is
# good for promotion if its INFO is younger than five ping periods, and INFO then comes once a second.
_PERIODS = ("INFO-PERIOD", "100", "PING-PERIOD", "300", "ASK-PERIOD", "50", "PUBLISH-PERIOD", "50")
_DELAYS = ("MIN-LINK-RECONNECT-PERIOD", "50", "ELECTION-TIMEOUT", "500")
# Once they have met. A replica that calls itself primary for four of these is turned back by every Sentinel that has
# not heard of its promotion, and that takes a second.
_PUBLISH = ("PUBLISH-PERIOD", "500")


class SentinelProcess(ValkeyProcess):
    """One Sentinel. It keeps what it learns in its configuration file, so a restarted one still knows."""

    def __init__(
        self, primary_port: int, service: str, *settings: str, quorum: int = 1, timeout_ms: int = _FAILOVER_TIMEOUT_MS
    ) -> None:
        super().__init__()
        self._conf = self.directory / "sentinel.conf"
        lines = [
            f"sentinel monitor {service} 127.0.0.1 {primary_port} {quorum}",
            f"sentinel down-after-milliseconds {service} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {service} {timeout_ms}",
            *settings,
        ]
        self._conf.write_text("".join(f"{line}\n" for line in lines))

    def _command(self) -> list[str]:
        command = [self.binary, str(self._conf), "--sentinel", "--port", str(self.port), "--bind", "127.0.0.1"]
        return [*command, "--dir", str(self.directory), "--daemonize", "no"]


class Sentinels(Started):
    """A primary, its replicas and the Sentinels that watch them. One Sentinel is quick; give `count=3` where the point
    is that one of them is wrong or gone.

    `extra` goes to the data servers, `settings` are further lines of the Sentinels' configuration.
    """

    def __init__(
        self,
        *extra: str,
        replicas: int = 1,
        count: int = 1,
        service: str = "orders",
        linked: bool = False,
        settings: tuple[str, ...] = (),
    ) -> None:
        self.service = service
        self.count = count
        self.data = Replicated(*extra, replicas=replicas, linked=linked)
        self.sentinels: list[SentinelProcess] = []
        self._settings = settings
        self._timeout_ms = _LINKED_FAILOVER_TIMEOUT_MS if linked else _FAILOVER_TIMEOUT_MS

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{self.service}"

    @property
    def servers(self) -> list[ValkeyProcess]:
        return [self.data.primary, *self.data.replicas]

    @property
    def primary(self) -> ValkeyProcess:
        """Who the first Sentinel that runs says it is."""
        sentinel = next(sentinel for sentinel in self.sentinels if sentinel.running)
        _, port = sentinel.cli("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)
        return next(server for server in self.servers if server.port == int(port))

    @property
    def replicas(self) -> list[ValkeyProcess]:
        primary = self.primary
        return [server for server in self.servers if server is not primary]

    def start(self) -> Self:
        """Returns when every Sentinel knows every replica and every other Sentinel."""
        self.data.start()
        quorum = self.count // 2 + 1
        for _ in range(self.count):
            sentinel = SentinelProcess(
                self.data.primary.port, self.service, *self._settings, quorum=quorum, timeout_ms=self._timeout_ms
            )
            self.sentinels.append(sentinel)
            sentinel.start()
            sentinel.cli("SENTINEL", "DEBUG", *_PERIODS, *_DELAYS)
        until_sync(self._acquainted, 10, "the Sentinels know all replicas and each other")
        for sentinel in self.sentinels:
            sentinel.cli("SENTINEL", "DEBUG", *_PUBLISH)
        return self

    def _acquainted(self) -> bool:
        for sentinel in self.sentinels:
            known = sentinel.cli("SENTINEL", "MASTER", self.service)
            seen = (int(known[b"num-slaves"]), int(known[b"num-other-sentinels"]))
            if seen != (len(self.data.replicas), self.count - 1) or known[b"flags"] != b"master":
                return False
            replicas = sentinel.cli("SENTINEL", "REPLICAS", self.service)
            if any(replica[b"flags"] != b"slave" for replica in replicas):
                return False
        return True

    def failover(self, deadline_s: float = 15) -> ValkeyProcess:
        """On command: a replica is promoted and the old primary, which lives, becomes its replica. Returns the new
        primary, when all Sentinels name it and it takes writes."""
        old = self.primary
        running = [sentinel for sentinel in self.sentinels if sentinel.running]
        until_sync(lambda: _accepts(running[0], self.service), deadline_s, "the Sentinel begins a failover")
        return self.wait_moved(old, deadline_s)

    def wait_moved(self, old: ValkeyProcess, deadline_s: float = 15) -> ValkeyProcess:
        """Until every Sentinel names another primary than `old`, which was killed, say, and that one takes writes."""
        running = [sentinel for sentinel in self.sentinels if sentinel.running]

        def moved() -> bool:
            answers = [sentinel.cli("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service) for sentinel in running]
            return len({tuple(answer) for answer in answers}) == 1 and int(answers[0][1]) != old.port

        until_sync(moved, deadline_s, "the Sentinels name another primary")
        new = self.primary
        until_sync(lambda: is_primary(new), deadline_s, "the new primary is one")
        return new

    def wait_replicating(self, deadline_s: float = 15) -> None:
        """Until every replica that runs is in step with the primary, and the Sentinels would promote it."""
        running = sum(server.running for server in self.servers) - 1

        def good(sentinel: SentinelProcess) -> bool:
            replicas = sentinel.cli("SENTINEL", "REPLICAS", self.service)
            good = [replica for replica in replicas if replica[b"flags"] == b"slave"]
            return bool(sum(replica[b"master-link-status"] == b"ok" for replica in good) == running)

        # Each of them: any may be the one that is elected to choose the next primary.
        for sentinel in self.sentinels:
            if sentinel.running:
                until_sync(partial(good, sentinel), deadline_s, "the replicas are in step")

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self.data.close)
            for sentinel in self.sentinels:
                stack.callback(sentinel.close)


def _accepts(sentinel: SentinelProcess, service: str) -> bool:
    try:
        sentinel.cli("SENTINEL", "FAILOVER", service)
    except redis.ResponseError as error:
        if str(error).startswith(("INPROG", "NOGOODSLAVE")):  # it has not seen the last one's end yet
            return False
        raise
    return True
