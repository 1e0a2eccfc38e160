"""POST /v1/publish and GET /v1/position: who is let in, and what is turned away before it is looked at."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.http.conftest import API_KEY, HELLO, Door, problem
from tidings.log.position import Position


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
