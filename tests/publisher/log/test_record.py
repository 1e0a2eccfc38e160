"""Records on a user's channel."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.errors import BadRecord
from tidings.log.record import (
    ControlRecord,
    DurableRecord,
    EphemeralRecord,
    encode_control,
    encode_durable,
    encode_ephemeral,
    parse_record,
)

POSITIONS = st.from_regex(rb"[0-9A-Za-z]{8,16}\.[1-9][0-9]{0,8}-[1-9][0-9]{0,9}", fullmatch=True)


@given(POSITIONS, POSITIONS, st.binary())
def test_a_record_is_what_it_was(before: bytes, position: bytes, body: bytes) -> None:
    """The three shapes give back what was put in, whatever the body holds, line breaks too."""
    assert parse_record(encode_durable(before, position, body)) == DurableRecord(before, position, body)
    assert parse_record(encode_ephemeral(body)) == EphemeralRecord(body)
    assert parse_record(encode_control(body)) == ControlRecord(body)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"x",
        b"c",
        b"\n{}",
        b"e\n{}",
        b"ea\n{}",
        b"e b\n{}",
        b"ea \n{}",
        b"xx\n{}",
        b"c2\n{}",
        b'{"event":"a"}',
        b"E\n",
    ],
)
def test_anything_else_is_a_bad_record(payload: bytes) -> None:
    """A message of another shape is refused; the error holds how it starts."""
    with pytest.raises(BadRecord) as caught:
        parse_record(payload)
    assert caught.value.head == payload[:64]


@given(st.binary(max_size=200))
def test_nothing_else_is_raised(payload: bytes) -> None:
    """Whatever somebody publishes on the channel, parsing gives a record or `BadRecord`."""
    with contextlib.suppress(BadRecord):
        parse_record(payload)
