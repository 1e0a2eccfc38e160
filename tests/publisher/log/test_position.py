"""Positions: the grammar, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.errors import InvalidPosition
from tidings.log.position import MAX_POSITION_BYTES, MAX_TOPICS, FullPosition, Position

PARTS = st.builds(
    Position,
    st.from_regex(r"[0-9A-Za-z]{8,16}", fullmatch=True),
    st.integers(0, 10**16 - 1),
    st.integers(0, 10**10 - 1),
)
TOPICS = st.from_regex(r"[A-Za-z0-9._:-]{1,64}", fullmatch=True)

NOT_PARTS = [
    "",
    "abcdefgh",
    "abcdefgh.1",
    "abcdefgh.1-",
    "abcdefgh.-1-2",
    "abcdefgh.01-2",
    "abcdefgh.1-02",
    "abcdefg.1-2",
    "abcdefghijklmnopq.1-2",
    "abcdefg_.1-2",
    "abcdefgh.1-2\n",
    "\nabcdefgh.1-2",
    " abcdefgh.1-2",
    "abcdefgh.1-12345678901",
    "abcdefgh.12345678901234567-1",
    "abcdefgh.1-2~",
    "abcdefgh.1.2-3",
    "abcdefgh.+1-2",
    "abcdefgh.1e3-2",
    "abcdefgh.\u0661-2",
    "ａbcdefgh.1-2",
    "abcdefgh.1-2\x00",
    "null",
    '{"epoch":1}',
    "0-0",
    "$",
    "1690000000000-0",
]


@given(PARTS)
def test_a_part_is_what_it_was(part: Position) -> None:
    """Writing a position and reading it gives the same, from str and from bytes."""
    assert Position.parse(str(part)) == part
    assert Position.parse(part.encode()) == part


@pytest.mark.parametrize("text", NOT_PARTS)
def test_anything_else_is_invalid(text: str) -> None:
    """A text that is not exactly one part is refused, and the error holds it."""
    with pytest.raises(InvalidPosition) as caught:
        Position.parse(text)
    assert caught.value.text == text
    with pytest.raises(InvalidPosition):
        Position.parse(text.encode("utf-8"))
    with pytest.raises(InvalidPosition):
        FullPosition.parse(text if text != "abcdefgh.1-2~" else "abcdefgh.1-2~~")


@given(PARTS, st.dictionaries(TOPICS, PARTS, max_size=MAX_TOPICS))
def test_a_full_position_is_what_it_was(personal: Position, topics: dict[str, Position]) -> None:
    """A full position of at most 2 KiB gives back its parts, whatever dots and colons the topics hold."""
    full = FullPosition(personal, tuple(topics.items()))
    if len(str(full)) <= MAX_POSITION_BYTES:
        assert FullPosition.parse(str(full)) == full
    else:
        with pytest.raises(InvalidPosition):
            FullPosition.parse(str(full))


def test_topics_in_any_order_none_twice_and_not_too_many() -> None:
    """A repeated topic, more than 16 topics, or more than 2 KiB are invalid."""
    own, part = "abcdefgh.1-2", "hgfedcba.3-4"
    assert FullPosition.parse(f"{own}~b.{part}~a.{part}").topics[0][0] == "b"
    for text in (
        f"{own}~a.{part}~a.{part}",
        own + "".join(f"~t{n}.{part}" for n in range(MAX_TOPICS + 1)),
        own + "".join(f"~{n:064d}.{'h' * 16}.1234567890123456-1234567890" for n in range(17)),
        f"{own}~.{part}",
        f"{own}~{part}",
        f"{own}~a b.{part}",
        f"~a.{part}",
    ):
        with pytest.raises(InvalidPosition):
            FullPosition.parse(text)


@given(st.text(max_size=60) | st.binary(max_size=60))
def test_never_anything_but_a_position_or_invalid(text: str | bytes) -> None:
    """Whatever a client sends, parsing gives a position that writes back the same, or `InvalidPosition`."""
    try:
        part = Position.parse(text)
    except InvalidPosition:
        return
    assert part.encode() == (text if isinstance(text, bytes) else text.encode())
