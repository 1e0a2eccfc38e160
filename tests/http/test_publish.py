"""POST /v1/publish and GET /v1/position: the contract of section 6, against a real store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import httpx
import pytest

from tests.http.conftest import API_KEY, Door, make_door
from tests.support.replicated import Replicated
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings.client import AsyncPublisher
from tidings.errors import PublishError
from tidings.log.position import Position
from tidings.log.receipt import Receipt
from tidings.publishing.message import Message
from tidings_gateway.http.publish import MAX_IN_FLIGHT, Outcome

HELLO = {"user": "anna", "event": "hello", "data": {"n": 1}}


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["cache-control"] == "no-store"
    body: dict[str, Any] = answer.json()
    assert body["status"] == status
    assert body["code"] == code
    assert body["type"] == "about:blank"
    return body


class TestOne:
    async def test_a_stored_event_has_an_id(self, door: Door) -> None:
        """200 with the id it will have on the wire, which is the user's position from then on."""
        answer = await door.publish(HELLO)
        assert answer.status_code == 200
        body = answer.json()
        assert body == {"id": body["id"], "duplicate": False, "listening": 0}
        assert Position.parse(body["id"]).seq == 1
        assert await door.position("anna") == body["id"]

    async def test_the_body_is_stored_as_sent(self, door: Door, valkey: ValkeyProcess, prefix: str) -> None:
        """Event, data, time and key; nothing else."""
        import json

        await door.publish({**HELLO, "key": "k", "data": {"text": "ä\u2028", "big": 2**53 - 1, "f": 0.1}})
        entries = valkey.cli("XRANGE", f"{prefix}:{{anna}}:log", "-", "+")
        fields = entries[0][1]
        body = json.loads(fields[b"b"] if isinstance(fields, dict) else fields[fields.index(b"b") + 1])
        assert body.pop("time") > 1_700_000_000_000
        assert body == {"event": "hello", "data": {"text": "ä\u2028", "big": 2**53 - 1, "f": 0.1}, "key": "k"}

    async def test_the_same_idempotency_key_stores_once(self, door: Door) -> None:
        """The first id comes back, with `duplicate`, however often it is sent; another user's key is another key."""
        first = (await door.publish({**HELLO, "idempotency_key": "k1"})).json()
        again = (await door.publish({**HELLO, "idempotency_key": "k1", "data": "other"})).json()
        assert again == {"id": first["id"], "duplicate": True, "listening": 0}
        other = (await door.publish({**HELLO, "user": "bert", "idempotency_key": "k1"})).json()
        assert other["duplicate"] is False

    async def test_an_ephemeral_event_has_no_id(self, door: Door) -> None:
        """It is not stored, so it leaves the position where it was."""
        before = await door.position("anna")
        answer = await door.publish({**HELLO, "ephemeral": True, "key": "progress"})
        assert answer.json() == {"id": None, "duplicate": False, "listening": 0}
        assert await door.position("anna") == before

    async def test_an_answer_is_nobody_elses(self, door: Door) -> None:
        """No cache on the way may keep it."""
        answer = await door.publish(HELLO)
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["vary"] == "Authorization"
        assert "server" not in answer.headers


class TestSeveral:
    async def test_users_are_answered_in_order(self, door: Door) -> None:
        """One event for many: a result per user, in the order they were given."""
        answer = await door.publish({"users": ["c", "a", "b"], "event": "x", "data": None})
        assert answer.status_code == 200
        results = answer.json()["results"]
        assert [result["user"] for result in results] == ["c", "a", "b"]
        for result in results:
            assert await door.position(result["user"]) == result["id"]

    async def test_one_user_in_users_is_still_a_list(self, door: Door) -> None:
        """The shape of the answer depends on the request alone, never on how many there were."""
        assert len((await door.publish({"users": ["a"], "event": "x"})).json()["results"]) == 1
        assert len((await door.publish({"messages": [HELLO]})).json()["results"]) == 1

    async def test_messages_are_stored_in_order(self, door: Door) -> None:
        """A batch keeps the order of each user's events."""
        messages = [{"user": f"u{i % 3}", "event": "e", "data": i} for i in range(30)]
        results = (await door.publish({"messages": messages})).json()["results"]
        for user in ("u0", "u1", "u2"):
            seqs = [Position.parse(result["id"]).seq for result in results if result["user"] == user]
            assert seqs == list(range(1, 11))

    async def test_a_bad_message_does_not_keep_the_others_from_being_stored(self, door: Door) -> None:
        """207: each result says what became of its message, and where the fault is."""
        messages = [
            {"user": "a", "event": "ok"},
            {"user": "a b", "event": "ok"},
            {"user": "a", "event": "no spaces"},
            {"user": "a", "event": "ok", "data": {"deep": [1, 2**53]}},
            {"users": ["b", "*"], "event": "ok"},
        ]
        answer = await door.publish({"messages": messages})
        assert answer.status_code == 207
        results = answer.json()["results"]
        assert [result.get("user") for result in results] == ["a", None, None, None, "b", None]
        assert [result["error"]["field"] for result in results if "error" in result] == [
            "messages[1].user",
            "messages[2].event",
            "messages[3].data.deep[1]",
            "messages[4].user",
        ]
        assert all(result["error"]["code"] == "invalid" for result in results if "error" in result)
        assert Position.parse(await door.position("a")).seq == 1

    async def test_a_thousand_at_once_and_no_more(self, door: Door) -> None:
        """The bound counts events, whichever way they are asked for; above it nothing is stored."""
        answer = await door.publish({"messages": [{"user": f"m{i}", "event": "e"} for i in range(1000)]})
        assert answer.status_code == 200
        assert len(answer.json()["results"]) == 1000
        for body in (
            {"messages": [{"user": "z", "event": "e"}] * 1001},
            {"users": ["z"] * 1001, "event": "e"},
            {"messages": [{"users": ["z"] * 501, "event": "e"}] * 2},
        ):
            problem(await door.publish(body), 400, "too_many")
        assert Position.parse(await door.position("z")).seq == 0


class TestRefusals:
    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ([], None),
            ("x", None),
            (7, None),
            ({}, "user"),
            ({"event": "e"}, "user"),
            ({"user": "a", "users": ["a"], "event": "e"}, "user"),
            ({"user": "a"}, "event"),
            ({"user": "a", "event": 7}, "event"),
            ({"user": "a", "event": "a b"}, "event"),
            ({"user": "a", "event": "x" * 129}, "event"),
            ({"user": 7, "event": "e"}, "user"),
            ({"user": "", "event": "e"}, "user"),
            ({"user": "a\n", "event": "e"}, "user"),
            ({"user": "é", "event": "e"}, "user"),
            ({"users": [], "event": "e"}, "users"),
            ({"users": "a", "event": "e"}, "users"),
            ({"user": "a", "event": "e", "key": 7}, "key"),
            ({"user": "a", "event": "e", "key": ""}, "key"),
            ({"user": "a", "event": "e", "ephemeral": 1}, "ephemeral"),
            ({"user": "a", "event": "e", "ephemeral": None}, "ephemeral"),
            ({"user": "a", "event": "e", "idempotency_key": ""}, "idempotency_key"),
            ({"user": "a", "event": "e", "idempotency_key": "x" * 129}, "idempotency_key"),
            ({"user": "a", "event": "e", "idempotency_key": "é"}, "idempotency_key"),
            ({"user": "a", "event": "e", "idempotency_key": "k", "ephemeral": True}, "idempotency_key"),
            ({"user": "a", "event": "e", "traceparent": 7}, "traceparent"),
            ({"messages": {}}, "messages"),
            ({"messages": []}, "messages"),
            ({"messages": ["x"]}, "messages[0]"),
            ({"messages": [{"user": "a", "event": "e"}, {"user": "a"}]}, "messages[1].event"),
            ({"messages": [{"messages": []}]}, "messages[0].messages"),
            ({"messages": [HELLO], "user": "a"}, "user"),
        ],
    )
    async def test_what_is_wrong_is_named(self, door: Door, body: Any, field: str | None) -> None:
        """400 with the member at fault; nothing is stored."""
        answer = await door.publish(body)
        assert answer.status_code == 400, answer.text
        assert answer.json().get("field") == field
        assert Position.parse(await door.position("a")).seq == 0

    async def test_a_misspelt_member_is_refused(self, door: Door) -> None:
        """An idempotency key that is ignored would store the event twice."""
        body = problem(await door.publish({**HELLO, "idempotencyKey": "k"}), 400, "unknown_member")
        assert "did you mean idempotency_key" in body["detail"]
        assert body["field"] == "idempotencyKey"

    async def test_what_this_version_cannot_do_is_said(self, door: Door) -> None:
        """A promise that is not kept must not be accepted: topics."""
        assert problem(await door.publish({"topic": "all", "event": "e"}), 400, "no_topics")["field"] == "topic"

    @pytest.mark.parametrize(
        "raw",
        [
            *(b"", b"{", b"\xff", b"[" * 100_000, b'{"user":"a","event":"e","data":NaN}'),
            *(b'{"user":"a","event":"e","data":Infinity}', b'{"user":"a","event":"e","data":"\\ud800"}'),
            b'{"user":"a","event":"e","data":01}',
        ],
        ids=["empty", "open", "not UTF-8", "deep", "NaN", "infinity", "surrogate", "octal"],
    )
    async def test_only_strict_json(self, door: Door, raw: bytes) -> None:
        """NaN, lone surrogates, broken UTF-8 and bottomless nesting are refused, not repaired."""
        headers = {"authorization": f"Bearer {API_KEY}", "content-type": "application/json"}
        answer = await door.client.post("/v1/publish", content=raw, headers=headers)
        problem(answer, 400, "invalid_json")

    @pytest.mark.parametrize("number", [2**53, -(2**53), 2**63, 2**64, 10**21, -(10**30)])
    async def test_integers_that_a_browser_would_round_are_refused(self, door: Door, number: int) -> None:
        """110988663231921363 must not become …360 on the way: with the path of the value."""
        answer = await door.publish({"user": "a", "event": "e", "data": {"ids": [1, number]}})
        assert problem(answer, 400, "invalid")["field"] == "data.ids[1]"

    async def test_long_digits_that_are_no_integer_pass(self, door: Door) -> None:
        """A decimal fraction or a string of digits is not rounded by anybody."""
        data = {"pi": 3.14159265358979312, "text": "110988663231921363"}
        assert (await door.publish({"user": "a", "event": "e", "data": data})).status_code == 200

    async def test_nesting_is_bounded(self, door: Door) -> None:
        """64 levels, as for every other way to publish."""
        data: Any = 1
        for _ in range(70):
            data = [data]
        assert problem(await door.publish({"user": "a", "event": "e", "data": data}), 400, "invalid")[
            "field"
        ].startswith("data[0][0]")

    async def test_an_event_too_large_is_named(self, door: Door) -> None:
        """64 KiB for the body as a whole; just below it is stored."""
        ok = await door.publish({"user": "a", "event": "e", "data": "x" * 65_000})
        assert ok.status_code == 200
        answer = await door.publish({"user": "a", "event": "e", "data": "x" * 65_536})
        assert problem(answer, 400, "invalid")["field"] == "data"


class TestDoor:
    @pytest.mark.parametrize(
        "headers",
        [
            [],
            [("authorization", "Bearer wrong")],
            [("authorization", f"Basic {API_KEY}")],
            [("authorization", API_KEY)],
            [("authorization", f"Bearer {API_KEY}x")],
            [("authorization", f"Bearer {API_KEY}"), ("authorization", f"Bearer {API_KEY}")],
            [("x-api-key", API_KEY)],
        ],
    )
    async def test_no_or_wrong_key(self, door: Door, headers: list[tuple[str, str]]) -> None:
        """401 with one and the same body, for both routes, before anything of the request is read."""
        for answer in (
            await door.client.post("/v1/publish", content=b"not even json", headers=headers),
            await door.client.get("/v1/position?user=anna", headers=headers),
        ):
            body = problem(answer, 401, "unauthorized")
            assert body["detail"] == "An API key is needed: Authorization: Bearer <key>."
            assert answer.headers["www-authenticate"] == "Bearer"

    @pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonp"])
    async def test_the_content_type_must_be_json(self, door: Door, kind: str) -> None:
        """What a page of another site may send without asking first is no JSON."""
        headers = {"authorization": f"Bearer {API_KEY}", "content-type": kind}
        answer = await door.client.post("/v1/publish", content=b"{}", headers=headers)
        problem(answer, 415, "unsupported_media_type")

    async def test_a_charset_does_no_harm(self, door: Door) -> None:
        """Some clients always add one."""
        answer = await door.publish(HELLO, headers={"content-type": "Application/JSON; charset=utf-8"})
        assert answer.status_code == 200

    async def test_no_cors(self, door: Door) -> None:
        """A page has no business with an API key: neither the preflight nor the answer lets it in."""
        origin = {"origin": "https://app.example.com", "access-control-request-method": "POST"}
        preflight = await door.client.options("/v1/publish", headers=origin)
        assert preflight.status_code == 405
        answer = await door.publish(HELLO, headers=origin)
        for response in (preflight, answer):
            assert not [name for name in response.headers if name.startswith("access-control")]

    async def test_a_body_too_long_is_refused_while_it_streams(self, door: Door) -> None:
        """With an announced length nothing is read; without one, no more than the bound."""
        sent = 0

        async def endless() -> AsyncIterator[bytes]:
            nonlocal sent
            while sent < 50 * 1_048_576:
                sent += 65_536
                yield b" " * 65_536

        headers = {"authorization": f"Bearer {API_KEY}", "content-type": "application/json"}
        answer = await door.client.post("/v1/publish", content=endless(), headers=headers)
        problem(answer, 413, "too_large")
        assert "connection" not in answer.headers, "closed with data unread, it would be reset and the answer lost"
        assert sent < 6 * 1_048_576

        async def unread() -> AsyncIterator[bytes]:
            if headers:
                raise AssertionError("the body was read")
            yield b""

        headers["content-length"] = "4194305"
        problem(await door.client.post("/v1/publish", content=unread(), headers=headers), 413, "too_large")

    async def test_a_publisher_that_goes_away_leaves_no_traceback(self, door: Door) -> None:
        """It is no fault of ours; nothing is stored, and the place it took is free again."""
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"authorization", f"Bearer {API_KEY}".encode()), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/v1/publish", "headers": headers, "query_string": b""}
        await door.app({**scope, "http_version": "1.1"}, receive, send)
        assert sent[0]["status"] == 400
        assert (await door.publish(HELLO)).status_code == 200

    @pytest.mark.parametrize("query", ["", "?user=", "?user=a&user=b", "?user=a%20b", "?user=%00", "?user=*"])
    async def test_a_position_is_of_one_user(self, door: Door, query: str) -> None:
        """400 naming the member."""
        answer = await door.client.get(f"/v1/position{query}", headers={"authorization": f"Bearer {API_KEY}"})
        assert problem(answer, 400, "invalid")["field"] == "user"

    async def test_the_position_of_a_user_without_events(self, door: Door) -> None:
        """Everybody has one, and it stays the same until something happens."""
        position = await door.position("nobody")
        assert Position.parse(position).seq == 0
        assert await door.position("nobody") == position


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
