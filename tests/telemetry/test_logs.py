"""Log lines: one per record whatever a stranger wrote, bounded, and without credentials."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tidings_gateway.telemetry.logs import MAX_LINE_CHARS, redact, setup_logging

TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm5hIn0.c2lnbmF0dXJlLWNhbmFyeQ"


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, raises = root.handlers[:], root.level, logging.raiseExceptions
    others = {name: logging.getLogger(name).level for name in ("websockets", "uvicorn", "uvicorn.error", "asyncio")}
    others |= {name: logging.getLogger(name).level for name in ("hiredis", "redis")}
    yield
    root.handlers[:], logging.raiseExceptions = handlers, raises
    root.setLevel(level)
    for name, old in others.items():
        logging.getLogger(name).setLevel(old)
    logging.getLogger("uvicorn.access").disabled = False


def lines(form: Any, *messages: object, level: str = "info", logger: str = "tidings.test") -> list[str]:
    stream = io.StringIO()
    setup_logging(level, form, stream)
    for message in messages:
        logging.getLogger(logger).warning("%s", message)
    return stream.getvalue().splitlines()


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize(
    "evil", ["a\nlevel=error forged", "a\r\nb", "\x1b[2J\x1b[31mred", "\0", "a\u2028b", "a\x85b", "\x9b31m", "\ud800"]
)
def test_a_strangers_text_stays_on_its_line(form: str, evil: str) -> None:
    """User ids, origins and paths may hold line ends and terminal escapes: they begin no line and move no cursor."""
    text = "".join(lines(form, evil, "second"))
    assert len(lines(form, evil, "second")) == 2
    assert all(char.isprintable() for char in text)


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_line_is_bounded(form: str) -> None:
    """A megabyte from a stranger is cut, and says how long it was."""
    (line,) = lines(form, "x" * 1_000_000)
    assert len(line) < MAX_LINE_CHARS + 300
    assert "1000000 characters" in json.loads(line)["message"] if form == "json" else line


def test_json_lines_are_objects() -> None:
    """Time, level, logger and message; a traceback in one member."""
    stream = io.StringIO()
    setup_logging("info", "json", stream)
    try:
        raise ValueError(f"about {TOKEN}")
    except ValueError:
        logging.getLogger("tidings.test").exception("it failed")
    line = json.loads(stream.getvalue())
    assert line["level"] == "error"
    assert line["logger"] == "tidings.test"
    assert line["message"] == "it failed"
    assert "ValueError: about <token>" in line["traceback"]
    assert line["time"].endswith("+00:00")


@pytest.mark.parametrize(
    ("text", "canary"),
    [
        (f"frame {TOKEN} was bad", TOKEN),
        (f'{{"type":"hello","token":"{TOKEN}"}}', "canary"),
        ("Authorization: Bearer key-canary-0123456789", "canary"),
        ("authorization: bearer key-canary-0123456789", "canary"),
        ("GET /v1/ws?ticket=canary&x=1", "canary"),
        ("GET /v1/ws?access_token=canary HTTP/1.1", "canary"),
        ("cannot reach redis://user:canary@db.internal:6379", "canary"),
        ("rediss://:canary@db:6379/0", "canary"),
    ],
)
def test_what_looks_like_a_credential_is_taken_out(text: str, canary: str) -> None:
    """Nothing of ours logs one; a library's error may quote what it was given."""
    assert canary not in redact(text)
    for form in ("json", "text"):
        assert canary not in "".join(lines(form, text))


def test_ordinary_text_stays() -> None:
    """Redaction takes nothing else away."""
    for text in ("session 4f2-7 closed: 1012", "http://127.0.0.1:8080", "bearer of news", "a=b, c:d@e"):
        assert redact(text) == text


def test_libraries_that_quote_frames_are_kept_quiet() -> None:
    """At debug level they would log every frame, hello and its token included."""
    for name in ("websockets.server", "uvicorn.error", "asyncio"):
        stream = io.StringIO()
        setup_logging("debug", "text", stream)
        logging.getLogger(name).debug("quoting a frame")
        logging.getLogger(name).info("quoting a frame")
        assert stream.getvalue() == ""
    assert logging.getLogger("uvicorn.access").disabled


def test_the_level_is_a_bound() -> None:
    """Below it nothing is written."""
    stream = io.StringIO()
    setup_logging("error", "text", stream)
    logging.getLogger("tidings.test").warning("no")
    logging.getLogger("tidings.test").error("yes")
    assert "yes" in stream.getvalue()
    assert "no" not in stream.getvalue().replace("warning", "")
