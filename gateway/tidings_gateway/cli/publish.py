"""`tidings publish USER EVENT DATA`: publish one event, through Redis or through a gateway."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import orjson

from tidings.errors import PublishError

MAX_DATA_BYTES = 1_048_576
"""More than any event may hold: a wrong file name must not fill the memory."""


def read_data(text: str) -> Any:
    """DATA of the command line: JSON, `@FILE` with JSON in it, or `-` for JSON on standard input.

    Raises `click.UsageError`.
    """
    if text == "-":
        source, raw = "standard input", sys.stdin.buffer.read(MAX_DATA_BYTES + 1)
    elif text.startswith("@"):
        source = text[1:]
        try:
            with Path(source).open("rb") as file:
                raw = file.read(MAX_DATA_BYTES + 1)
        except OSError as error:
            raise click.UsageError(f"{source} cannot be read: {error.strerror}") from None
    else:
        source, raw = "DATA", text.encode("utf-8", "surrogateescape")
    if len(raw) > MAX_DATA_BYTES:
        raise click.UsageError(f"{source} holds more than {MAX_DATA_BYTES} bytes")
    try:
        return orjson.loads(raw)
    except ValueError as error:
        hint = " (text needs its quotes: '\"hello\"')" if source == "DATA" else ""
        raise click.UsageError(f"{source} is not JSON: {error}{hint}") from None


@click.command(short_help="Publish one event.")
@click.argument("user")
@click.argument("event")
@click.argument("data", default="null")
@click.option("--url", envvar="TIDINGS_URL", metavar="URL", help="Through this gateway, not Redis. [TIDINGS_URL]")
@click.option("--api-key", metavar="TEXT", help="The gateway's API key; better in TIDINGS_API_KEY, unseen.")
@click.option("--ephemeral", is_flag=True, help="For who is connected now; it is not stored.")
@click.option("--key", metavar="TEXT", help="In a queue, a newer ephemeral event with this key replaces an older one.")
@click.option("--idempotency-key", metavar="TEXT", help="The same key stores the event once, however often it is sent.")
def publish(
    user: str,
    event: str,
    data: str,
    url: str | None,
    api_key: str | None,
    ephemeral: bool,
    key: str | None,
    idempotency_key: str | None,
) -> None:
    """Publish EVENT for USER and print its id.

    DATA is JSON, or @FILE, or - for standard input. Redis is the one of TIDINGS_REDIS_URL.
    """
    from tidings import Publisher

    body = read_data(data)
    try:
        with _publisher(Publisher, url, api_key) as publisher:
            receipt = publisher.publish(
                user, event, body, key=key, ephemeral=ephemeral, idempotency_key=idempotency_key
            )
    except PublishError as error:
        doubt = "; it may have been stored all the same" if error.outcome_unknown else ""
        raise click.ClickException(f"not acknowledged ({error.code}): {error.why}{doubt}") from None
    listening = f"{receipt.listening} gateway{'' if receipt.listening == 1 else 's'} listening"
    told = "ephemeral" if receipt.position is None else receipt.position
    click.echo(f"{told} ({'duplicate' if receipt.duplicate else listening})")


def _publisher(kind: Any, url: str | None, api_key: str | None) -> Any:
    from tidings.settings import first_secret

    if url is None:
        if api_key is not None:
            raise click.UsageError("--api-key is for publishing through a gateway: give --url too")
        return kind()
    secret = first_secret("api_key", api_key)
    if secret is None:
        raise click.UsageError("a gateway asks for an API key: set TIDINGS_API_KEY, or give --api-key")
    return kind(url, api_key=secret)
