"""How connections end in a real browser: whose codes are taken, who comes back when, and who never."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Page
from websockets.asyncio.server import ServerConnection

from tests.browser.scripted import ScriptedGateway, closing_with, live, say, saying, welcome
from tests.support.waiting import until
from tidings_gateway.core.closing import CLOSES, ClientAction, action_for

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

CODES = sorted({row.code for row in CLOSES} | {1014, 3000, 4402, 4999})

CLIENTS = 100
FIRST_WINDOW_MS = 500
DRAIN_MS = 20_000

ENDED_BY_THE_CLIENT = {
    "logout": live,
    "silence": saying(heartbeat_ms=100, timeout_ms=100),
    "no-json": saying("["),
    "binary": saying(b"{}"),
    "no-object": saying("[1]"),
    "gap": saying('{"type":"event","id":"scripted1.9-9","event":"x","data":1,"time":1}'),
    "second-welcome": saying('{"type":"welcome","position":"scripted1.7-7"}'),
}


class Herd:
    """Live until all are let go at once."""

    def __init__(self) -> None:
        self.there: list[ServerConnection] = []

    async def join(self, connection: ServerConnection) -> None:
        await welcome(connection)
        self.there.append(connection)
        async for _ in connection:
            pass


HERD = Herd()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway() -> AsyncIterator[ScriptedGateway]:
    scripts = {f"code-{code}": closing_with(code) for code in CODES}
    scripts |= ENDED_BY_THE_CLIENT | {"live": live, "refuse": live, "hang": live, "die": HERD.join, "drain": HERD.join}
    async with ScriptedGateway(scripts) as gateway:
        yield gateway


@pytest_asyncio.fixture(loop_scope="module")
async def loaded(gateway: ScriptedGateway, page: Page) -> Page:
    """A page with the client in it, and `make(names)`: a client for each, and what each tells of itself."""
    await page.goto(f"{gateway.url}/")
    await page.wait_for_function("window.Tidings !== undefined")
    await page.evaluate(
        """() => {
            window.told = {};
            window.clients = {};
            window.make = (names) => names.forEach((name) => {
                told[name] = [];
                clients[name] = new Tidings({
                    url: `${location.origin}/${name.split("#")[0]}`,
                    onstate: ({ state, code, reason, retry_ms }) =>
                        told[name].push({ state, code, reason, retry_ms, at: performance.now() }),
                    onerror: () => {},
                });
            });
        }"""
    )
    return page


async def test_codes_that_come_in(gateway: ScriptedGateway, loaded: Page) -> None:
    """Each code of the table, and some of none, in a real browser: stopped or waiting as the table says, with its code,
    also where there was no Close frame at all."""
    names = [f"code-{code}" for code in CODES]
    await loaded.evaluate("make", names)
    await loaded.wait_for_function(
        "Object.values(told).every((all) => all.some(({ state }) => ['waiting', 'stopped'].includes(state)))"
    )
    told = await loaded.evaluate("told")
    for code in CODES:
        states = told[f"code-{code}"]
        assert "live" in [status["state"] for status in states], f"{code} came before it was live"
        end = next(status for status in states if status["state"] in ("waiting", "stopped"))
        stops = action_for(code) in (ClientAction.STOP, ClientAction.STAY_CLOSED)
        assert (end["state"], end["code"]) == ("stopped" if stops else "waiting", code)
        if code not in (1005, 1006):
            assert end["reason"] == f"because {code}"


async def test_codes_that_go_out(gateway: ScriptedGateway, loaded: Page) -> None:
    """Browsers throw for most codes. Whatever makes the client end a connection, the gateway sees 1000 or one from 3000
    on, with a reason that fits, at once; nothing is thrown (bigskysoftware/htmx #3904)."""
    await loaded.evaluate("make", list(ENDED_BY_THE_CLIENT))
    await loaded.wait_for_function("clients.logout.state === 'live'")
    await loaded.evaluate("clients.logout.close()")
    await until(lambda: all(gateway.ends[name] for name in ENDED_BY_THE_CLIENT), 10, "all are ended")
    for name in ENDED_BY_THE_CLIENT:
        code, reason = gateway.ends[name][0]
        assert code == {"logout": 1000, "silence": 3008}.get(name, 4000), name
        assert len(reason.encode()) <= 123
    await loaded.evaluate("Object.values(clients).forEach((client) => client.close())")


async def test_one_chain_of_attempts(gateway: ScriptedGateway, loaded: Page) -> None:
    """Refused again and again, which a browser tells by an error and a close: one attempt at a time, each after a wait
    (lukeed/sockette #46)."""
    gateway.refusing.add("refuse")
    await loaded.evaluate("make", ["refuse"])
    await until(lambda: gateway.attempts["refuse"] >= 4, 20, "it has tried four times")
    assert gateway.most_in_flight["refuse"] == 1
    told = await loaded.evaluate("told.refuse")
    states = [status["state"] for status in told]
    round_ = ["authorizing", "connecting", "waiting"]
    assert states == (round_ * len(states))[: len(states)]
    gateway.refusing.discard("refuse")
    await loaded.wait_for_function("clients.refuse.state === 'live'")
    await loaded.evaluate("clients.refuse.close()")


QUIET_S = 1.5
"""Three times the first window of retries."""


async def test_closed_it_stays(gateway: ScriptedGateway, loaded: Page) -> None:
    """close() while the browser connects, while live, while waiting: no attempt after it; connect() works."""
    gateway.hanging.add("hang")
    gateway.refusing.add("refuse")
    await loaded.evaluate("make", ["live", "refuse"])
    await loaded.wait_for_function("clients.live.state === 'live' && clients.refuse.state === 'waiting'")
    await loaded.evaluate("make", ["hang"])  # last: Chromium connects to one address one after the other
    await until(lambda: gateway.in_flight["hang"] == 1, 20, "it hangs in CONNECTING")
    await loaded.evaluate("Object.values(clients).forEach((client) => client.close())")
    before = dict(gateway.attempts)
    await asyncio.sleep(QUIET_S)  # time: what must not happen
    assert dict(gateway.attempts) == before
    assert await loaded.evaluate("Object.values(clients).map(({ state }) => state)") == ["stopped"] * 3

    gateway.hanging.clear()
    gateway.refusing.clear()
    await loaded.evaluate("Object.values(clients).forEach((client) => client.connect())")
    await loaded.wait_for_function("Object.values(clients).every(({ state }) => state === 'live')")
    await loaded.evaluate("Object.values(clients).forEach((client) => client.close())")


@pytest.mark.parametrize(("way", "window_ms"), [("die", FIRST_WINDOW_MS), ("drain", DRAIN_MS)])
async def test_no_herd(gateway: ScriptedGateway, loaded: Page, way: str, window_ms: int) -> None:
    """A hundred clients lose their gateway at one moment, without a word or drained with a window. They come back
    spread over the window, no tenth of it busier than three times the even rate, from the first retry on."""
    names = [f"{way}#{number}" for number in range(CLIENTS)]
    HERD.there.clear()
    await loaded.evaluate("make", names)
    await until(lambda: len(HERD.there) == CLIENTS, 30, "all are live")
    gateway.refusing.add(way)
    for connection in HERD.there:
        if way == "drain":
            await say(connection, {"type": "goodbye", "code": 1012, "retry_ms": DRAIN_MS})
            await connection.close(1012)
        else:
            connection.transport.abort()
    ended = "Object.values(told).every((all) => all.some(({ state }) => state === 'waiting'))"
    await loaded.wait_for_function(ended)
    waits = await loaded.evaluate(
        "Object.values(told).map((all) => all.find(({ state }) => state === 'waiting').retry_ms)"
    )
    await loaded.evaluate("Object.values(clients).forEach((client) => client.close())")
    gateway.refusing.discard(way)
    assert min(waits) >= 0
    assert max(waits) <= window_ms
    parts = Counter(int(wait * 10 / window_ms) for wait in waits)
    assert max(parts.values()) <= 3 * CLIENTS / 10, parts
    assert len(parts) >= 8, parts
