"""The stage for a real browser: two gateways behind one address, a Redis that writes through, an application that
counts, and every way to strike them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from playwright.async_api import Page, TimeoutError

from tests.support.gateway import FAST_DRAIN, GatewayProcess
from tests.support.proxy import FaultProxy
from tests.support.tokens import mint
from tests.support.valkey import ValkeyProcess
from tidings import AsyncPublisher
from tidings.errors import PublishError

DOCUMENT = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")

SETTINGS = {
    **FAST_DRAIN,
    # A black hole is found in 3 s, a deaf or frozen Redis in 1.5 s: the strikes need not last longer than that.
    "TIDINGS_HEARTBEAT_MS": "1500",
    "TIDINGS_HEARTBEAT_TIMEOUT_MS": "1500",
    "TIDINGS_CANARY_INTERVAL_MS": "500",
    "TIDINGS_CANARY_TIMEOUT_MS": "1500",
}
FREEZE_S = 2.5
BACK_S = 30.0
START_S = 60.0
"""Deadlines for a busy machine, no promises."""

Answer = tuple[int, str, str]


class Front(FaultProxy):
    """What a balancer is: newcomers go to the gateways in turn, past those that are away or draining."""

    def __init__(self, gateways: list[GatewayProcess]) -> None:
        self._gateways = gateways
        self._turn = itertools.count()
        self.draining: set[int] = set()
        super().__init__(0)

    @property
    def target(self) -> tuple[str, int]:
        there = [each.port for each in self._gateways if each.running and each.port not in self.draining]
        ports = there or [each.port for each in self._gateways]
        return "127.0.0.1", ports[next(self._turn) % len(ports)]

    @target.setter
    def target(self, _: tuple[str, int]) -> None:
        pass


class Stage:
    """Use as an async context manager."""

    def __init__(self, gateways: Sequence[str] = ("A", "B"), settings: Mapping[str, str] = SETTINGS) -> None:
        self.names = gateways
        self.settings = settings
        self.valkey = ValkeyProcess("--appendonly", "yes", "--appendfsync", "always")
        self.gateways: list[GatewayProcess] = []
        self.front = Front(self.gateways)
        self.site = Site()

    @property
    def url(self) -> str:
        """Of the gateways."""
        return f"http://127.0.0.1:{self.front.port}"

    async def __aenter__(self) -> Stage:
        try:
            return await self._start()
        except BaseException as error:
            await self.__aexit__(type(error))
            raise

    async def _start(self) -> Stage:
        await asyncio.to_thread(self.valkey.start)
        await self.front.start()
        await self.site.start()
        env = {**self.settings, "TIDINGS_ALLOWED_ORIGINS": f"http://127.0.0.1:{self.site.port}"}
        for name in self.names:
            self.gateways.append(GatewayProcess(self.valkey.url, env={**env, "TIDINGS_GATEWAY_NAME": name}, name=name))
        await asyncio.gather(*(gateway.start(START_S) for gateway in self.gateways))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(asyncio.to_thread, self.valkey.close)
            for gateway in self.gateways:
                stack.push_async_callback(gateway.close, check=kind is None)
            stack.push_async_callback(self.front.close)
            stack.push_async_callback(self.site.close)

    async def gateway_of(self, page: Page) -> GatewayProcess:
        """The gateway that has this page: session ids begin with its name."""
        session = await page.evaluate("page.session")
        return next(gateway for gateway in self.gateways if str(session).startswith(gateway.name))

    # Strikes. Each returns when everything is whole again.

    async def cut(self) -> None:
        """Every connection is reset."""
        self.front.reset()

    async def blackhole(self, page: Page) -> None:
        """Nothing goes through in either direction, and nobody is told, until the page, which must be live, gives its
        connection up."""
        await live(page)
        told = await page.evaluate("page.states.length")
        self.front.blackhole()
        await wait_for(page, f"page.states.slice({told}).some(([state, code]) => state === 'waiting' && code === 3008)")
        self.front.reset()
        self.front.release()

    async def kill_gateway(self, gateway: GatewayProcess) -> None:
        """`kill -9`; it comes back on the same port."""
        gateway.kill()
        await gateway.start(START_S)

    async def restart_gateway(self, gateway: GatewayProcess) -> None:
        """SIGTERM, its drain, and it comes back."""
        self.front.draining.add(gateway.port)
        assert await gateway.stop() == 0
        await gateway.start(START_S)
        self.front.draining.discard(gateway.port)

    async def freeze_redis(self, seconds: float = FREEZE_S) -> None:
        """SIGSTOP: connections stay, nothing is answered, nothing raises."""
        self.valkey.freeze()
        await asyncio.sleep(seconds)
        self.valkey.thaw()

    async def kill_redis(self, seconds: float = 0.5) -> None:
        """`kill -9`, and it is back on its port with all that it acknowledged."""
        await asyncio.to_thread(self.valkey.kill)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(self.valkey.start)


class Counter:
    """The application: numbers its events and stores each exactly once, whatever it takes. A context manager."""

    def __init__(self, stage: Stage, user: str, *, max_events: int = 100_000) -> None:
        self.user = user
        self.last = 0
        self.state_fails = 0
        """So many times yet the page's fetch of its state fails."""
        self.states_served = 0
        self.stage = stage
        stage.site.counters[user] = self
        self._publisher = AsyncPublisher(stage.valkey.url, log_max_events=max_events)

    async def __aenter__(self) -> Counter:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._publisher.close()

    async def count(self, times: int = 1) -> None:
        """So many events, one after the other. The idempotency key makes a repeated attempt the same event."""
        for _ in range(times):
            n = self.last + 1
            while True:
                try:
                    await self._publisher.publish(self.user, "count", {"n": n}, idempotency_key=f"n-{n}")
                    break
                except PublishError as error:
                    if not error.retryable:
                        raise
            self.last = n

    @contextlib.asynccontextmanager
    async def counting(self, every_s: float = 0.02) -> AsyncIterator[None]:
        """Counts on in the background, until the body has ended."""
        ended = asyncio.Event()

        async def count_on() -> None:
            while not ended.is_set():
                await self.count()
                await asyncio.sleep(every_s)

        async with asyncio.TaskGroup() as group:
            group.create_task(count_on())
            try:
                yield
            finally:
                ended.set()

    async def open(self, page: Page, *, wait: bool = True, host: str = "127.0.0.1") -> None:
        """Load the page of this user; by default returns when it is live."""
        await page.goto(self.stage.site.url_of(self.user, host))
        if wait:
            await live(page)

    def answer(self, door: str) -> Answer:
        """What the application says to its own page: the page itself, a token, the state."""
        if door == "":
            return 200, "text/html", DOCUMENT.replace("$GATEWAY", self.stage.url)
        if door == "token":
            return 200, "text/plain", mint(self.user) + "\n"
        if door != "state":
            return 404, "text/plain", ""
        if self.state_fails > 0:
            self.state_fails -= 1
            return 500, "text/plain", ""
        self.states_served += 1
        return 200, "application/json", json.dumps({"last": self.last})


class Site:
    """Where the pages come from; not the gateways' origin. `/USER/` is a page, what lies below it its doors."""

    def __init__(self) -> None:
        self.counters: dict[str, Counter] = {}
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def url_of(self, user: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}/{user}/"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A browser makes connections in advance, and drops them.
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            head = await reader.readuntil(b"\r\n\r\n")
            user, _, door = head.split(b" ")[1].decode().removeprefix("/").partition("/")
            counter = self.counters.get(user)
            status, kind, body = counter.answer(door) if counter is not None else (404, "text/plain", "")
            writer.write(
                f"HTTP/1.1 {status} x\r\ncontent-type: {kind}\r\ncontent-length: {len(body.encode())}\r\n"
                f"connection: close\r\n\r\n{body}".encode()
            )
            await writer.drain()
        writer.close()


async def live(page: Page) -> None:
    await wait_for(page, "window.tidings?.state === 'live'")


async def wait_for(page: Page, condition: str) -> None:
    """Until an expression is true in the page; a page that does not come to it says where it stands."""
    try:
        await page.wait_for_function(condition, timeout=BACK_S * 1000)
    except TimeoutError as error:
        raise AssertionError(f"not within {BACK_S:g} s: {condition}; {await page.evaluate('window.page')}") from error


async def even(page: Page, counter: Counter) -> None:
    """The page's own count: everything there, nothing missed, nothing twice."""

    await wait_for(page, f"page.last === {counter.last}")
    missing, twice = await page.evaluate("[page.missing, page.twice]")
    assert (missing, twice) == (0, 0), await page.evaluate("page")
