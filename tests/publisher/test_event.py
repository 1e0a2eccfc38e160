"""An event's body: strict JSON, encoded once; and where the bad value is when it is not."""

from __future__ import annotations

import datetime
import enum
import json
import uuid
from collections import Counter, OrderedDict, namedtuple
from decimal import Decimal
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.errors import InvalidEvent
from tidings.event import MAX_DEPTH, MAX_EVENT_BYTES, MAX_KEY_CHARS, MAX_SAFE_INTEGER, Event

NAN = float("nan")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


class Word(enum.StrEnum):
    A = "a"


class Number(enum.IntEnum):
    SEVEN = 7


class Plain(enum.Enum):
    A = "a"


class Ratio(float):
    """What NumPy's float64 is: a float, but not exactly."""


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError


Pair = namedtuple("Pair", "x y")


def encode(data: Any, **arguments: Any) -> Event:
    return Event.encode("job.complete", data, time_ms=1_764_000_000_000, **arguments)


@given(VALUES)
def test_data_arrives_as_it_was(data: Any) -> None:
    """Any JSON value comes out of the body as it went in, for two parsers, on one line."""
    event = encode(data)
    expected = {"event": "job.complete", "data": data, "time": 1_764_000_000_000}
    assert orjson.loads(event.body) == expected
    assert json.loads(event.body) == expected
    assert not any(byte < 32 for byte in event.body)
    assert orjson.loads(event.data_json) == data


@given(VALUES, TEXTS.filter(lambda text: 1 <= len(text) <= MAX_KEY_CHARS))
def test_the_body_is_what_one_encoder_makes(data: Any, key: str) -> None:
    """Decoding and encoding the body gives the same bytes: the gateway's check relies on it to take the short way."""
    body = encode(data, key=key).body
    assert orjson.dumps(orjson.loads(body)) == body


def test_the_members_of_a_body() -> None:
    """event, data, time and, only if given, key."""
    assert encode({"n": 1}).body == b'{"event":"job.complete","data":{"n":1},"time":1764000000000}'
    with_key = b'{"event":"job.complete","data":null,"time":1764000000000,"key":"job \\"7\\""}'
    assert encode(None, key='job "7"').body == with_key


@pytest.mark.parametrize(
    ("data", "path", "words"),
    [
        (NAN, "data", "finite"),
        ({"a": [1, float("inf")]}, "data.a[1]", "finite"),
        ({"a": {"b": (0, {"c": -float("inf")})}}, "data.a.b[1].c", "finite"),
        ("\ud800", "data", "surrogate"),
        (["ok", "x\udfff"], "data[1]", "surrogate"),
        ({"\ud800": 1}, r"data['\ud800']", "surrogate"),
        (2**53, "data", "2^53"),
        ({"id": -(2**53)}, "data.id", "2^53"),
        ([2**63], "data[0]", "2^53"),
        ([-(2**63)], "data[0]", "2^53"),
        ([10**21], "data[0]", "2^53"),
        ({1: "x"}, "data", "str keys"),
        ({"rows": [{None: 1}]}, "data.rows[0]", "str keys"),
        ({Word.A: 1}, "data", "str keys"),
        ({"when": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)}, "data.when", "must be dict"),
        ({"when": datetime.date(2026, 1, 1)}, "data.when", "must be dict"),
        ([uuid.uuid4()], "data[0]", "must be dict"),
        ([Decimal(1)], "data[0]", "must be dict"),
        ([b"x"], "data[0]", "must be dict"),
        ([{1, 2}], "data[0]", "must be dict"),
        ([Pair(1, 2)], "data[0]", "must be dict"),
        ([Plain.A], "data[0]", "must be dict"),
        ([Unprintable()], "data[0]", "must be dict"),
        ({"we.ird": {"a b": [NAN]}}, "data['we.ird']['a b'][0]", "finite"),
    ],
)
def test_what_is_not_json_is_refused_with_its_path(data: Any, path: str, words: str) -> None:
    """The error leads to the bad value and says what is wrong with it."""
    with pytest.raises(InvalidEvent) as caught:
        encode(data)
    assert caught.value.path == path
    assert words in caught.value.why
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("number", [2**53 - 1, -(2**53 - 1), 0, -1])
def test_integers_that_a_browser_keeps(number: int) -> None:
    """Up to 2^53 - 1 in both directions, a number arrives as the same number."""
    assert orjson.loads(encode(number).body)["data"] == number


@pytest.mark.parametrize("number", [1e21, 2.0**53, 2.0**63, -0.0, 5e-324, 1.7976931348623157e308, 0.1])
def test_a_float_is_a_float_however_large(number: float) -> None:
    """A double arrives as the same double."""
    assert repr(json.loads(encode(number).body, parse_int=float)["data"]) == repr(number)


def test_subclasses_that_mean_their_base() -> None:
    """Enumerations of str and int, ordered dictionaries, counters, and floats of other libraries are what they are."""
    data = [Word.A, Number.SEVEN, OrderedDict(a=1), Counter("aab"), Ratio(1.5), True, (1, 2)]
    assert orjson.loads(encode(data).body)["data"] == ["a", 7, {"a": 1}, {"a": 2, "b": 1}, 1.5, True, [1, 2]]
    with pytest.raises(InvalidEvent):
        encode([Ratio("nan")])
    with pytest.raises(InvalidEvent):
        encode(OrderedDict(a=NAN))


def _nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


def test_how_deep_data_may_be() -> None:
    """64 levels, of which the body is the first; one more is refused, and so is a value that contains itself."""
    encode(_nested(MAX_DEPTH - 1))
    with pytest.raises(InvalidEvent, match="nested deeper than 64"):
        encode(_nested(MAX_DEPTH))
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidEvent, match="nested deeper than 64"):
        encode(endless)


@pytest.mark.parametrize("character", ["x", "é", "€", "\U0001f600", "\n", '"'])
def test_the_limit_counts_bytes_of_the_whole_body(character: str) -> None:
    """A body of exactly the limit passes, one byte more is refused, however many bytes a character has."""
    unit = len(encode(character).data_json) - 2
    frame = len(encode("").body)
    room = MAX_EVENT_BYTES - frame
    text = character * (room // unit) + "x" * (room % unit)
    assert len(encode(text).body) == MAX_EVENT_BYTES
    with pytest.raises(InvalidEvent) as caught:
        encode(text + "x")
    assert (caught.value.path, caught.value.value) == ("data", MAX_EVENT_BYTES + 1)
    with pytest.raises(InvalidEvent):
        encode("x" * 300, max_bytes=300)


@pytest.mark.parametrize("type", ["a", "job.complete", "a:b/c-d_e.1", "x" * 128])
def test_types(type: str) -> None:
    """1 to 128 characters of the grammar."""
    assert orjson.loads(Event.encode(type, None, time_ms=0).body)["event"] == type


@pytest.mark.parametrize("type", ["", "x" * 129, "a b", 'a"', "a\n", "x\ny", "é", "a\\", None, 7, b"a"])
def test_not_a_type(type: Any) -> None:
    """Nothing that would have to be escaped, in JSON or in an event stream."""
    with pytest.raises(InvalidEvent) as caught:
        Event.encode(type, None, time_ms=0)
    assert (caught.value.path, caught.value.value) == ("event", type)


@pytest.mark.parametrize("key", ["", "x" * (MAX_KEY_CHARS + 1), 7, b"a", "\ud800"])
def test_not_a_key(key: Any) -> None:
    """A key is a short text."""
    with pytest.raises(InvalidEvent) as caught:
        encode(None, key=key)
    assert caught.value.path == "key"


@pytest.mark.parametrize("time_ms", [-1, 2**53, 1.5, None, "1"])
def test_not_a_time(time_ms: Any) -> None:
    """Time is a whole number of milliseconds."""
    with pytest.raises(InvalidEvent) as caught:
        Event.encode("a", None, time_ms=time_ms)
    assert caught.value.path == "time"


def test_an_error_stays_short() -> None:
    """However large the bad value or long the way to it, the message is one short line."""
    data: Any = [2**53] * 10_000
    for _ in range(20):
        data = {"k" * 5000 + "\n": data}
    with pytest.raises(InvalidEvent) as caught:
        encode(data)
    assert len(str(caught.value)) < 3000
    assert "\n" not in str(caught.value)
