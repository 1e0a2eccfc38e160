"""A connection to ask one server over, one command at a time. A refusal is an answer."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import hiredis

from tidings_gateway.bus.resp import RespConnection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tidings_gateway.bus.endpoint import Endpoint


def now_ms() -> float:
    return time.monotonic() * 1000


@asynccontextmanager
async def connected(endpoint: Endpoint) -> AsyncIterator[RespConnection]:
    """Open, log in, and cut at the end. The caller bounds the time."""
    connection = await endpoint.connect(lambda: RespConnection(turn_replies=64, turn_ms=5, clock_ms=now_ms))
    try:
        if endpoint.auth is not None:
            await connection.send(*endpoint.auth)
        yield connection
    finally:
        connection.fail(None)


async def attempt(connection: RespConnection, *words: str) -> Any:
    """The reply, an error of Redis' included."""
    try:
        return await connection.send(*words)
    except hiredis.ReplyError as error:
        return error


def fields(reply: Any) -> dict[str, str]:
    """`name:value` lines, as INFO gives them."""
    lines = text(reply).splitlines() if isinstance(reply, (bytes, str)) else []
    return dict(line.split(":", 1) for line in lines if ":" in line)


def text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
