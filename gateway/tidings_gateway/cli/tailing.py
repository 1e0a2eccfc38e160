"""`tidings tail USER`: a user's events as lines, as they come."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tidings_gateway.settings import Settings


@click.command(short_help="A user's events as they come, one on a line.")
@click.argument("user")
@click.option(
    "--from", "position", metavar="POSITION", help="After this position: an event's id, or what a page holds."
)
@click.option("--last", type=click.IntRange(min=0), metavar="N", help="The last N events first.")
def tail(user: str, position: str | None, last: int | None) -> int:
    """Print USER's events as they come, one JSON object on a line, from the Redis of TIDINGS_REDIS_URL.

    The lines are what a page gets: events, skips, and a resync where it cannot be proved that none is missing. What is
    wrong with Redis is said on standard error, and tried again. Ctrl-C ends it.
    """
    from tidings.errors import InvalidPosition
    from tidings.log.names import check_user
    from tidings.log.position import FullPosition
    from tidings_gateway.settings import load_settings
    from tidings_gateway.telemetry.logs import setup_logging

    if position is not None and last is not None:
        raise click.UsageError("--from says where to begin, and so does --last: give one of them")
    check_user(user)
    start: bytes | None = None
    if position is not None:
        try:
            start = FullPosition.parse(position).personal.encode()
        except InvalidPosition:
            raise click.UsageError(f"--from: {position[:80]!r} is not a position") from None
    setup_logging("warning", "text")
    settings = load_settings()
    return asyncio.run(_follow(settings, user, start, min(last or 0, settings.log_max_events)))


async def _follow(settings: Settings, user: str, position: bytes | None, last: int) -> int:
    from tidings_gateway.tail import follow

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    # A descriptor of its own: who goes away must not make Python complain about standard output at its end.
    descriptor = os.dup(sys.stdout.fileno())
    try:
        await follow(settings, user, position=position, last=last, descriptor=descriptor, stop=stop)
    finally:
        os.close(descriptor)
    return 0
