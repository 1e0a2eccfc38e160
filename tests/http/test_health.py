"""/livez and /readyz: whether the process answers, and whether to send it newcomers."""

from __future__ import annotations

import pytest

from tests.http.conftest import Door, make_door
from tidings_gateway.http.health import Health, unready_because

READY = Health(draining=False, store_reached=True, store_up=True)


@pytest.mark.parametrize(
    ("health", "always", "reason"),
    [
        (READY, False, None),
        (READY, True, None),
        (Health(draining=True, store_reached=True, store_up=True), False, "draining"),
        (Health(draining=False, store_reached=False, store_up=False), False, "store_not_reached_yet"),
        (Health(draining=False, store_reached=True, store_up=False), False, None),
        (Health(draining=False, store_reached=True, store_up=False), True, "store_away"),
        (Health(draining=True, store_reached=False, store_up=False), True, "draining"),
    ],
)
def test_what_counts_as_ready(health: Health, always: bool, reason: str | None) -> None:
    """Redis being away later takes nobody out of service, unless asked for: it is away for every gateway at once."""
    assert unready_because(health, store_always=always) == reason


async def test_readiness_follows_the_state(door: Door) -> None:
    """200 and 503 with the reason; asked anew every time."""
    assert (await door.client.get("/readyz")).json() == {"status": "ready"}
    door.health = Health(draining=True, store_reached=True, store_up=True)
    answer = await door.client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"status": "unready", "reason": "draining"}
    assert answer.headers["cache-control"] == "no-store"


async def test_ready_redis_always(door: Door) -> None:
    """TIDINGS_READY_REDIS=always."""
    away = Health(draining=False, store_reached=True, store_up=False)
    strict = make_door(door.publisher, TIDINGS_READY_REDIS="always")
    strict.health = door.health = away
    async with strict.client:
        assert (await strict.client.get("/readyz")).status_code == 503
    assert (await door.client.get("/readyz")).status_code == 200


async def test_liveness_asks_nobody(door: Door) -> None:
    """A process that drains or has lost Redis is alive: killing it would only cut its sessions."""
    door.health = Health(draining=True, store_reached=False, store_up=False)
    answer = await door.client.get("/livez")
    assert answer.status_code == 200
    assert answer.json() == {"status": "alive"}
    assert (await door.client.head("/livez")).status_code == 200
