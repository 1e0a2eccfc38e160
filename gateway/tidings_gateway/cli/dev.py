"""`tidings dev`: a gateway to write a first page against, from nothing but this package."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tidings_gateway.settings import Settings

PORTS_TRIED = 20
TOKEN_TTL_S = 86_400
"""A day of development without a new token."""


@click.command(short_help="A gateway to write a first page against, with its own Valkey.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="The next free one if taken."
)
@click.option("--data", "directory", type=click.Path(path_type=Path, file_okay=False), help="Keep the events here.")
@click.option("--user", default="anna", show_default=True, help="Whom the printed token is for.")
def dev(port: int, directory: Path | None, user: str) -> int:
    """A gateway with a Valkey of its own, for pages on this machine only.

    Nothing needs to be set. TIDINGS_JWT_SECRET and TIDINGS_API_KEY are made up when they are not, anew at every start,
    so that a token or key of yesterday is refused; a Redis or secrets in the environment are used instead. Every other
    setting counts as it does for `tidings serve`: a token of your own backend that has an `aud`, for one, is refused
    unless TIDINGS_JWT_AUDIENCE names it.
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
        made_up = [
            name
            for name in ("TIDINGS_JWT_SECRET", "TIDINGS_API_KEY")
            if name not in environ and f"{name}_FILE" not in environ
        ]
        environ |= {name: secrets.token_urlsafe(32) for name in made_up}
        environ.setdefault("TIDINGS_ALLOWED_ORIGINS", "localhost")
        # A developer who presses Ctrl-C has no load balancer to wait for.
        environ.setdefault("TIDINGS_DRAIN_GRACE_MS", "0")
        environ.setdefault("TIDINGS_DRAIN_WINDOW_MS", "500")
        # Another gateway of this machine may have the default address.
        environ.setdefault("TIDINGS_ADMIN_LISTEN", "")
        wanted = environ["TIDINGS_ADMIN_LISTEN"].rpartition(":")[2]
        environ["TIDINGS_LISTEN"] = f"127.0.0.1:{free_port_from(port, but=wanted)}"
        environ.setdefault("TIDINGS_LOG_LEVEL", "warning")
        environ.setdefault("TIDINGS_LOG_FORMAT", "text")
        settings = load_settings(environ)
        setup_logging(settings.log_level, settings.log_format)
        click.echo(_greeting(settings, environ, user, made_up))
        return run(settings)


def free_port_from(port: int, *, but: str = "") -> int:
    """`port` if it is free, else the next one that is, which is said on standard error: a page or a script made for
    the wanted one would talk to somebody else. `but`: one that is spoken for. 0: any. Raises `click.ClickException`."""
    if port == 0:
        return _first_free([0])
    free = _first_free(other for other in range(port, min(port + PORTS_TRIED, 65536)) if str(other) != but)
    if free != port:
        click.echo(f"Port {port} is taken, so this is on {free}. (--port PORT asks for another.)", err=True)
    return free


def _first_free(ports: Iterable[int]) -> int:
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise click.ClickException("no free port was found; give another with --port")


def _greeting(settings: Settings, environ: dict[str, str], user: str, made_up: list[str]) -> str:
    from tidings.settings import first_secret
    from tidings.tokens import mint_token

    url = f"http://{settings.listen}{settings.base_path}"
    token = mint_token(user, ttl_s=TOKEN_TTL_S, secret=first_secret("jwt_secret", environ=environ))
    api_key = first_secret("api_key", environ=environ)
    # The password in the URL of somebody's own Redis is not ours to print.
    redis_url = settings.redis_url if "@" not in settings.redis_url else "redis://…"
    return f"""\
Tidings for development, for pages of this machine only. Ctrl-C ends it.
{_about_secrets(made_up)}

1. A page. Put this into any page on localhost:

   <script type="module">
     import {{ Tidings }} from "{url}/tidings.js";
     const tidings = new Tidings({{ token: "{token}" }});
     tidings.on("*", (event) => document.body.append(`${{event.type}} ${{JSON.stringify(event.data)}} `));
   </script>

2. An event for {user}:

   curl {url}/v1/publish -H 'Content-Type: application/json' \\
     -H 'Authorization: Bearer {api_key}' \\
     -d '{{"user":"{user}","event":"job.complete","data":{{"id":7}}}}'

   or from Python:

   from tidings import Publisher
   Publisher("{redis_url}").publish("{user}", "job.complete", {{"id": 7}})
"""


def _about_secrets(made_up: list[str]) -> str:
    if not made_up:
        return "Its secrets are those of your environment."
    is_are, it = ("is", "it") if len(made_up) == 1 else ("are", "them")
    return (
        f"{' and '.join(made_up)} {is_are} made up, anew at every start: what is printed below works until then.\n"
        f"Export {it} (32 bytes or more), and tokens and keys keep working."
    )
