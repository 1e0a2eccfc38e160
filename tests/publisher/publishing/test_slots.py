"""Who serves which slot, out of what nodes say."""

from __future__ import annotations

from typing import Any

import pytest

from tidings.publishing.slots import Redirect, SlotMap, SlotRange, parse_redirect, parse_slots
from tidings.redis_url import Address

ASKED = Address("10.0.0.9", 7009)
A, B, C = Address("a", 1), Address("b", 2), Address("c", 3)
ANSWER: list[Any] = [
    [5461, 10922, [b"b", 2, b"id", []], [b"c", 3, b"id", []]],
    [0, 5460, [b"a", 1, b"id"]],
    [10923, 10923, [b"c", 3, b"id"]],
]


def test_owners() -> None:
    """Of the first slot, of the last, and of one nobody serves."""
    slots = parse_slots(ANSWER, ASKED)
    assert slots.ranges[1] == SlotRange(5461, 10922, B, (B, C))
    owners = {slot: slots.owner(slot) for slot in (0, 5460, 5461, 10922, 10923, 10924, 16383)}
    assert owners == {0: A, 5460: A, 5461: B, 10922: B, 10923: C, 10924: None, 16383: None}
    assert slots.nodes == (A, B, C)
    assert parse_slots([], ASKED) == SlotMap(())
    assert SlotMap(()).owner(0) is None


@pytest.mark.parametrize("host", [b"", None, b"?"])
def test_a_node_that_does_not_know_its_own_address(host: bytes | None) -> None:
    """It means the one it was asked at; the port it knows."""
    assert parse_slots([[0, 16383, [host, 7, b"id"]]], ASKED).owner(5) == Address("10.0.0.9", 7)


@pytest.mark.parametrize("answer", [None, b"OK", 7, [[0]], [[0, 1]], [[0, 1, []]], [[0, 1, [b"a"]]], [[0, 1, 5]]])
def test_what_is_no_answer(answer: Any) -> None:
    """`ValueError`, whatever it is."""
    with pytest.raises(ValueError, match="CLUSTER SLOTS"):
        parse_slots(answer, ASKED)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MOVED 3999 127.0.0.1:6381", Redirect(3999, Address("127.0.0.1", 6381))),
        ("ASK 0 cache-1.example.com:6381", Redirect(0, Address("cache-1.example.com", 6381))),
        ("MOVED 1 ::1:6381", Redirect(1, Address("::1", 6381))),
        ("MOVED 1 :6381", Redirect(1, Address("10.0.0.9", 6381))),
        ("MOVED 1 ?:6381", Redirect(1, Address("10.0.0.9", 6381))),
    ],
)
def test_redirects(text: str, expected: Redirect) -> None:
    """By address or name; without one, the node that said it."""
    assert parse_redirect(text, ASKED) == expected
