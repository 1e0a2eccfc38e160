"""What every fault is tried on: a gateway on a real Redis, one client per user, a publisher that never stops, and the
ledger that is judged at the end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Literal

import httpx

from tests.chaos.run import BACK_WITHIN_S, SPARE_DESCRIPTORS
from tests.support.client import Client
from tests.support.gateway import FAST_DRAIN, GatewayProcess
from tests.support.ledger import Ledger, Outcome
from tests.support.tokens import API_KEY, mint
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings import AsyncPublisher
from tidings.errors import PublishError

KEY = {"Authorization": f"Bearer {API_KEY}"}

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
"""A Redis that has what it acknowledged, also after `kill -9`."""

QUICK = {"TIDINGS_REDIS_TIMEOUT_MS": "600", "TIDINGS_CANARY_INTERVAL_MS": "200", "TIDINGS_CANARY_TIMEOUT_MS": "600"}
"""A gateway that looks ten times as often: for tests that need a silence noticed, and are not about how soon."""

PATIENT = {
    "TIDINGS_REDIS_TIMEOUT_MS": "60000",
    "TIDINGS_CANARY_TIMEOUT_MS": "60000",
    "TIDINGS_STORE_WAIT_MS": "60000",
    "TIDINGS_HELLO_TIMEOUT_MS": "60000",
}
"""A gateway that never takes a busy machine for a dead Redis: for tests in which its link must stay."""

ENV = {
    **FAST_DRAIN,
    "TIDINGS_READY_REDIS": "always",
    "TIDINGS_SUBSCRIPTION_LINGER_MS": "100",
    "TIDINGS_HEARTBEAT_MS": "1500",
    "TIDINGS_HEARTBEAT_TIMEOUT_MS": "1500",
}
"""Heartbeats come often enough for their absence to be seen while a fault lasts."""

Way = Literal["redis", "http"]

PUBLISHERS = 8

AGAIN_AFTER_S = 0.005
"""An event that was refused is sent again so soon: the first moment at which it works should not be missed."""

POOLED = 16
"""Connections that the publisher behind `POST /v1/publish` may keep."""


class Scene:
    """Made by `scene`. `by_user` has the clients the ledger is judged by; `answers` counts the statuses of
    `POST /v1/publish` and, as `no answer`, requests that got none."""

    def __init__(self, store: ValkeyProcess, prefix: str, gateway: GatewayProcess, publisher: AsyncPublisher) -> None:
        self.store = store
        self.prefix = prefix
        self.gateway = gateway
        self.publisher = publisher
        self.ledger = Ledger()
        self.by_user: dict[str, list[Client]] = {}
        self.answers: Counter[str] = Counter()
        self.http = httpx.AsyncClient(base_url=gateway.url, timeout=10, headers=KEY)
        self._descriptors = gateway.descriptors()
        self._numbers = itertools.count(1)

    @property
    def clients(self) -> list[Client]:
        return [client for clients in self.by_user.values() for client in clients]

    async def join(self, *users: str) -> list[Client]:
        """One more client for each of these users, synced."""
        clients = [
            Client(self.gateway.ws_url, mint(user), name=user, cap_ms=500, rng=random.Random(user)).start()
            for user in users
        ]
        for user, client in zip(users, clients, strict=True):
            self.by_user.setdefault(user, []).append(client)
        await asyncio.gather(*(client.until_synced(30) for client in clients))
        return clients

    # Publishing

    async def publish(self, user: str, way: Way = "redis", *, retry: Callable[[], bool] = lambda: False) -> Outcome:
        """One event, written down before it is sent and when its outcome is known. It is sent again, as the same event,
        while `retry` says so."""
        key = f"{next(self._numbers)}"
        data = self.ledger.attempted(user, key)
        send = self._to_redis if way == "redis" else self._over_http
        doubted = False
        while True:
            outcome, position = await send(user, key, data)
            doubted |= outcome is Outcome.UNKNOWN
            if position is not None:
                self.ledger.acknowledged(key, position)
                return outcome
            if not retry():
                break
            await asyncio.sleep(AGAIN_AFTER_S)
        if doubted:
            return Outcome.UNKNOWN
        self.ledger.failed(key)
        return Outcome.FAILED

    async def _to_redis(self, user: str, key: str, data: object) -> tuple[Outcome, str | None]:
        try:
            receipt = await self.publisher.publish(user, "n", data, idempotency_key=key)
        except PublishError as error:
            return Outcome.UNKNOWN if error.outcome_unknown else Outcome.FAILED, None
        return Outcome.ACKNOWLEDGED, receipt.position

    async def _over_http(self, user: str, key: str, data: object) -> tuple[Outcome, str | None]:
        message = {"user": user, "event": "n", "data": data, "idempotency_key": key}
        try:
            answer = await self.http.post("/v1/publish", json=message)
        except httpx.TransportError:
            self.answers["no answer"] += 1
            return Outcome.UNKNOWN, None
        self.answers[f"{answer.status_code}"] += 1
        if answer.status_code == 200:
            return Outcome.ACKNOWLEDGED, answer.json()["id"]
        if answer.status_code == 503:
            assert int(answer.headers["retry-after"]) >= 1
        return Outcome.UNKNOWN if answer.json()["outcome_unknown"] else Outcome.FAILED, None

    @asynccontextmanager
    async def publishing(self, rate: float, way: Way = "redis", *, retry: bool = False) -> AsyncIterator[None]:
        """`rate` events per second to the users in turn, until the end of the block. With `retry` none is given up
        before that."""
        over = asyncio.Event()
        users = itertools.cycle(list(self.by_user))

        async def go_on() -> None:
            while not over.is_set():
                due = time.monotonic() + PUBLISHERS / rate
                await self.publish(next(users), way, retry=lambda: retry and not over.is_set())
                await asyncio.sleep(max(0.0, due - time.monotonic()))

        tasks = [asyncio.create_task(go_on()) for _ in range(PUBLISHERS)]
        try:
            yield
        finally:
            over.set()
            await asyncio.gather(*tasks)

    # What is seen

    async def until_live(self, since: float, deadline_s: float = 30) -> float:
        """Everybody has had an event that was acknowledged after `since`. Returns how long the last one waited, in s,
        which must not be more than what we promise for a Redis that is back."""
        seconds: list[float] = []

        def all_live() -> bool:
            seconds[:] = [at - since for client in self.clients if (at := self._first_live(client, since)) is not None]
            return len(seconds) == len(self.clients)

        await until(all_live, deadline_s, "everybody has live events", every_s=0.02)
        assert max(seconds) < BACK_WITHIN_S, f"the last one had a live event after {max(seconds):.2f} s"
        return max(seconds)

    def _first_live(self, client: Client, since: float) -> float | None:
        for event in client.events:
            acknowledged = self.ledger.entries[event.data["key"]].at
            if acknowledged is not None and acknowledged >= since and event.at >= since:
                return event.at
        return None

    async def until_heartbeats(self, more: int = 1, deadline_s: float = 15) -> None:
        """Every client gets heartbeats: the gateway's event loop is not held up by what is wrong with Redis."""
        wanted = {client: client.heartbeats + more for client in self.clients}
        await until(
            lambda: all(client.heartbeats >= count for client, count in wanted.items()), deadline_s, "heartbeats go on"
        )

    async def until_ready(self, ready: bool, deadline_s: float = 15) -> None:
        status = 200 if ready else 503

        async def says() -> bool:
            return (await self.http.get("/readyz")).status_code == status

        await until(says, deadline_s, f"/readyz says {status}", every_s=0.02)

    # The end

    async def judge(
        self, *, resyncs_allowed: bool = False, same_connection: bool = True, deadline_s: float = 30
    ) -> None:
        """Wait until what was acknowledged has arrived; then every promise must have been kept, and what was taken for
        the clients given back. `same_connection`: the fault was none of theirs, so none of them was closed."""

        def settled() -> bool:
            if self.ledger.settled(self.by_user):
                return True
            return resyncs_allowed and not self.ledger.verdict(self.by_user).missing

        try:
            await until(settled, deadline_s, "what was acknowledged has arrived", every_s=0.05)
        except AssertionError:
            print(self.ledger.verdict(self.by_user).table())
            raise
        if same_connection:
            assert {client.name: client.connections for client in self.clients if client.connections != 1} == {}
        await self._given_back()
        verdict = self.ledger.verdict(self.by_user)
        assert verdict.ok(resyncs_allowed=resyncs_allowed), f"\n{verdict.table()}"

    async def _given_back(self) -> None:
        await asyncio.gather(*(client.close() for client in self.clients))
        pattern = f"{self.prefix}:{{*"
        await until(
            lambda: not self.store.cli("PUBSUB", "CHANNELS", pattern),
            15,
            "no user's channel is subscribed",
            every_s=0.05,
        )
        allowed = self._descriptors + SPARE_DESCRIPTORS + (POOLED if self.answers else 0)
        with contextlib.suppress(AssertionError):
            await until(lambda: self.gateway.descriptors() <= allowed, 10, every_s=0.05)
        self.ledger.given_back("descriptors", allowed, self.gateway.descriptors())

    async def close(self) -> None:
        await asyncio.gather(*(client.close() for client in self.clients))
        await self.http.aclose()


@asynccontextmanager
async def scene(
    store: ValkeyProcess,
    prefix: str,
    *,
    users: int = 0,
    env: Mapping[str, str] | None = None,
    redis_url: str | None = None,
) -> AsyncIterator[Scene]:
    """A gateway with `users` synced clients (`user-0` …). `redis_url`: where the gateway finds the store, if that is
    not the store itself; the publisher always goes to the store."""
    async with (
        GatewayProcess(redis_url or store.url, prefix=prefix, env={**ENV, **(env or {})}) as gateway,
        AsyncPublisher(store.url, prefix=prefix, deadline_s=1) as publisher,
    ):
        made = Scene(store, prefix, gateway, publisher)
        try:
            await made.join(*(f"user-{number}" for number in range(users)))
            yield made
        finally:
            await made.close()
