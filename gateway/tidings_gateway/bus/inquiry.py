"""Questions to a server that are not worth a connection for good: opened, asked, closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import hiredis

from tidings_gateway.bus.clock import monotonic_ms
from tidings_gateway.bus.endpoint import Endpoint
from tidings_gateway.bus.resp import RespConnection, Words
from tidings_gateway.bus.trouble import trouble

_TURN_REPLIES = 64
_TURN_MS = 2.0


@asynccontextmanager
async def opened(endpoint: Endpoint) -> AsyncIterator[RespConnection]:
    """A connection that is not logged in, cut at the end. The caller bounds the time. Raises `OSError`."""
    connection = await endpoint.connect(
        lambda: RespConnection(turn_replies=_TURN_REPLIES, turn_ms=_TURN_MS, clock_ms=monotonic_ms)
    )
    try:
        yield connection
    finally:
        connection.fail(None)


async def inquire(endpoint: Endpoint, commands: Sequence[Words], *, timeout_ms: float) -> list[object]:
    """The replies, in order; an error that the server answers is one of them. Raises `Trouble` when there is no answer
    in time, and when the credentials are refused."""
    auth: list[Words] = [endpoint.auth] if endpoint.auth is not None else []
    try:
        async with asyncio.timeout(timeout_ms / 1000), opened(endpoint) as connection:
            replies = await asyncio.gather(*connection.send_many([*auth, *commands]), return_exceptions=True)
    except Exception as error:
        raise trouble(error, endpoint, doing="a question") from error
    for index, reply in enumerate(replies):
        if isinstance(reply, BaseException) and (index < len(auth) or not isinstance(reply, hiredis.ReplyError)):
            raise trouble(reply, endpoint, doing="a question") from reply
    return list(replies[len(auth) :])
