"""Where clients behind a proxy land, and what a gateway answers while it leaves."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support.client import Client
from tests.support.follower import Frame
from tests.support.gateway import GatewayProcess
from tests.support.ledger import Ledger
from tests.support.rawsocket import Ended, RawSocket
from tidings import AsyncPublisher
from tidings.errors import PublishError


@dataclass(frozen=True, slots=True)
class Landing:
    gateway: str
    at: float
    """`time.monotonic()` of the welcome."""


class Traced(Client):
    """A client that notes on which gateway it landed: `TIDINGS_GATEWAY_NAME` begins the session's id."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.landings: list[Landing] = []

    def take(self, frame: Frame) -> bool:
        if frame.get("type") == "welcome":
            self.landings.append(Landing(frame["session"].partition("-")[0], time.monotonic()))
        return super().take(frame)

    def told_to_go(self) -> list[float]:
        """When a drain closed its connections."""
        return [closed.at for closed in self.closes if closed.code == 1012]


@dataclass(slots=True)
class Leaving:
    """One gateway from its SIGTERM to its end."""

    gateway: str
    begin: float
    window: float = 0.0
    """When it first refused an upgrade that was dialled directly."""
    unready: float = 0.0
    """When /readyz first said 503."""
    end: float = 0.0
    code: int | None = None
    readyz: list[tuple[float, int]] = field(default_factory=list)
    upgrades: list[tuple[float, int]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def landed_again(self, clients: Iterable[Traced]) -> list[str]:
        """Who landed on it twice while it was leaving, or once after it had begun to refuse."""
        found = []
        for client in clients:
            here = [a.at for a in client.landings if a.gateway == self.gateway and self.begin <= a.at <= self.end]
            if len(here) > 1 or any(at > self.window for at in here):
                found.append(f"{client.name} at {[round(at - self.begin, 2) for at in here]} on {self.gateway}")
        return found

    def left_per(self, clients: Iterable[Traced], bucket_s: float) -> list[int]:
        """How many clients it told to go in each `bucket_s`, from the opening of the window to the last of them."""
        moments = [at - self.window for client in clients for at in client.told_to_go() if self.begin < at <= self.end]
        counted = Counter(max(0, int(moment / bucket_s)) for moment in moments)
        return [counted[number] for number in range(max(counted, default=0) + 1)]


async def watch_leaving(gateway: GatewayProcess, *, every_s: float = 0.05, deadline_s: float = 40) -> Leaving:
    """SIGTERM, then dial it directly until it has ended: `/readyz`, and an upgrade each time."""
    leaving = Leaving(gateway.name, time.monotonic())
    gateway.sigterm()
    async with httpx.AsyncClient(timeout=5, trust_env=False) as http:
        while gateway.running:
            assert time.monotonic() < leaving.begin + deadline_s, f"{gateway.name} does not end"
            try:
                await _ask(gateway, http, leaving)
            except (OSError, httpx.TransportError, Ended) as error:
                # From here on nobody listens. The process must be on its very last steps.
                leaving.problems += await _still_there(gateway, error)
                break
            await asyncio.sleep(every_s)
    leaving.code = await gateway.wait_exit(5)
    leaving.end = time.monotonic()
    return leaving


async def _ask(gateway: GatewayProcess, http: httpx.AsyncClient, leaving: Leaving) -> None:
    status = (await http.get(f"{gateway.url}/readyz", headers={"connection": "close"})).status_code
    now = time.monotonic()
    leaving.readyz.append((now, status))
    if status == 503:
        leaving.unready = leaving.unready or now
    raw = await RawSocket.tcp(gateway.url)
    try:
        await raw.send_bytes(
            b"GET /v1/ws HTTP/1.1\r\nHost: g\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        await raw.response()
        now = time.monotonic()
        leaving.upgrades.append((now, raw.status))
        if raw.status == 503:
            assert int(raw.headers["retry-after"]) >= 1
            leaving.window = leaving.window or now
    finally:
        raw.close()


async def _still_there(gateway: GatewayProcess, error: Exception) -> list[str]:
    since = time.monotonic()
    await gateway.wait_exit(10)
    gone = time.monotonic() - since
    return [] if gone < 2 else [f"{gateway.name} stopped answering ({error!r}) {gone:.1f} s before its end"]


class Workload:
    """Publishes to users in turn until told to stop, and writes everything into the ledger."""

    def __init__(self, publisher: AsyncPublisher, users: Sequence[str], ledger: Ledger, per_s: float) -> None:
        self._publisher = publisher
        self._users = itertools.cycle(users)
        self._ledger = ledger
        self._pause_s = 1 / per_s
        self._numbers = itertools.count(1)
        self._stopping = False
        self.errors: list[str] = []

    async def run(self) -> None:
        while not self._stopping:
            key, user = str(next(self._numbers)), next(self._users)
            data = self._ledger.attempted(user, key)
            try:
                receipt = await self._publisher.publish(user, "n", data, idempotency_key=key)
            except PublishError as error:
                self.errors.append(str(error))
                (self._ledger.unknown if error.outcome_unknown else self._ledger.failed)(key)
            else:
                assert receipt.position is not None
                self._ledger.acknowledged(key, receipt.position)
            await asyncio.sleep(self._pause_s)

    def stop(self) -> None:
        self._stopping = True
