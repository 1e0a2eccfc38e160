"""Positions in the hands of a client."""

from __future__ import annotations

import pytest

from loadtest import places

FULL = "k3J9xQ2m.42-294~org:7.abcdefgh.5-1~a.b.ABCDEFGH.9-2"


def test_a_position_is_taken_apart_and_written_as_it_was() -> None:
    """Each log by its name, a topic with dots included; written again, it is the text it was."""
    taken = places.parse(FULL)
    assert taken == {"": "k3J9xQ2m.42-294", "~org:7": "abcdefgh.5-1", "~a.b": "ABCDEFGH.9-2"}
    assert places.write(taken) == FULL
    assert places.write(None) is None


@pytest.mark.parametrize("text", [None, 42, "", "x", "k3J9xQ2m.42", "k3J9xQ2m.42-294~", {"a": 1}])
def test_what_is_no_position_is_none(text: object) -> None:
    """Whatever a gateway sends in a position's place."""
    assert places.parse(text) is None
    assert places.parse_part(text) is None


@pytest.mark.parametrize(("topic", "log"), [(None, ""), ("org:7", "~org:7"), ("", None), ("a b", None), (7, None)])
def test_the_log_of_a_frame(topic: object, log: str | None) -> None:
    """No topic is the user's own log; what is no topic has none."""
    assert places.log_of(topic) == log
