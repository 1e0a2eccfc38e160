"""Reading a JSON request body: bounded while it streams, strict about what it is."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request

from tidings_gateway.http.problem import ProblemError

# orjson turns integers beyond 64 bits into floats, which would be stored rounded. Anything with this many digits in a
# row is parsed again by the slower parser that keeps them, so that the publisher's own check can refuse them.
_LONG_NUMBER = re.compile(rb"[0-9]{16}")


async def read_json(request: Request, max_bytes: int) -> Any:
    """The parsed body. Raises `ProblemError`: 415 for another content type, 413 as soon as the body is too long, 400
    for what is not strict JSON.

    The content type is required because a page of another site may send a form or text without asking first, but not
    JSON (the CORS preflight).
    """
    if not _is_json(request.headers.get("content-type", "")):
        raise ProblemError(415, "unsupported_media_type", "The body must be JSON: Content-Type: application/json.")
    return parse_json(await read_body(request, max_bytes))


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Raises `ProblemError` 413 before reading anything when the length is announced, else when the bound is passed."""
    announced = request.headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and int(announced[:20]) > max_bytes:
        raise _too_large(max_bytes)
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > max_bytes:
                raise _too_large(max_bytes)
            chunks.append(chunk)
    except ClientDisconnect:
        # Nobody reads this answer; without it every client that goes away would leave a traceback.
        raise ProblemError(400, "incomplete", "The body ended before it was complete.") from None
    return b"".join(chunks)


def parse_json(body: bytes) -> Any:
    """Raises `ProblemError` 400. NaN, infinities, invalid UTF-8 and lone surrogates are not JSON here."""
    try:
        parsed = orjson.loads(body)
        if _LONG_NUMBER.search(body):
            parsed = json.loads(body)
    except (ValueError, RecursionError):
        raise ProblemError(400, "invalid_json", "The body is not JSON (RFC 8259).") from None
    return parsed


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "application/json"


def _too_large(max_bytes: int) -> ProblemError:
    # The connection stays: the server throws away what still comes of the body, within its own deadline. Closing it
    # with data unread would reset it, and the publisher would never see this answer.
    return ProblemError(413, "too_large", f"The body is larger than {max_bytes} bytes.")
