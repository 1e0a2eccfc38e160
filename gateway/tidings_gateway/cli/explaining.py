"""`tidings explain POSITION --user USER`: a position in words."""

from __future__ import annotations

import asyncio

import click


@click.command(short_help="What a position means, and what a page with it is told.")
@click.argument("position")
@click.option("--user", required=True, help="Whose log it is a position in.")
def explain(position: str, user: str) -> None:
    """Say what POSITION means to USER's log, and what a page that holds it would be told.

    POSITION is an event's id, or what a page stored. The log is asked in the Redis of TIDINGS_REDIS_URL.
    """
    from tidings.log.names import check_user
    from tidings_gateway.explain import explain as in_words
    from tidings_gateway.explain import parse
    from tidings_gateway.settings import load_settings
    from tidings_gateway.tail import read_page
    from tidings_gateway.telemetry.logs import setup_logging

    check_user(user)
    setup_logging("error", "text")
    parsed = parse(position)
    page = asyncio.run(read_page(load_settings(), user, parsed.encode() if parsed is not None else None))
    click.echo(in_words(parsed, page))
