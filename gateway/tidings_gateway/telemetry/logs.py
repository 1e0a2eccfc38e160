"""Log lines: one line per record whatever it holds, bounded, without credentials."""

from __future__ import annotations

import logging
import re
import sys
from datetime import UTC, datetime
from typing import Literal, TextIO

import orjson

MAX_LINE_CHARS = 8_192
"""A longer message is cut. User ids, origins and paths come from strangers."""

# Nothing here logs a credential on purpose. This is for the day when a library quotes a frame or an URL in an error.
_JWT = re.compile(r"eyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?")
_BEARER = re.compile(r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/=:-]{8,}")
_QUERY = re.compile(r"(?i)\b((?:ticket|token|access_token)=)[^&\s\"']+")
_URL_PASSWORD = re.compile(r"(://[^:/@\s]*:)[^@/\s]+(@)")
_LOOSE = re.compile(r"[\x7f-\x9f\u2028\u2029]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def redact(text: str) -> str:
    """`text` without what looks like a token, a key or a password in a URL."""
    if "eyJ" in text:
        text = _JWT.sub("<token>", text)
    text = _BEARER.sub(r"\1<key>", text)
    if "=" in text:
        text = _QUERY.sub(r"\1<token>", text)
    if "://" in text:
        text = _URL_PASSWORD.sub(r"\1<password>\2", text)
    return text


def one_line(text: str) -> str:
    """`text` with control characters written as escapes: a stranger's text cannot begin a line or move the cursor."""
    return _CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode("ascii"), text)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_LINE_CHARS else f"{text[:MAX_LINE_CHARS]}… ({len(text)} characters)"


class _Formatter(logging.Formatter):
    def _message(self, record: logging.LogRecord) -> str:
        return redact(_cut(record.getMessage()))

    def _trouble(self, record: logging.LogRecord) -> str:
        if record.exc_info and record.exc_info[0] is not None:
            return redact(_cut(self.formatException(record.exc_info)))
        return ""


class JsonFormatter(_Formatter):
    """One JSON object per line: time, level, logger, message, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._message(record),
        }
        if trouble := self._trouble(record):
            line["traceback"] = trouble
        try:
            text = orjson.dumps(line).decode()
        except TypeError:  # a lone surrogate in somebody's text
            text = orjson.dumps({key: text.encode(errors="replace").decode() for key, text in line.items()}).decode()
        # JSON lets these stand as they are; terminals and some readers of lines do not.
        return _LOOSE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


class TextFormatter(_Formatter):
    """For people at a terminal. Only our own tracebacks take more than one line."""

    def format(self, record: logging.LogRecord) -> str:
        clock = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        text = f"{clock} {record.levelname.lower():<7} {one_line(self._message(record))}"
        if trouble := self._trouble(record):
            text += "\n" + "\n".join(f"    {one_line(line)}" for line in trouble.splitlines())
        return text.encode(errors="replace").decode()


def setup_logging(
    level: str = "info", form: Literal["auto", "text", "json"] = "auto", stream: TextIO | None = None
) -> None:
    """Send the log lines of the whole process to `stream` (stderr). Called once, by the program, not by the library."""
    stream = stream or sys.stderr
    as_json = form == "json" or (form == "auto" and not stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    # These quote whole frames and requests at their lower levels; ours says what there is to say.
    for name in ("websockets", "uvicorn", "uvicorn.error", "asyncio", "hiredis", "redis"):
        logging.getLogger(name).setLevel(max(logging.getLevelName(level.upper()), logging.WARNING))
    logging.getLogger("uvicorn.access").disabled = True
    logging.raiseExceptions = False
