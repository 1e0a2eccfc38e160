"""What a page whose origin is not allowed gets to see, so that its developer learns why."""

from __future__ import annotations

import pytest

from tests.http.conftest import ORIGIN, Door
from tidings_gateway.auth.origin import OriginCheck
from tidings_gateway.http.origin import origin_refused, origin_required


async def test_a_page_of_a_wrong_origin_can_read_which_one_is_missing(door: Door) -> None:
    """CORS for this one answer: it names the origin and the setting, and nothing else."""
    answer = await door.client.get("/v1/ws", headers={"origin": "https://other.example"})
    assert answer.status_code == 403
    assert answer.headers["access-control-allow-origin"] == "https://other.example"
    assert answer.headers["vary"] == "Origin"
    assert "access-control-allow-credentials" not in answer.headers
    body = answer.json()
    assert body["code"] == "origin_not_allowed"
    assert body["origin"] == "https://other.example"
    assert "TIDINGS_ALLOWED_ORIGINS" in body["detail"]
    assert ORIGIN not in answer.text


@pytest.mark.parametrize("origin", ["null", "*", "", "https://a b", "https://a.example/x", "javascript:alert(1)"])
async def test_what_is_no_origin_is_not_echoed_as_one(door: Door, origin: str) -> None:
    """`null` and `*` in that header would let in more than the one page."""
    answer = await door.client.get("/v1/ws", headers={"origin": origin})
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers


async def test_a_plain_get_of_the_socket_says_upgrade(door: Door) -> None:
    """An allowed page that asks learns that it was not the origin."""
    answer = await door.client.get("/v1/ws", headers={"origin": ORIGIN})
    assert answer.status_code == 426
    assert answer.headers["upgrade"] == "websocket"
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert answer.json()["code"] == "upgrade_required"
    assert (await door.client.get("/v1/ws")).status_code == 426


def test_the_answers_before_an_upgrade() -> None:
    """Both are problems, and neither may be kept by a cache."""
    for response in (origin_refused(OriginCheck("https://x.example", False)), origin_required()):
        assert response.status_code == 403
        assert response.media_type == "application/problem+json"
        assert response.headers["cache-control"] == "no-store"
