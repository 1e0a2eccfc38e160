"""A connection to ask one server over, one command at a time. A refusal is an answer."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import hiredis

from tidings_gateway.bus.inquiry import opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tidings_gateway.bus.endpoint import Endpoint
    from tidings_gateway.bus.resp import RespConnection


@asynccontextmanager
async def connected(endpoint: Endpoint) -> AsyncIterator[RespConnection]:
    """Open, log in, and cut at the end. The caller bounds the time."""
    async with opened(endpoint) as connection:
        if endpoint.auth is not None:
            await connection.send(*endpoint.auth)
        yield connection


async def attempt(connection: RespConnection, *words: str) -> Any:
    """The reply, an error of Redis' included."""
    try:
        return await connection.send(*words)
    except hiredis.ReplyError as error:
        return error


def text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
