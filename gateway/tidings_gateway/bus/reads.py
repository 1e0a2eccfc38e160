"""The command of a read: what an installation's settings put into every one of them."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tidings.log.eventlog import Failover, new_epoch, read_command
from tidings.log.names import Names
from tidings.log.script import Command


@dataclass(frozen=True, slots=True)
class Reads:
    """`lone_key`: for a Cluster, see `read_command`."""

    names: Names
    rng: random.Random
    meta_ttl_s: int
    failover: Failover
    lone_key: bool = False

    def command(self, user: str, position: bytes | None, *, last: int, limit: int, max_bytes: int) -> Command:
        """Raises `InvalidUser` and `InvalidPosition`."""
        return read_command(
            self.names,
            user,
            position,
            new_epoch=new_epoch(self.rng),
            last=last,
            limit=limit,
            max_bytes=max_bytes,
            meta_ttl_s=self.meta_ttl_s,
            failover=self.failover,
            lone_key=self.lone_key,
        )
