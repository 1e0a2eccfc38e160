"""Frames: built once, parsed without surprises, to the byte as the vectors say."""

from __future__ import annotations

import json
import sys
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.core.vectors import load
from tidings.event import Event
from tidings.log.page import ResyncReason
from tidings.log.record import DurableRecord
from tidings_gateway.core import frames
from tidings_gateway.core.frames import (
    EVENT_OVERHEAD_BYTES,
    MAX_CLIENT_FRAME_BYTES,
    MAX_REASON_BYTES,
    Auth,
    Frame,
    Heartbeat,
    Hello,
    Malformed,
    Read,
    check_body,
    ephemeral_frame,
    event_frame,
    parse_client,
    skip_frame,
)

VECTORS = load("frames.json")
LIMIT = 65_536

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def build(how: dict[str, dict[str, Any]]) -> Frame:
    """Build the frame of a vector."""
    ((kind, members),) = how.items()
    if "position" in members:
        members = {**members, "position": members["position"].encode()}
    match kind:
        case "event":
            record = DurableRecord(b"", members["position"], members["body"].encode())
            return event_frame(record, replay=members.get("replay", False))
        case "ephemeral":
            return ephemeral_frame(members["body"].encode())
        case "skip":
            return skip_frame(**members)
        case "welcome":
            return frames.welcome(**members)
        case "resync":
            reason = ResyncReason(members["reason"])
            return frames.resync(reason, members["position"], members["missed"], refetch_ms=members["refetch_ms"])
        case "synced":
            return frames.synced(**members)
        case "heartbeat":
            return frames.heartbeat(**members)
        case "goodbye":
            return frames.goodbye(**members)
        case "auth":
            return frames.auth(**members)
        case "error":
            return frames.error(**members)
    raise AssertionError(kind)


class TestServerFrames:
    @pytest.mark.parametrize("vector", VECTORS["server"], ids=lambda vector: vector["name"])
    def test_vector(self, vector: dict[str, Any]) -> None:
        """To the byte, and valid JSON with each member once."""
        frame = build(vector["build"])
        assert frame.payload.decode() == vector["frame"]
        assert frame.size == len(frame.payload)
        names = [name for name, _ in json.loads(frame.payload, object_pairs_hook=list)]
        assert len(names) == len(set(names))

    @pytest.mark.parametrize("vector", VECTORS["server"], ids=lambda vector: vector["name"])
    def test_what_a_queue_may_do_with_it(self, vector: dict[str, Any]) -> None:
        """Event and skip move the session to their position; only ephemerals may be merged; the rest is control."""
        frame = build(vector["build"])
        kind = next(iter(vector["build"]))
        assert (frame.position is not None) == (kind in ("event", "skip"))
        assert (frame.coalesce is not None) == (kind == "ephemeral")

    @given(st.integers(0, 70_000))
    @example(0)
    @example(125)
    @example(126)
    @example(65_535)
    @example(65_536)
    def test_websocket_header(self, size: int) -> None:
        """One final, unmasked text frame with the shortest length field (RFC 6455, section 5.2)."""
        frame = Frame(b"x" * size)
        wire = frame.websocket()
        assert wire[0] == 0x81
        if size < 126:
            header, length = 2, wire[1]
        elif size < 65_536:
            assert wire[1] == 126
            header, length = 4, int.from_bytes(wire[2:4], "big")
        else:
            assert wire[1] == 127
            header, length = 10, int.from_bytes(wire[2:10], "big")
        assert length == size
        assert wire[header:] == frame.payload

    def test_the_wire_form_is_built_once(self) -> None:
        """It is shared by every session of the user."""
        frame = Frame(b"{}")
        assert frame.websocket() is frame.websocket()

    def test_the_overhead_is_an_upper_bound(self) -> None:
        """The room for a page is judged by it."""
        longest = DurableRecord(
            b"", b"A" * 16 + b"." + b"9" * 16 + b"-" + b"9" * 10, b'{"event":"a","data":"%b","time":1}'
        )
        for body in (b"x", b"x" * 70_000):
            record = longest._replace(body=longest.body % body)
            assert len(event_frame(record, replay=True).websocket()) - len(record.body) <= EVENT_OVERHEAD_BYTES

    def test_identities_of_ephemerals_do_not_collide(self) -> None:
        """The same type and key, and nothing else, is the same thing."""
        bodies = [
            {"event": "ab", "data": 1, "time": 1},
            {"event": "ab", "data": 1, "time": 1, "key": ""},
            {"event": "a", "data": 1, "time": 1, "key": "b"},
            {"event": "a", "data": 1, "time": 1, "key": "b\0"},
            {"event": "a", "data": 1, "time": 1},
        ]
        identities = {ephemeral_frame(orjson.dumps(body)).coalesce for body in bodies}
        assert len(identities) == len(bodies)
        again = ephemeral_frame(orjson.dumps({**bodies[2], "data": 2, "time": 9}))
        assert again.coalesce in identities

    def test_an_ephemeral_that_would_not_pass_is_refused(self) -> None:
        """Nothing is spliced into a frame that could reach out of it."""
        with pytest.raises(ValueError, match="check_body"):
            ephemeral_frame(b'{"event":"a","data":1,"time":1,"id":"x"}')


class TestBodies:
    @pytest.mark.parametrize("vector", VECTORS["bodies"], ids=lambda vector: vector["name"])
    def test_vector(self, vector: dict[str, Any]) -> None:
        """What may be sent, and what must not reach into the frame around it."""
        assert (check_body(vector["body"].encode(), LIMIT) is not None) is vector["ok"]

    @pytest.mark.parametrize("vector", [v for v in VECTORS["bodies"] if v["ok"]], ids=lambda vector: vector["name"])
    def test_a_body_that_passes_makes_a_frame_of_one_line(self, vector: dict[str, Any]) -> None:
        """Its members are the body's and the frame's own, each once, and no SSE line breaks inside it."""
        body = vector["body"].encode()
        frame = event_frame(DurableRecord(b"", b"Abcdefgh.1-2", body), replay=True)
        pairs = json.loads(frame.payload, object_pairs_hook=list)
        assert sorted(name for name, _ in pairs) == sorted(["type", "id", "replay", *json.loads(body)])
        assert dict(pairs)["id"] == "Abcdefgh.1-2"
        assert b"\n" not in frame.payload
        assert b"\r" not in frame.payload

    def test_size(self) -> None:
        """The limit is the body's, in bytes; at the limit it passes."""
        body = orjson.dumps({"event": "a", "data": "é" * 100, "time": 1})
        assert check_body(body, len(body)) is not None
        assert check_body(body, len(body) - 1) is None

    def test_the_longest_type(self) -> None:
        """128 characters, and not one more."""
        assert check_body(orjson.dumps({"event": "a" * 128, "data": 1, "time": 1}), LIMIT) is not None
        assert check_body(orjson.dumps({"event": "a" * 129, "data": 1, "time": 1}), LIMIT) is None

    @pytest.mark.parametrize("body", [b'{"event":"a","data":"\xff","time":1}', b"\xef\xbb\xbf{}", b"\0", b"{\0}"])
    def test_not_utf8(self, body: bytes) -> None:
        """A text frame must be UTF-8 (RFC 6455, section 5.6), without a byte order mark."""
        assert check_body(body, LIMIT) is None

    @pytest.mark.parametrize("depth", [1_000, 30_000])
    @pytest.mark.parametrize("space", [b"", b" "])
    def test_depth_is_no_crash(self, depth: int, space: bytes) -> None:
        """However deep a body is nested, the answer is no, not an exception."""
        body = b'{"event":"a","data":%b,"time":1%b}' % (b"[" * depth + b"]" * depth, space)
        assert check_body(body, LIMIT * 2) is None

    def test_a_huge_number_is_no_crash(self) -> None:
        """Python refuses to convert integers of thousands of digits."""
        check_body(b'{"event":"a","data":%b ,"time":1}' % (b"9" * 10_000), LIMIT)

    @given(JSON, st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
    def test_what_tidings_publishes_passes(self, data: object, key: str | None) -> None:
        """Publisher and gateway agree on what an event is, and the frame carries it unchanged."""
        event = Event.encode("a.b", data, time_ms=1_764_444_444_000, key=key)
        checked = check_body(event.body, LIMIT)
        assert checked == ("a.b", key, 1_764_444_444_000)
        frame = event_frame(DurableRecord(b"", b"Abcdefgh.1-2", event.body))
        sent = orjson.loads(frame.payload)
        assert sent.pop("type") == "event"
        assert sent.pop("id") == "Abcdefgh.1-2"
        assert sent == orjson.loads(event.body)

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["event", "data", "time", "key", "id", "type", "replay", "topic"]),
                st.sampled_from(['"a"', "1", "null", "{}", '"\\u0000"', "[1, 2]", "1.0"]),
            ),
            max_size=6,
        ),
        st.sampled_from([",", ", ", ",\n"]),
    )
    def test_any_object(self, pairs: list[tuple[str, str]], comma: str) -> None:
        """Judged by an independent reading of the contract."""
        body = "{" + comma.join(f'"{name}":{value}' for name, value in pairs) + "}"
        names = [name for name, _ in pairs]
        members = dict(pairs)
        right = (
            len(names) == len(members)
            and {"event", "data", "time"} <= set(names) <= {"event", "data", "time", "key"}
            and members["event"] == '"a"'
            and members["time"] == "1"
            and members.get("key", '"') in ('"a"', '"\\u0000"', '"')
            and "\n" not in body
        )
        assert (check_body(body.encode(), LIMIT) is not None) is right

    @given(st.binary(max_size=200))
    def test_any_bytes(self, body: bytes) -> None:
        """Whatever is found in Redis, the answer is yes or no, not an exception."""
        check_body(body, LIMIT)


class TestClientFrames:
    @pytest.mark.parametrize("vector", VECTORS["client"], ids=lambda vector: vector["name"])
    @pytest.mark.parametrize("form", [str, bytes], ids=["str", "bytes"])
    def test_vector(self, vector: dict[str, Any], form: type[str] | type[bytes]) -> None:
        """What is read in a client's frame, or why it is malformed, from text and from bytes alike."""
        text = vector["text"] if form is str else vector["text"].encode()
        if "malformed" in vector:
            with pytest.raises(Malformed) as caught:
                parse_client(text)
            assert caught.value.reason == vector["malformed"]
        elif "hello" in vector:
            assert parse_client(text) == Hello(**vector["hello"])
        elif "heartbeat" in vector:
            assert parse_client(text) == Heartbeat(**vector["heartbeat"])
        elif "auth" in vector:
            assert parse_client(text) == Auth(**vector["auth"])
        else:
            assert parse_client(text) == Read(**vector["read"])

    @pytest.mark.parametrize("letter", ["x", "é", "😀"])
    def test_8_kib_and_not_a_byte_more(self, letter: str) -> None:
        """Counted in bytes of UTF-8, whatever form the text comes in."""
        head, tail = '{"type":"hello","token":"', '"}'
        room = MAX_CLIENT_FRAME_BYTES - len(head) - len(tail)
        count, rest = divmod(room, len(letter.encode()))
        text = head + letter * count + "x" * rest + tail
        assert len(text.encode()) == MAX_CLIENT_FRAME_BYTES
        for form in (text, text.encode()):
            assert isinstance(parse_client(form), Hello)
        for form in (text + " ", text.encode() + b" "):
            with pytest.raises(Malformed, match="larger than 8192 bytes"):
                parse_client(form)

    @given(st.text(max_size=300) | st.binary(max_size=300) | st.text(st.characters(categories=["Cs"]), max_size=10))
    @example("[" * 8000)
    @example('{"type":' * 900)
    @example("9" * 8000)
    @example('{"type":"hello","replay":' + "9" * 5000 + "}")
    @example(b"\xff\xfe")
    def test_any_text(self, text: str | bytes) -> None:
        """Raises Malformed and nothing else."""
        reason = ""
        try:
            parse_client(text)
        except Malformed as malformed:
            reason = malformed.reason
        assert len(reason.encode()) <= MAX_REASON_BYTES

    @given(
        st.dictionaries(
            st.sampled_from(["type", "token", "position", "replay", "id", "else"]),
            JSON | st.sampled_from(["hello", "heartbeat", "auth", "read"]),
        )
    )
    def test_any_object(self, members: dict[str, object]) -> None:
        """What is parsed holds only the contract's types; what is refused names the member at fault."""
        frame, reason = None, ""
        try:
            frame = parse_client(orjson.dumps(members))
        except Malformed as malformed:
            reason = malformed.reason
        if frame is None:
            assert reason.partition(":")[0] in ("type", "token", "position", "replay", "id")
            return
        assert members["type"] == type(frame).__name__.lower()
        for name, value in frame._asdict().items():
            if members.get(name) is None:
                assert value in (None, 0)
            else:
                assert value == members[name]
                assert type(value) is (int if name == "replay" else str)

    def test_nothing_a_client_sends_comes_back_in_a_reason(self) -> None:
        """Reasons end up in Close frames and logs."""
        for text in ('{"type":"<script>"}', '{"type":"hello","token":["<script>"]}', "<script>", '{"<script>":1}'):
            with pytest.raises(Malformed) as caught:
                parse_client(text)
            assert "script" not in caught.value.reason


def test_a_frame_is_small() -> None:
    """A fan-out holds one per record, a full queue hundreds of them."""
    assert sys.getsizeof(Frame(b"")) <= 80
