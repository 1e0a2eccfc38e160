"""POST /v1/publish and GET /v1/position: the contract of section 6, against a real store."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.conftest import API_KEY, HELLO, Door, problem
from tests.support.valkey import ValkeyProcess
from tidings.log.position import Position


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
