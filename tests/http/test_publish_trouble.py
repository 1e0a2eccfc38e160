"""POST /v1/publish when the store is away, full, slow or half there: what the publisher is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from tests.http.conftest import API_KEY, HELLO, Door, make_door, problem
from tests.support.replicated import Replicated
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings.client import AsyncPublisher
from tidings.errors import PublishError
from tidings.log.position import Position
from tidings.log.receipt import Receipt
from tidings.publishing.message import Message
from tidings_gateway.http.publish import MAX_IN_FLIGHT, Outcome


class TestStoreTrouble:
    async def test_redis_away(self, prefix: str) -> None:
        """503 with Retry-After; never a 2xx for what is not stored. It works again as soon as Redis does."""
        with ValkeyProcess() as server:
            async with AsyncPublisher(server.url, prefix=prefix, deadline_s=0.5) as publisher:
                door = make_door(publisher)
                async with door.client:
                    assert (await door.publish(HELLO)).status_code == 200
                    server.kill()
                    for body in (HELLO, {"messages": [HELLO, HELLO]}, {"users": ["a"], "event": "e"}):
                        answer = await door.publish(body)
                        assert answer.status_code == 503, answer.text
                        assert int(answer.headers["retry-after"]) >= 1
                        told = answer.json()
                        assert told["retryable"] is True
                        assert isinstance(told["outcome_unknown"], bool)
                        assert str(server.port) not in answer.text, "the inside is told to strangers"
                        if "messages" in body:
                            assert len(told["results"]) == 2
                    answer = await door.client.get(
                        "/v1/position?user=a", headers={"authorization": f"Bearer {API_KEY}"}
                    )
                    assert answer.status_code == 503
                    server.start()
                    assert (await door.publish(HELLO)).status_code == 200

    async def test_storage_full(self, prefix: str) -> None:
        """A full Redis refuses the write: 503 with a code of its own, and nothing was published."""
        with ValkeyProcess("--maxmemory", "1mb", "--maxmemory-policy", "noeviction") as server:
            async with AsyncPublisher(server.url, prefix=prefix, deadline_s=0.5) as publisher:
                door = make_door(publisher)
                async with door.client:
                    body = problem(await door.publish(HELLO), 503, "storage_full")
                    assert body["outcome_unknown"] is False

    async def test_an_error_that_will_not_go_away_is_a_500(self, valkey: ValkeyProcess, prefix: str) -> None:
        """Retrying is no use, so nobody is told to; the store's own words stay inside."""
        valkey.cli("SET", f"{prefix}:{{anna}}:log", "x")
        valkey.cli("HSET", f"{prefix}:{{anna}}:meta", "epoch", "abcdefgh", "seq", "1", "tag", "1")
        async with AsyncPublisher(valkey.url, prefix=prefix, deadline_s=0.5) as publisher:
            door = make_door(publisher)
            async with door.client:
                body = problem(await door.publish(HELLO), 500, "foreign_data")
                assert "retry-after" not in body
                assert "WRONGTYPE" not in str(body)

    @pytest.mark.parametrize("replicas", [-1, 17, True, "1", 1.0, None])
    async def test_replicas_that_make_no_sense(self, door: Door, replicas: object) -> None:
        """Refused at the door; so is asking for them for what is not stored."""
        body = problem(await door.publish({**HELLO, "min_replicas": replicas}), 400, "invalid")
        assert body["field"] == "min_replicas"
        ephemeral = {**HELLO, "ephemeral": True, "min_replicas": 1}
        assert problem(await door.publish(ephemeral), 400, "invalid")["field"] == "min_replicas"
        assert (await door.publish({**HELLO, "min_replicas": 0})).status_code == 200

    async def test_too_few_replicas(self, prefix: str) -> None:
        """Acknowledged when as many as asked for have it; else 503, and whether it is stored is not known."""
        with Replicated() as servers:
            async with AsyncPublisher(servers.primary.url, prefix=prefix, deadline_s=0.8) as publisher:
                door = make_door(publisher)
                async with door.client:
                    answer = await door.publish({**HELLO, "min_replicas": 1})
                    assert (answer.status_code, answer.json()["duplicate"]) == (200, False)
                    two = {**HELLO, "min_replicas": 2, "idempotency_key": "k"}
                    body = problem(await door.publish(two), 503, "unreplicated")
                    assert (body["outcome_unknown"], body["retryable"]) == (True, True)
                    answer = await door.publish({"messages": [{**HELLO, "min_replicas": 1}, two]})
                    assert answer.status_code == 207
                    stored, doubtful = answer.json()["results"]
                    assert Position.parse(stored["id"]).seq == 3
                    assert doubtful["error"]["code"] == "unreplicated"
                    again = (await door.publish({**HELLO, "idempotency_key": "k"})).json()
                    assert again["duplicate"] is True

    async def test_a_batch_that_is_half_stored_is_a_207(self) -> None:
        """What is stored is acknowledged, what is not is not, and the publisher learns which is which."""
        door = make_door(_Scripted([Receipt("abcdefgh.1-1"), PublishError("gone", outcome_unknown=True), None]))
        async with door.client:
            answer = await door.publish({"users": ["a", "b", "c"], "event": "e"})
        assert answer.status_code == 207
        stored, doubtful, refused = answer.json()["results"]
        assert stored == {"user": "a", "id": "abcdefgh.1-1", "duplicate": False, "listening": 0}
        assert doubtful["error"] == {
            "code": "unavailable",
            "status": 503,
            "detail": "The event store cannot be asked just now. Try again later.",
            "retryable": True,
            "outcome_unknown": True,
        }
        assert refused["error"]["retryable"] is False

    async def test_requests_in_flight_are_bounded(self) -> None:
        """When the store is slow, bodies must not pile up: one more is told to come back."""
        slow = _Slow()
        door = make_door(slow)
        async with door.client:
            waiting = [asyncio.ensure_future(door.publish(HELLO)) for _ in range(MAX_IN_FLIGHT)]
            await until(lambda: slow.asked == MAX_IN_FLIGHT)
            answer = await door.publish(HELLO)
            assert problem(answer, 503, "busy")
            assert int(answer.headers["retry-after"]) >= 1
            slow.release.set()
            assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {200}
            assert (await door.publish(HELLO)).status_code == 200

    async def test_trouble_is_logged_once_per_change(self, caplog: pytest.LogCaptureFixture) -> None:
        """A store that is away for an hour must not fill the disk with one line per request."""
        away, receipt = PublishError("connection refused"), Receipt("abcdefgh.1-1")
        script: list[Receipt | PublishError | None] = [away, away, receipt, receipt, away]
        door = make_door(_Scripted(script))
        caplog.set_level("INFO", "tidings.publish")
        async with door.client:
            for _ in range(5):
                await door.publish(HELLO)
        lines = [record.getMessage() for record in caplog.records if record.name == "tidings.publish"]
        assert lines == [
            "publishing fails (unavailable): connection refused",
            "publishing works again",
            "publishing fails (unavailable): connection refused",
        ]

    async def test_a_fault_of_our_own_is_a_500_without_details(self) -> None:
        """The traceback is for the log; the answer is a constant."""
        door = make_door(_Broken())
        async with door.client:
            answer = await door.publish(HELLO)
        body = problem(answer, 500, "internal")
        assert "secret detail" not in answer.text
        assert body["detail"] == "Something went wrong here; it has been logged."


class _Scripted:
    """Answers with the given outcomes, one after the other; None stands for a refusal that no retry mends."""

    def __init__(self, outcomes: list[Receipt | PublishError | None]) -> None:
        self._outcomes = outcomes

    async def publish_many(self, messages: Iterable[Message]) -> list[Outcome]:
        refused = PublishError("no", code="forbidden", retryable=False)
        return [self._outcomes.pop(0) or refused for _ in messages]

    async def position(self, user: str) -> str:
        raise AssertionError


class _Slow:
    def __init__(self) -> None:
        self.asked = 0
        self.release = asyncio.Event()

    async def publish_many(self, messages: Iterable[Message]) -> list[Outcome]:
        self.asked += 1
        await self.release.wait()
        return [Receipt("abcdefgh.1-1") for _ in messages]

    async def position(self, user: str) -> str:
        raise AssertionError


class _Broken(_Slow):
    async def publish_many(self, messages: Iterable[Message]) -> list[Outcome]:
        raise RuntimeError("secret detail")
