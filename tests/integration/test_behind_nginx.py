"""Gateways behind the nginx of `deploy/nginx.conf`: what it passes on, repeats, holds back, and writes down."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest

from tests.integration.landings import Traced, Workload, watch_leaving
from tests.support.gateway import FAST_DRAIN, GatewayProcess
from tests.support.ledger import Ledger
from tests.support.nginx import NginxProcess, needs_nginx
from tests.support.ports import free_port
from tests.support.rawsocket import RawSocket
from tests.support.tokens import API_KEY, mint
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings import AsyncPublisher
from tidings_gateway.assets import client_files

pytestmark = [needs_nginx(), pytest.mark.may_block(reason="the HTTP client of the test reads certificates")]

UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

_LENGTH = re.compile(r"content-length: (\d+)", re.IGNORECASE)

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


class StandIn:
    """In a gateway's place: notes the head of each request, and answers as it is told."""

    def __init__(self, answer: bytes | Answer) -> None:
        self.heads: list[str] = []
        self.port = 0
        self._answer = answer

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            self.heads.append(head)
            if length := _LENGTH.search(head):
                await reader.readexactly(int(length[1]))
            if isinstance(self._answer, bytes):
                writer.write(self._answer)
                await writer.drain()
            else:
                await self._answer(writer)
        writer.close()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[StandIn]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self


async def _gone(writer: asyncio.StreamWriter) -> None:
    """Took the request, and ends without a word."""


@contextlib.asynccontextmanager
async def _before(*answers: bytes | Answer) -> AsyncIterator[tuple[NginxProcess, list[StandIn]]]:
    async with contextlib.AsyncExitStack() as stack:
        stand_ins = [await stack.enter_async_context(StandIn(answer).running()) for answer in answers]
        yield stack.enter_context(NginxProcess([stand_in.port for stand_in in stand_ins])), stand_ins


@pytest.mark.full
async def test_connect_resume_publish_and_drain(valkey: ValkeyProcess, prefix: str) -> None:
    """Two gateways. Clients connect, are cut and resume; publishers use HTTP; one gateway drains: nobody is refused or
    lands on it twice, and the ledger is balanced. Then the same with the other one."""
    async with contextlib.AsyncExitStack() as stack:
        gateways = [
            GatewayProcess(valkey.url, prefix=prefix, env={**FAST_DRAIN, "TIDINGS_GATEWAY_NAME": name}, name=name)
            for name in ("one", "two")
        ]
        await asyncio.gather(*(stack.enter_async_context(gateway) for gateway in gateways))
        nginx = stack.enter_context(NginxProcess([gateway.port for gateway in gateways]))
        publisher = await stack.enter_async_context(AsyncPublisher(nginx.publishers_url, api_key=API_KEY))
        users = [f"user-{number % 8}" for number in range(40)]
        clients = [Traced(nginx.ws_url, mint(user), name=f"{user} {n}") for n, user in enumerate(users)]
        by_user = {user: [c for c in clients if c.name.startswith(f"{user} ")] for user in set(users)}
        for client in clients:
            await stack.enter_async_context(client)
        await asyncio.gather(*(client.until_synced() for client in clients))
        assert {client.landings[0].gateway for client in clients} == {"one", "two"}

        ledger = Ledger()
        load = Workload(publisher, sorted(by_user), ledger, per_s=100)
        async with asyncio.TaskGroup() as group:
            group.create_task(load.run())
            for client in clients[::4]:
                client.cut()
                await client.until_synced(connection=2)
            for gateway in gateways:
                leaving = await watch_leaving(gateway)
                assert leaving.code == 0
                assert leaving.landed_again(clients) == []
                await asyncio.gather(*(client.until_synced(20) for client in clients))
                await gateway.start()
                await nginx.takes_back(gateway.port)
            load.stop()
        await until(lambda: ledger.settled(by_user), 20, "everything has arrived")
        verdict = ledger.verdict(by_user)
        assert verdict.ok(), verdict.table()
        assert verdict.counts["acknowledged"] > 100
        assert load.errors == []
        for client in clients:
            assert all(welcome["resumed"] for welcome in client.welcomes[1:])
            assert client.refused == [], client.explain()


async def test_an_upgrade_that_is_refused_goes_to_the_next_gateway() -> None:
    """503, 502 or an end without an answer: nothing has happened yet, so another gateway is asked, and the client sees
    only its answer."""
    for refusal in (UNAVAILABLE, UNAVAILABLE.replace(b"503 Service Unavailable", b"502 Bad Gateway"), _gone):
        async with _before(refusal, refusal, OK) as (nginx, stand_ins):
            async with httpx.AsyncClient(trust_env=False) as http:
                statuses = [(await http.get(f"{nginx.url}/v1/sse")).status_code for _ in range(6)]
            assert statuses == [200] * 6
            # Those that refused are left out for a while.
            assert [len(stand_in.heads) for stand_in in stand_ins] == [1, 1, 6]


@pytest.mark.parametrize("answer", [UNAVAILABLE, _gone], ids=["503", "no answer"])
async def test_a_publish_that_reached_a_gateway_is_not_repeated(answer: bytes | Answer) -> None:
    """It may have stored the event. The publisher is told, and decides."""
    async with _before(answer, answer) as (nginx, stand_ins), httpx.AsyncClient(trust_env=False) as http:
        got = await http.post(f"{nginx.publishers_url}/v1/publish", json={"user": "anna", "event": "n"})
        assert got.status_code == (503 if answer == UNAVAILABLE else 502)
        assert got.headers.get("retry-after") == ("1" if answer == UNAVAILABLE else None)
        assert sum(len(stand_in.heads) for stand_in in stand_ins) == 1


async def test_a_publish_that_reached_nobody_goes_to_the_next_gateway() -> None:
    """A gateway that is away costs publishers nothing."""
    async with StandIn(OK).running() as stand_in:
        with NginxProcess([free_port(), stand_in.port]) as nginx:
            async with httpx.AsyncClient(trust_env=False) as http:
                for _ in range(4):
                    got = await http.post(f"{nginx.publishers_url}/v1/publish", json={"user": "anna", "event": "n"})
                    assert got.status_code == 200
        assert len(stand_in.heads) == 4


async def test_a_client_cannot_say_who_it_is() -> None:
    """The gateway is told the address of the connection, whatever the client claims, and gets no upgrade but to
    WebSocket."""
    claims = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https", "Connection": "Upgrade", "Upgrade": "h2c"}
    async with _before(OK) as (nginx, (stand_in,)), httpx.AsyncClient(trust_env=False) as http:
        await http.get(f"{nginx.url}/v1/ws", headers=claims)
        head = stand_in.heads[0].lower()
        assert "x-forwarded-for: 127.0.0.1\r\n" in head
        assert "x-forwarded-proto: http\r\n" in head
        assert "203.0.113.9" not in head
        assert "h2c" not in head
        assert "upgrade:" not in head
        assert "connection:" not in head


@pytest.mark.parametrize("path", ["/v1/sse", "/v1/events"])
async def test_a_stream_is_passed_on_at_once(path: str) -> None:
    """The head and each small event reach the client while the answer goes on, also when it would take gzip."""
    more = asyncio.Event()

    async def stream(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n: hello\n\n")
        await more.wait()
        writer.write(b"data: 1\n\n")
        await writer.drain()

    async with _before(stream) as (nginx, _), httpx.AsyncClient(trust_env=False, timeout=2) as http:
        headers = {"Accept-Encoding": "gzip, br"}
        async with http.stream("GET", f"{nginx.url}{path}", headers=headers) as answer:
            chunks = answer.aiter_raw()
            assert await anext(chunks) == b": hello\n\n"
            more.set()
            assert await anext(chunks) == b"data: 1\n\n"


async def test_a_reload_cuts_nobody() -> None:
    """SIGHUP, with the gateways as they are: what is open stays open and goes on, what is new is served."""
    more = asyncio.Event()

    async def stream(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nfirst")
        await more.wait()
        writer.write(b"second")
        await writer.drain()

    async with _before(stream) as (nginx, (stand_in,)), httpx.AsyncClient(trust_env=False, timeout=5) as http:
        async with http.stream("GET", f"{nginx.url}/v1/sse") as answer:
            chunks = answer.aiter_raw()
            assert await anext(chunks) == b"first"
            await nginx.reload()
            async with http.stream("GET", f"{nginx.url}/v1/sse") as later:
                assert await anext(later.aiter_raw()) == b"first"
            more.set()
            assert await anext(chunks) == b"second"
        assert len(stand_in.heads) == 2


async def test_the_public_side_is_for_pages_only() -> None:
    """No publishing, positions, health or metrics on the port for pages; nothing but publishing on the other."""
    async with _before(OK) as (nginx, (stand_in,)), httpx.AsyncClient(trust_env=False) as http:
        for path in (
            "/v1/publish",
            "/v1/position?user=a",
            "/readyz",
            "/livez",
            "/metrics",
            "/",
            "/v1/ws/",
            "/v1/tickets",
        ):
            assert (await http.get(f"{nginx.url}{path}")).status_code == 404, path
        for path in ("/v1/ws", "/v1/sse", "/readyz", "/tidings.js"):
            assert (await http.get(f"{nginx.publishers_url}{path}")).status_code == 404, path
        assert stand_in.heads == []
        assert (await http.get(f"{nginx.url}/tidings.js")).status_code == 200
        assert (await http.get(f"{nginx.url}/nginx-health")).text == "ok\n"
        assert len(stand_in.heads) == 1


async def test_a_body_has_the_gateway_s_own_bound() -> None:
    """What the gateway takes passes nginx, up to the last byte of TIDINGS_MAX_PUBLISH_BYTES; one more is 413."""
    limit = 4 * 1024 * 1024
    headers = {"content-type": "application/json"}
    async with _before(OK) as (nginx, (stand_in,)), httpx.AsyncClient(trust_env=False) as http:
        for size, status in ((limit, 200), (limit + 1, 413)):
            got = await http.post(f"{nginx.publishers_url}/v1/publish", content=b"x" * size, headers=headers)
            assert got.status_code == status
        assert len(stand_in.heads) == 1


async def test_the_longest_token_passes() -> None:
    """A token of 8 KiB in the Authorization header reaches the gateway."""
    async with _before(OK) as (nginx, (stand_in,)), httpx.AsyncClient(trust_env=False) as http:
        token = "t" * 8192
        assert (await http.get(f"{nginx.url}/v1/ws", headers={"Authorization": f"Bearer {token}"})).status_code == 200
        assert token in stand_in.heads[0]


async def test_no_token_is_ever_logged() -> None:
    """In the URL, in a header, in the referring page; answered, refused, cut, too large, or with every gateway away: it
    is in neither log. The access log still says which gateway was asked, and what it said."""
    canary = f"canary{secrets.token_hex(8)}"
    headers = {"Authorization": f"Bearer {canary}", "Referer": f"http://a.example/?{canary}", "Cookie": f"sid={canary}"}
    query = f"ticket={canary}&token={canary}"
    async with StandIn(_gone).running() as stand_in:
        with NginxProcess([stand_in.port, free_port()]) as nginx:
            async with httpx.AsyncClient(trust_env=False, headers=headers) as http:
                for path in ("/v1/ws", "/v1/sse", "/v1/events", "/tidings.js", "/nowhere"):
                    for _ in range(3):
                        assert (await http.get(f"{nginx.url}{path}?{query}")).status_code >= 400
                large = b"x" * (4 * 1024 * 1024 + 1)
                for content in (b"{}", large):
                    await http.post(f"{nginx.publishers_url}/v1/publish?{query}", content=content)
                await http.post(f"{nginx.url}/v1/ws?{query}", content=large)
            raw = await RawSocket.tcp(nginx.url)
            await raw.send_bytes(f"GET /v1/ws?{canary} HTTP/1.1\r\nHost: bad host {canary}\r\n\r\n".encode())
            await raw.response()
            raw.close()
            await until(lambda: nginx.log.count('"path":') >= 19, 5, "every request is logged")
            log = nginx.log
    assert canary not in log
    assert f'"gateway":"127.0.0.1:{stand_in.port}' in log
    assert '"path":"/v1/sse","status":"502"' in log


async def test_the_client_its_modules_and_its_types_come_through() -> None:
    """Every file of the browser client that a gateway serves, and no other name: nginx answers 404 itself."""
    async with _before(OK, OK) as (nginx, gateways), httpx.AsyncClient() as client:
        for name in client_files():
            assert (await client.get(f"{nginx.url}/{name}")).status_code == 200, name
        asked = sum(len(gateway.heads) for gateway in gateways)
        assert asked == len(client_files())
        assert (await client.get(f"{nginx.url}/other.txt")).status_code == 404
        assert sum(len(gateway.heads) for gateway in gateways) == asked
