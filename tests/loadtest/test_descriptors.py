"""A page is a file descriptor."""

from __future__ import annotations

import resource

import pytest

from loadtest.descriptors import MOST, SPARE, make_room_for


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """This process may have 256 descriptors, and raise that to 4096. What was set comes last."""
    limits = [(256, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.append(pair))
    return limits


def test_the_limit_is_raised_as_far_as_it_goes(limits: list[tuple[int, int]]) -> None:
    """Once; and never lowered."""
    make_room_for(1)
    assert limits[1:] == [(4096, 4096)]
    make_room_for(4096 - SPARE)
    limits.append((50_000, 50_000))
    make_room_for(1)
    assert limits[1:] == [(4096, 4096), (50_000, 50_000)]


def test_too_many_pages_are_refused_at_the_door(limits: list[tuple[int, int]]) -> None:
    """With the numbers: more than this process may have, or more than one process is good for."""
    with pytest.raises(ValueError, match="at most 4096"):
        make_room_for(4096 - SPARE + 1)
    limits.append((resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    make_room_for(MOST - SPARE)
    with pytest.raises(ValueError, match="at most 20000"):
        make_room_for(MOST)
