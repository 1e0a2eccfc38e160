"""`tidings check`: is this Redis fit for it, are these settings, and what to change if not."""

from __future__ import annotations

import asyncio
import shutil

import click
import orjson

DEFAULT_EVENT_BYTES = 1_024


@click.command(short_help="What is wrong with this Redis for this use, and the remedy.")
@click.option(
    "--users",
    type=click.IntRange(min=1),
    help="How many are connected to one gateway at a time. [default: TIDINGS_MAX_CONNECTIONS]",
)
@click.option(
    "--event-bytes",
    type=click.IntRange(min=1),
    default=DEFAULT_EVENT_BYTES,
    show_default=True,
    help="How large an event is that goes to all of them.",
)
@click.option("--json", "as_json", is_flag=True, help="For programs: one JSON object, with all settings in force.")
def check(users: int | None, event_bytes: int, as_json: bool) -> int:
    """Say what is wrong with this Redis for this use, and with the settings, with the remedy.

    Asks the Redis of TIDINGS_REDIS_URL, also through Sentinels, or each primary of a Cluster. Run it with the
    environment of a gateway. It writes a few keys of a user that nobody has, under TIDINGS_PREFIX, and takes them away.
    Exit code 0: nothing has to be changed; 1: something has.
    """
    from tidings.redis_url import parse_redis_url
    from tidings_gateway.check.asking import look
    from tidings_gateway.check.judging import judge
    from tidings_gateway.check.report import as_data, as_text, exit_code
    from tidings_gateway.settings import load_settings
    from tidings_gateway.settings.limits import raise_descriptor_limit
    from tidings_gateway.telemetry.logs import setup_logging

    raise_descriptor_limit()
    setup_logging("error", "text")  # what the link has to say becomes a finding
    settings = load_settings()
    among, servers = asyncio.run(look(parse_redis_url(settings.redis_url), settings))
    users = users or settings.max_connections
    findings = judge(servers, settings, users=users, event_bytes=event_bytes, among=among)
    if as_json:
        click.echo(orjson.dumps(as_data(servers, findings, settings), option=orjson.OPT_INDENT_2))
    else:
        width = min(120, shutil.get_terminal_size((110, 24)).columns)
        click.echo(as_text(servers, findings, settings, width=width, users=users))
    return exit_code(findings)
