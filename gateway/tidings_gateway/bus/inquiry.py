"""A question to a server that is not worth a connection of its own: opened, asked, closed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import hiredis

from tidings_gateway.bus.endpoint import Endpoint
from tidings_gateway.bus.resp import RespConnection, Words
from tidings_gateway.bus.trouble import trouble

_TURN_REPLIES = 64
_TURN_MS = 2.0


def _clock_ms() -> float:
    return time.monotonic() * 1000


async def inquire(endpoint: Endpoint, commands: Sequence[Words], *, timeout_ms: float) -> list[object]:
    """The replies, in order; an error that the server answers is one of them. Raises `Trouble` when there is no answer
    in time, and when the credentials are refused."""
    connection: RespConnection | None = None
    auth: list[Words] = [endpoint.auth] if endpoint.auth is not None else []
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            connection = await endpoint.connect(
                lambda: RespConnection(turn_replies=_TURN_REPLIES, turn_ms=_TURN_MS, clock_ms=_clock_ms)
            )
            futures = connection.send_many([*auth, *commands])
            replies = await asyncio.gather(*futures, return_exceptions=True)
    except Exception as error:
        raise trouble(error, endpoint, doing="a question") from error
    finally:
        if connection is not None:
            connection.fail(None)
    for index, reply in enumerate(replies):
        if isinstance(reply, BaseException) and (index < len(auth) or not isinstance(reply, hiredis.ReplyError)):
            raise trouble(reply, endpoint, doing="a question") from reply
    return list(replies[len(auth) :])
