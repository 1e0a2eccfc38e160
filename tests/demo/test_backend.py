"""The demo's application: sessions, state after position, jobs that end for good, and what the buttons do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import redis.asyncio

from tests.support.valkey import ValkeyProcess
from tests.support.waiting import POLL_S, until
from tidings import AsyncPublisher
from tidings.errors import PublishError
from tidings.log.eventlog import EventLog
from tidings.log.names import Names
from tidings.log.position import Position
from tidings.log.script import Command
from tidings_gateway.assets import Asset
from tidings_gateway.auth.tokens import TokenVerifier
from tidings_gateway.demo.backend import COOKIE, Stage, create_backend
from tidings_gateway.demo.gateways import GatewayProcess
from tidings_gateway.demo.jobs import MAX_KEPT, MAX_RUNNING, Worker

SECRET = "s" * 40
FILES = {
    "index.html": Asset("index.html", b"<!doctype html>", "text/html; charset=utf-8", '"1"'),
    "demo.js": Asset("demo.js", b"export {}", "text/javascript; charset=utf-8", '"2"'),
}

pytestmark = pytest.mark.may_block(reason="redis-py looks up its own version when a client is made")


class FakeValkey:
    def __init__(self) -> None:
        self.moves: list[str] = []

    def freeze(self) -> None:
        self.moves.append("freeze")

    def thaw(self) -> None:
        self.moves.append("thaw")


class Demo:
    def __init__(self, stage: Stage, valkey: FakeValkey) -> None:
        self.stage = stage
        self.valkey = valkey
        app = create_backend(stage, FILES)
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8000")

    async def begin(self) -> str:
        return str((await self.client.get("/demo/session")).json()["user"])

    async def state(self) -> dict[str, Any]:
        answer = await self.client.get("/demo/state")
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    async def published(self, count: int) -> None:
        """Wait until so many events are stored for this browser's user."""
        async with asyncio.timeout(5):
            while (await self.state())["published"] != count:
                await asyncio.sleep(POLL_S)

    async def post(self, what: str, body: Any) -> httpx.Response:
        return await self.client.post(f"/demo/{what}", json=body)


@pytest.fixture
async def demo(valkey: ValkeyProcess, prefix: str) -> AsyncIterator[Demo]:
    client: Any = redis.asyncio.Redis.from_url(valkey.url)

    async def run(command: Command) -> Any:
        await client.script_load(command.script.text)
        return await client.execute_command(*command.evalsha())

    async with AsyncPublisher(valkey.url, prefix=prefix) as publisher:
        worker, fake = Worker(publisher), FakeValkey()
        gateways = [GatewayProcess("A", {}), GatewayProcess("B", {})]
        stage = Stage(
            publisher,
            EventLog(run, Names(prefix)),
            worker,
            gateways,
            fake,  # type: ignore[arg-type]
            SECRET,
            ("http://127.0.0.1:8000", "http://localhost:8000"),
        )
        made = Demo(stage, fake)
        async with made.client:
            yield made
        await stage.close()
        await worker.close()
    await client.aclose()


class TestSession:
    async def test_a_browser_is_one_user_from_then_on(self, demo: Demo) -> None:
        """The token is for the user in the browser's cookie, which scripts cannot read and other sites cannot send."""
        first = await demo.client.get("/demo/session")
        again = await demo.client.get("/demo/session")
        assert first.json()["user"] == again.json()["user"]
        assert TokenVerifier(secrets=[SECRET]).verify(first.json()["token"]).user == first.json()["user"]
        cookie = first.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert first.headers["cache-control"] == "no-store"

    async def test_another_browser_is_another_user(self, demo: Demo) -> None:
        """And an invented cookie is nobody's."""
        first = await demo.begin()
        demo.client.cookies.clear()
        demo.client.cookies.set(COOKIE, "invented")
        assert await demo.begin() != first

    @pytest.mark.parametrize(
        ("method", "path"),
        [("GET", "state"), ("GET", "stage"), ("POST", "jobs"), ("POST", "burst"), ("POST", "restart")],
    )
    async def test_without_a_session_there_is_nothing(self, demo: Demo, method: str, path: str) -> None:
        """401, which tells the page to ask for one."""
        answer = await demo.client.request(method, f"/demo/{path}", json={})
        assert answer.status_code == 401
        assert answer.json()["code"] == "no_session"


class TestJobs:
    async def test_a_job_ends_with_a_durable_event(self, demo: Demo, valkey: ValkeyProcess) -> None:
        """Progress is for who is connected; the end is in the log."""
        user = await demo.begin()
        answer = await demo.post("jobs", {"seconds": 0.05})
        assert answer.status_code == 202
        job_id = answer.json()["id"]

        await demo.published(1)
        state = await demo.state()
        assert state["jobs"] == [{"id": job_id, "seconds": 0.05, "status": "complete", "progress": 100}]
        assert Position.parse(state["position"]).seq == 1
        page = await demo.stage.event_log.read_after(user, None, last=1)
        assert b'"job.complete"' in page.entries[0].body
        assert job_id.encode() in page.entries[0].body

    async def test_the_state_never_lags_behind_the_position(self, demo: Demo) -> None:
        """Whoever resumes from the position gets no event about what is missing in the state: so nothing may be."""
        await demo.begin()
        for _ in range(20):
            await demo.post("jobs", {"seconds": 0.001})
        deadline = asyncio.get_running_loop().time() + 10
        while True:
            state = await demo.state()
            done = [job for job in state["jobs"] if job["status"] == "complete"]
            assert len(done) >= Position.parse(state["position"]).seq
            if state["published"] == 20:
                break
            assert asyncio.get_running_loop().time() < deadline

    async def test_the_end_is_told_again_until_it_is_stored(self, demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
        """A store that is away only delays it, and its idempotency key makes it once."""
        await demo.begin()
        real, failures = demo.stage.publisher.publish, 2
        keys: list[str | None] = []

        async def failing(*args: Any, **options: Any) -> Any:
            nonlocal failures
            if options.get("ephemeral"):
                return await real(*args, **options)
            keys.append(options["idempotency_key"])
            if failures:
                failures -= 1
                raise PublishError("away", outcome_unknown=True)
            return await real(*args, **options)

        monkeypatch.setattr(demo.stage.publisher, "publish", failing)
        monkeypatch.setattr("tidings_gateway.demo.jobs.PUBLISH_AGAIN_S", 0.01)
        await demo.post("jobs", {"seconds": 0.01})
        await demo.published(1)
        assert len(keys) == 3
        assert len(set(keys)) == 1
        assert keys[0] is not None

    async def test_jobs_are_bounded(self, demo: Demo) -> None:
        """In number at a time, and in those remembered."""
        await demo.begin()
        for _ in range(MAX_RUNNING):
            assert (await demo.post("jobs", {"seconds": 60})).status_code == 202
        answer = await demo.post("jobs", {"seconds": 60})
        assert answer.status_code == 429
        assert answer.headers["retry-after"]
        assert len((await demo.state())["jobs"]) == MAX_KEPT

    @pytest.mark.parametrize("body", [{}, [], {"seconds": 0}, {"seconds": -1}, {"seconds": 61}, {"seconds": "1"}])
    async def test_a_bad_request_is_named(self, demo: Demo, body: Any) -> None:
        """400."""
        await demo.begin()
        assert (await demo.post("jobs", body)).status_code == 400


class TestButtons:
    async def test_a_burst_is_stored_in_order(self, demo: Demo) -> None:
        """As many durable events as asked for."""
        user = await demo.begin()
        assert (await demo.post("burst", {"count": 300})).json() == {"published": 300}
        page = await demo.stage.event_log.read_after(user, None, last=300, limit=500)
        assert [b'"number":%d,' % number in entry.body for number, entry in enumerate(page.entries, 1)] == [True] * 300
        assert (await demo.post("burst", {"count": 1001})).status_code == 400

    async def test_freezing_ends_by_itself(self, demo: Demo) -> None:
        """One at a time, and never for longer than asked."""
        await demo.begin()
        assert (await demo.post("freeze", {"seconds": 0.2})).status_code == 202
        await until(lambda: demo.valkey.moves == ["freeze"])
        assert (await demo.post("freeze", {"seconds": 1})).status_code == 409
        await until(lambda: demo.valkey.moves == ["freeze", "thaw"])
        assert (await demo.post("freeze", {"seconds": 11})).status_code == 400

    async def test_the_end_of_the_demo_thaws(self, demo: Demo) -> None:
        """A frozen server takes no SIGTERM."""
        await demo.begin()
        await demo.post("freeze", {"seconds": 10})
        await until(lambda: demo.valkey.moves == ["freeze"])
        await demo.stage.close()
        assert demo.valkey.moves[-1] == "thaw"

    async def test_one_restart_at_a_time(self, demo: Demo) -> None:
        """The second is told that one is going on."""
        await demo.begin()
        assert (await demo.post("restart", {})).status_code == 202
        assert (await demo.post("restart", {})).status_code == 409
        for task in demo.stage.busy.values():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def test_one_gateway_can_be_chosen(self, demo: Demo) -> None:
        """The one the page is on: only a restart of its own shows it what a deploy does to a tab."""
        await demo.begin()
        assert (await demo.post("restart", {"gateway": "B"})).json() == {"gateways": ["B"]}
        await demo.stage.close()
        assert (await demo.post("restart", {"gateway": "C"})).status_code == 400

    @pytest.mark.parametrize(
        ("unknown", "said"),
        [(3, "nobody knows yet whether they are stored"), (0, "so they are not stored"), (1, "Whether 1 of those")],
    )
    async def test_no_receipt_is_not_called_a_loss(
        self, demo: Demo, monkeypatch: pytest.MonkeyPatch, unknown: int, said: str
    ) -> None:
        """A burst into a frozen Redis: how many have no receipt, and how many of those may be stored all the same."""

        async def frozen(messages: Any) -> list[PublishError]:
            return [PublishError("time ran out", outcome_unknown=at < unknown) for at, _ in enumerate(messages)]

        await demo.begin()
        monkeypatch.setattr(demo.stage.publisher, "publish_many", frozen)
        answer = await demo.post("burst", {"count": 3})
        assert answer.status_code == 503
        problem = answer.json()
        assert (problem["code"], problem["failed"], problem["unknown"]) == ("unacknowledged", 3, unknown)
        assert problem["detail"].startswith("No receipt for 3 of 3 events.")
        assert said in problem["detail"]

    async def test_other_sites_cannot_press_them(self, demo: Demo) -> None:
        """What a form of another site can send is refused."""
        await demo.begin()
        answer = await demo.client.post("/demo/burst", content=b'{"count":1}', headers={"content-type": "text/plain"})
        assert answer.status_code == 415

    async def test_a_position_is_explained(self, demo: Demo) -> None:
        """In words, for the browser's own log only."""
        await demo.begin()
        position = (await demo.state())["position"]
        await demo.post("burst", {"count": 2})
        answer = await demo.client.get("/demo/explain", params={"position": position})
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert "2 events came after it" in answer.text
        assert "not a position" in (await demo.client.get("/demo/explain?position=%3Cb%3E")).text


async def test_the_state_tells_of_the_gateways(demo: Demo) -> None:
    """By the name that begins their session ids, with the tabs that the front leads to each, and without asking Redis:
    it is what the page shows while Redis is frozen."""
    await demo.begin()
    demo.stage.tabs = lambda port: 3 if port == 7001 else 0
    demo.stage.gateways[1].port = 7001
    demo.stage.event_log = demo.stage.publisher = None  # type: ignore[assignment]
    stage = (await demo.client.get("/demo/stage")).json()
    assert [(gateway["name"], gateway["tabs"]) for gateway in stage["gateways"]] == [("A", 0), ("B", 3)]
    assert (stage["frozen"], stage["restarting"]) == (False, False)


async def test_the_page_is_told_what_goes_on(demo: Demo) -> None:
    """Another tab than the one whose button was pressed must know that Redis is frozen, too."""
    await demo.begin()
    await demo.post("freeze", {"seconds": 10})
    assert (await demo.client.get("/demo/stage")).json()["frozen"] is True
    await demo.stage.close()
    assert (await demo.client.get("/demo/stage")).json()["frozen"] is False


async def test_the_page_may_load_nothing_from_elsewhere(demo: Demo) -> None:
    """A strict policy: scripts and connections of its own origin, under both of its names, and no frames."""
    answer = await demo.client.get("/")
    assert answer.content == FILES["index.html"].body
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "connect-src 'self' ws://127.0.0.1:8000 ws://localhost:8000;" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    script = await demo.client.get("/demo/demo.js")
    assert script.headers["content-type"].startswith("text/javascript")
    assert script.headers["content-security-policy"] == policy
    assert (await demo.client.get("/demo/../settings.py")).status_code == 404
