"""PROTOCOL.md says what the code does: where the two can be compared, they are."""

from __future__ import annotations

import inspect
import json
import re
from typing import Any, get_args

import pytest

from tests.docs.markdown import Document, blocks, table
from tidings.log.names import Names
from tidings.log.page import ResyncReason
from tidings.log.position import Position
from tidings.log.record import DurableRecord, encode_control, encode_durable, encode_ephemeral
from tidings_gateway.core import frames
from tidings_gateway.core.closing import ANY_OTHER, CLOSES, MAX_TOKEN_REFUSALS, ClientAction, Close

PROTOCOL = Document("docs/PROTOCOL.md")

POSITION = b"k3J9xQ2m.43-511"
BODY = b'{"event":"job.complete","data":{"id":7},"time":1764444000000}'
BODY_WITH_KEY = b'{"event":"job.complete","data":{"id":7},"time":1764444000000,"key":"7"}'


def _durable(body: bytes) -> DurableRecord:
    return DurableRecord(b"k3J9xQ2m.42-8123345", POSITION, body)


# One call of every function of `frames` that builds a frame, and of both forms of those that have two.
SERVER_FRAMES = {
    "welcome": [
        frames.welcome(
            session="a1b2c3-17",
            user="anna",
            resumed=True,
            position=POSITION,
            heartbeat_ms=20_000,
            timeout_ms=10_000,
            server_time_ms=1_764_444_000_000,
            expires_in_ms=899_000,
        )
    ],
    "resync": [frames.resync(ResyncReason.TRIMMED, POSITION, 1458)],
    "event_frame": [frames.event_frame(_durable(BODY_WITH_KEY)), frames.event_frame(_durable(BODY), replay=True)],
    "ephemeral_frame": [frames.ephemeral_frame(BODY_WITH_KEY)],
    "skip_frame": [frames.skip_frame(POSITION)],
    "synced": [frames.synced(POSITION, 2)],
    "heartbeat": [frames.heartbeat(POSITION)],
    "auth": [frames.auth(900_000)],
    "error": [frames.error("unsupported", "read marks are not available")],
    "goodbye": [frames.goodbye(1012, 5_000)],
}


def _examples(heading: str) -> list[dict[str, Any]]:
    return [json.loads(block.text) for block in blocks(PROTOCOL.section(heading)) if block.language == "json"]


def _subsection(example: dict[str, Any], heading: str) -> str:
    """What the document says about a frame: the part of the section that its example stands in."""
    parts = re.split(r"^#### ", PROTOCOL.section(heading), flags=re.MULTILINE)
    return next(part for part in parts if example in [json.loads(block.text) for block in blocks(part)])


def _shape(frame: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    return frame["type"], tuple(sorted(frame))


def test_every_server_frame_has_its_example() -> None:
    """The examples of server frames have exactly the types and members that the gateway sends, and none is missing."""
    builders = {
        name
        for name, function in inspect.getmembers(frames, inspect.isfunction)
        if function.__module__ == frames.__name__ and not name.startswith("_") and _returns_frame(function)
    }
    assert set(SERVER_FRAMES) == builders
    sent = {_shape(json.loads(frame.payload)) for built in SERVER_FRAMES.values() for frame in built}
    assert {_shape(example) for example in _examples("What the server sends")} == sent


def _returns_frame(function: Any) -> bool:
    return bool(function.__annotations__.get("return") == "Frame")


def test_every_client_frame_has_its_example() -> None:
    """The examples of client frames are accepted by the gateway's parser, and show every frame and member it reads."""
    parsed = [frames.parse_client(json.dumps(example)) for example in _examples("What the client sends")]
    assert {type(frame) for frame in parsed} == set(get_args(frames.ClientFrame))
    for frame, example in zip(parsed, _examples("What the client sends"), strict=True):
        assert set(example) - {"type"} == set(frame._fields)
        assert all(value is not None for value in frame)


@pytest.mark.parametrize("heading", ["What the client sends", "What the server sends"])
def test_every_member_is_explained(heading: str) -> None:
    """Each member of each example is also named in the words beside it."""
    missing = []
    for example in _examples(heading):
        words = re.sub(r"```.*?```", "", _subsection(example, heading), flags=re.DOTALL)
        missing += [f"{example['type']}.{name}" for name in example if name != "type" and f"`{name}`" not in words]
    assert not missing


def test_close_codes_are_the_table() -> None:
    """The close codes in the document are the rows of core/closing.py, in their order, with what the client does."""
    documented = [
        (row["code"], row["reason"], row["client"].strip("`"), {mark for mark in row["remarks"].split(", ") if mark})
        for row in table(PROTOCOL.section("Close codes"))
    ]
    assert documented == [(str(row.code), row.reason, row.client.value, _remarks(row)) for row in CLOSES]


def _remarks(row: Close) -> set[str]:
    remarks = set()
    if not row.sent:
        remarks.add("not sent")
    if row.report:
        remarks.add("report")
    if not row.resend:
        remarks.add("do not resend")
    if row.retry_ms is not None:
        remarks.add(f"retry_ms {row.retry_ms}")
    return remarks


def test_every_close_code_says_when() -> None:
    """No close code stands there without the words for when it comes."""
    assert not [row["code"] for row in table(PROTOCOL.section("Close codes")) if not row["when"]]


def test_every_client_action_is_explained() -> None:
    """What a client does is explained for every action of core/closing.py, the default included."""
    section = PROTOCOL.section("Close codes")
    actions = table(section[section.index("| action |") :])
    assert [row["action"].strip("`") for row in actions] == [action.value for action in ClientAction]
    assert f"A code that is not in the table means `{ANY_OTHER.value}`." in section
    assert f"after {MAX_TOKEN_REFUSALS} refusals in a row" in section


def test_resync_reasons_are_all_there() -> None:
    """The reasons for a resync are those that the code has."""
    reasons = [row["reason"].strip("`") for row in table(PROTOCOL.section("The continuity rule"))]
    assert reasons == [reason.value for reason in ResyncReason]


def test_positions_follow_the_grammar() -> None:
    """The grammar in the document is the one that is parsed, and every position shown obeys it."""
    grammar = re.search(r"^    \^(.+)\$$", PROTOCOL.text, re.MULTILINE)
    assert grammar is not None
    shown = re.findall(r"k3J9xQ2m\.[0-9]+-[0-9]+", PROTOCOL.text)
    assert shown
    for position in shown:
        assert re.fullmatch(grammar[1], position)
        Position.parse(position)
    for bad in ("k3J9xQ2m.01-1", "k3J9.1-1", "k3J9xQ2m.1", "k3J9xQ2m.1-12345678901", " k3J9xQ2m.1-1"):
        assert not re.fullmatch(grammar[1], bad)


def test_redis_names_are_those_of_the_code() -> None:
    """The names in Redis are those that the code builds for a prefix and a user."""
    names = Names("P")
    documented = {row["name"].strip("`") for row in table(PROTOCOL.section("2. Names in Redis"))}
    built = {names.log("U"), names.meta("U"), names.channel("U"), names.idem("U", "<key>")}
    assert {name.decode() for name in built} <= documented


def test_records_have_the_documented_shapes() -> None:
    """The three shapes of a record are those that are published and parsed."""
    section = PROTOCOL.section("2. Names in Redis")
    body = b"<body>"
    for record in (
        encode_durable(b"<position before>", b"<position>", body),
        encode_ephemeral(body),
        encode_control(b"<json>"),
    ):
        assert f"`{record.decode()}`".replace("\n", "\\n") in section
