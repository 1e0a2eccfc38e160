"""Frames as they come over the wire, cut in every way."""

from __future__ import annotations

import pytest
from websockets.exceptions import ProtocolError

from tests.support.rawsocket import BINARY, CLOSE, PING, PONG, TEXT, encode_frame
from tidings_gateway.server.wire import Event, Fault, Inbound, PeerClose, Ping, Text, close_frame

CONT = 0


def inbound(max_message_bytes: int = 200, max_fragments: int = 4) -> Inbound:
    return Inbound(max_message_bytes, max_fragments)


def fault(*frames: bytes) -> int:
    """The code of the fault that these frames end in."""
    _, events = inbound().receive(b"".join(frames))
    assert isinstance(events[-1], Fault), events
    return events[-1].code


def test_every_cut_gives_the_same_messages() -> None:
    """However TCP cuts the stream, messages, pings and the count of frames come out the same."""
    stream = b"".join(
        [
            encode_frame(TEXT, "grüße".encode()),
            encode_frame(PING, b"1"),
            encode_frame(TEXT, "€".encode()[:1], fin=False),
            encode_frame(PING, b"2"),  # control frames may come between fragments
            encode_frame(CONT, "€".encode()[1:]),
            encode_frame(PONG, b""),
            encode_frame(TEXT, b""),
        ]
    )
    expected = [Text("grüße"), Ping(b"1"), Ping(b"2"), Text("€"), Text("")]
    for cut in range(len(stream) + 1):
        reader = inbound()
        frames, events = reader.receive(stream[:cut])
        more, later = reader.receive(stream[cut:])
        assert events + later == expected, cut
        assert frames + more == 7


def test_byte_by_byte() -> None:
    """A peer that sends single bytes is understood, and the reader is empty exactly between its messages."""
    reader = inbound()
    frame = encode_frame(TEXT, b"hello")
    seen: list[Event] = []
    for number, byte in enumerate(frame * 2):
        seen += reader.receive(bytes([byte]))[1]
        assert reader.empty is ((number + 1) % len(frame) == 0)
    assert seen == [Text("hello"), Text("hello")]


def test_not_empty_within_a_fragmented_message() -> None:
    """Between two fragments a message is half read, although no frame is."""
    reader = inbound()
    reader.receive(encode_frame(TEXT, b"a", fin=False))
    assert not reader.empty
    reader.receive(encode_frame(CONT, b"b"))
    assert reader.empty


def test_not_empty_between_header_and_payload() -> None:
    """No byte is kept back there, and yet a fresh reader would take the payload for a header."""
    reader = inbound()
    reader.receive(encode_frame(TEXT, b"hello")[:6])
    assert not reader.empty


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        pytest.param([encode_frame(TEXT, b"\xff")], 1007, id="text FF"),
        pytest.param([encode_frame(TEXT, "€".encode()[:2])], 1007, id="truncated character"),
        pytest.param([encode_frame(TEXT, b"\xed\xa0\x80")], 1007, id="surrogate"),
        pytest.param([encode_frame(TEXT, b"\xc0\x80")], 1007, id="overlong"),
        pytest.param([encode_frame(TEXT, b"\xe2", fin=False), encode_frame(CONT, b"a")], 1007, id="cut in fragments"),
        pytest.param([encode_frame(BINARY, b"a")], 1003, id="binary"),
        pytest.param([encode_frame(3, b"a")], 1002, id="opcode 3"),
        pytest.param([encode_frame(11, b"")], 1002, id="opcode 11"),
        pytest.param([encode_frame(TEXT, b"a", masked=False)], 1002, id="unmasked"),
        pytest.param([encode_frame(TEXT, b"a", rsv=4)], 1002, id="RSV1"),
        pytest.param([encode_frame(CONT, b"a")], 1002, id="continuation of nothing"),
        pytest.param([encode_frame(TEXT, b"a", fin=False), encode_frame(TEXT, b"b")], 1002, id="text in a message"),
        pytest.param([encode_frame(PING, b"x" * 126)], 1002, id="126 byte ping"),
        pytest.param([encode_frame(PING, b"x", fin=False)], 1002, id="fragmented ping"),
        pytest.param([encode_frame(CLOSE, b"\x03")], 1002, id="close of one byte"),
        pytest.param([encode_frame(CLOSE, (1005).to_bytes(2, "big"))], 1002, id="close 1005"),
        pytest.param([encode_frame(CLOSE, (999).to_bytes(2, "big"))], 1002, id="close 999"),
        pytest.param([encode_frame(CLOSE, (5000).to_bytes(2, "big"))], 1002, id="close 5000"),
        pytest.param([encode_frame(CLOSE, (1000).to_bytes(2, "big") + b"\xff")], 1007, id="close reason FF"),
        pytest.param([encode_frame(TEXT, b"a", fin=False), encode_frame(CLOSE, b"")], 1002, id="close in a message"),
        pytest.param([encode_frame(TEXT, b"x" * 201)], 1009, id="one byte too many"),
        pytest.param(
            [encode_frame(TEXT, b"x" * 160, fin=False), encode_frame(CONT, b"x" * 41)], 1009, id="sum of fragments"
        ),
        pytest.param(
            [encode_frame(TEXT, b"", fin=False), *[encode_frame(CONT, b"", fin=False)] * 4], 1008, id="empty fragments"
        ),
    ],
)
def test_broken_rules(frames: list[bytes], code: int) -> None:
    """What RFC 6455 forbids, and what is beyond our bounds, is a fault with the code that says which."""
    assert fault(*frames) == code


def test_a_length_is_believed_before_its_payload_comes() -> None:
    """An announced gigabyte is refused at once; nobody waits for it, and nothing is kept."""
    header = bytes([0x81, 0xFF]) + (2**30).to_bytes(8, "big")
    assert fault(header) == 1009


def test_messages_before_a_fault_count() -> None:
    """What came before the offence was right, and is given out."""
    _, events = inbound().receive(encode_frame(TEXT, b"good") + encode_frame(TEXT, b"\xff"))
    assert events[0] == Text("good")
    assert isinstance(events[1], Fault)


def test_limits_are_inclusive() -> None:
    """A message of exactly the limit passes, whole and in as many fragments as are allowed."""
    _, events = inbound(100).receive(encode_frame(TEXT, b"x" * 100))
    assert events == [Text("x" * 100)]
    parts = [encode_frame(TEXT, b"x" * 25, fin=False), *[encode_frame(CONT, b"x" * 25, fin=False)] * 2]
    _, events = inbound(100).receive(b"".join([*parts, encode_frame(CONT, b"x" * 25)]))
    assert events == [Text("x" * 100)]


@pytest.mark.parametrize(("payload", "code"), [(b"", 1005), (b"\x03\xe8", 1000), (b"\x11\x30bye", 4400)])
def test_close_of_the_peer(payload: bytes, code: int) -> None:
    """The peer's code is told, 1005 for none, and its payload is kept for the answer."""
    _, events = inbound().receive(encode_frame(CLOSE, payload) + b"whatever follows")
    assert events == [PeerClose(code, payload)]


def test_close_frame_cuts_the_reason() -> None:
    """A Close frame holds 123 bytes of reason; a longer one is cut between characters, not refused."""
    frame = close_frame(1013, "é" * 100)
    assert frame[:2] == bytes([0x88, 2 + 122])
    assert frame[4:].decode() == "é" * 61


def test_close_frame_refuses_forbidden_codes() -> None:
    """1005 and 1006 describe; they must not be sent (RFC 6455 7.4.1)."""
    with pytest.raises(ProtocolError):
        close_frame(1006)
