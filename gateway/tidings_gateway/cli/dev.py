"""`tidings dev`: a gateway to write a first page against, from nothing but this package."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import click

PORTS_TRIED = 20


@click.command()
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="The next free one if taken."
)
@click.option("--data", "directory", type=click.Path(path_type=Path, file_okay=False), help="Keep the events here.")
@click.option("--user", default="anna", show_default=True, help="Whom the printed token is for.")
def dev(port: int, directory: Path | None, user: str) -> int:
    """A gateway with a Valkey of its own and made-up secrets, for pages on this machine only.

    Nothing needs to be set; a Redis or secrets in the environment are used instead of our own.
    """
    from tidings.log.names import check_user
    from tidings_gateway.app import run
    from tidings_gateway.embedded import EmbeddedValkey
    from tidings_gateway.settings import load_settings
    from tidings_gateway.telemetry.logs import setup_logging

    check_user(user)
    setup_logging("warning", "text")
    with contextlib.ExitStack() as stack:
        environ = dict(os.environ)
        if "TIDINGS_REDIS_URL" not in environ and "TIDINGS_REDIS_URL_FILE" not in environ:
            environ["TIDINGS_REDIS_URL"] = stack.enter_context(EmbeddedValkey(directory)).url
        elif directory is not None:
            raise click.UsageError("--data is for our own Valkey, and TIDINGS_REDIS_URL names another")
        for name in ("TIDINGS_JWT_SECRET", "TIDINGS_API_KEY"):
            if name not in environ and f"{name}_FILE" not in environ:
                environ[name] = secrets.token_urlsafe(32)
        environ.setdefault("TIDINGS_ALLOWED_ORIGINS", "localhost")
        # A developer who presses Ctrl-C has no load balancer to wait for.
        environ.setdefault("TIDINGS_DRAIN_GRACE_MS", "0")
        environ.setdefault("TIDINGS_DRAIN_WINDOW_MS", "500")
        environ["TIDINGS_LISTEN"] = f"127.0.0.1:{free_port_from(port)}"
        environ.setdefault("TIDINGS_LOG_LEVEL", "warning")
        environ.setdefault("TIDINGS_LOG_FORMAT", "text")
        settings = load_settings(environ)
        setup_logging(settings.log_level, settings.log_format)
        click.echo(_greeting(settings_url=f"http://{settings.listen}", environ=environ, user=user))
        return run(settings)


def free_port_from(port: int) -> int:
    """`port` if it is free, else the next one that is. Raises `click.ClickException`."""
    if port == 0:
        return _first_free([0])
    return _first_free(range(port, min(port + PORTS_TRIED, 65536)))


def _first_free(ports: Iterator[int] | range | list[int]) -> int:
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise click.ClickException("no free port was found; give another with --port")


def _greeting(settings_url: str, environ: dict[str, str], user: str) -> str:
    from tidings.tokens import mint_token

    from tidings.settings import first_secret

    token = mint_token(user, ttl_s=86_400, secret=first_secret("jwt_secret", environ=environ))
    api_key = first_secret("api_key", environ=environ)
    return f"""\
Tidings for development: made-up secrets, pages of this machine only. Ctrl-C ends it.

1. A page. Put this into any page on localhost:

   <script type="module">
     import {{ Tidings }} from "{settings_url}/tidings.js";
     const tidings = new Tidings({{ token: "{token}" }});
     tidings.on("*", (event) => document.body.append(`${{event.event}} ${{JSON.stringify(event.data)}} `));
   </script>

2. An event for {user}:

   curl {settings_url}/v1/publish -H 'Content-Type: application/json' \\
     -H 'Authorization: Bearer {api_key}' \\
     -d '{{"user":"{user}","event":"job.complete","data":{{"id":7}}}}'

   or from Python, with TIDINGS_REDIS_URL={environ.get("TIDINGS_REDIS_URL", "…")}

   from tidings import Publisher
   Publisher().publish("{user}", "job.complete", {{"id": 7}})
"""
