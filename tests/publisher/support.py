"""A user's log on a real server, blocking: the scripts called as redis-cli would call them."""

from __future__ import annotations

import random
from typing import Any

import redis

from tests.support.valkey import ValkeyProcess
from tidings.log.eventlog import (
    DEFAULT_LIMITS,
    SCRIPTS,
    Failover,
    LogLimits,
    append_command,
    new_epoch,
    new_tag,
    parse_append,
    parse_page,
    read_command,
)
from tidings.log.names import Names
from tidings.log.page import Page
from tidings.log.receipt import Receipt
from tidings.log.script import Command

RNG = random.SystemRandom()


class RealLog:
    """The log of one user on `server`."""

    def __init__(
        self,
        server: ValkeyProcess,
        prefix: str,
        user: str = "u",
        limits: LogLimits = DEFAULT_LIMITS,
        failover: Failover = "trust",
    ) -> None:
        self.server = server
        self.names = Names(prefix)
        self.user = user
        self.limits = limits
        self.failover: Failover = failover
        for script in SCRIPTS:
            server.cli("SCRIPT", "LOAD", script.text)

    def run(self, command: Command) -> Any:
        return self.server.cli(*command.evalsha())

    def append(
        self, body: bytes = b"{}", *, key: str | None = None, epoch: str | None = None, tag: int | None = None
    ) -> Receipt:
        command = append_command(
            self.names,
            self.user,
            body,
            epoch=epoch or new_epoch(RNG),
            tag=tag or new_tag(RNG),
            idempotency_key=key,
            limits=self.limits,
        )
        return parse_append(self.run(command))

    def read(
        self,
        position: bytes | str | None,
        *,
        last: int = 0,
        limit: int = 128,
        max_bytes: int = 131_072,
        epoch: str | None = None,
    ) -> Page:
        command = read_command(
            self.names,
            self.user,
            position,
            new_epoch=epoch or new_epoch(RNG),
            last=last,
            limit=limit,
            max_bytes=max_bytes,
            meta_ttl_s=self.limits.meta_ttl_s,
            failover=self.failover,
        )
        return parse_page(self.run(command))

    @property
    def top(self) -> bytes:
        return self.read(None, limit=0).top

    @property
    def log_key(self) -> bytes:
        return self.names.log(self.user)

    @property
    def meta_key(self) -> bytes:
        return self.names.meta(self.user)

    def meta(self) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = self.server.cli("HGETALL", self.meta_key)
        return found

    def listen(self, *, sharded: bool = False) -> Listener:
        """A subscription to the user's channel, confirmed. Close it."""
        return Listener(self.server, self.names.channel(self.user), sharded=sharded)


class Listener:
    def __init__(self, server: ValkeyProcess, channel: bytes, *, sharded: bool = False) -> None:
        self._s = b"s" if sharded else b""
        connection: Any = redis.Connection  # untyped
        self._connection = connection(host="127.0.0.1", port=server.port, protocol=2, socket_timeout=5)
        self._connection.connect()
        self._connection.send_command(self._s + b"SUBSCRIBE", channel)
        assert self._connection.read_response() == [self._s + b"subscribe", channel, 1]

    def heard(self, timeout_s: float = 5.0) -> bytes | None:
        """The next published message, or None when none came in time."""
        if not self._connection.can_read(timeout=timeout_s):
            return None
        kind, _, data = self._connection.read_response()
        assert kind == self._s + b"message"
        assert isinstance(data, bytes)
        return data

    def close(self) -> None:
        self._connection.disconnect()

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def filled(log: RealLog, count: int) -> list[bytes]:
    """Appends entries 1 to `count` of EpochOne, tagged 101, 102, …; gives the positions from `EpochOne.0-0` on."""
    at = [log.read(None, epoch="EpochOne").top]
    for number in range(1, count + 1):
        position = log.append(b"%d" % number, tag=100 + number).position
        assert position is not None
        at.append(position.encode())
    return at
