"""`tidings token USER`: a token to try things out with."""

from __future__ import annotations

import click


@click.command(short_help="Print a token for a page.")
@click.argument("user")
@click.option(
    "--ttl", "ttl_s", type=click.IntRange(min=1), default=900, show_default=True, help="Seconds it is good for."
)
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="A topic it may follow. May be repeated.")
def token(user: str, ttl_s: int, topics: tuple[str, ...]) -> None:
    """Print a token for USER, signed with the first secret of TIDINGS_JWT_SECRET."""
    from tidings.settings import first_secret
    from tidings.tokens import mint_token

    secret = first_secret("jwt_secret")
    if secret is None:
        raise click.UsageError(
            "TIDINGS_JWT_SECRET is not set: it must hold the secret that the gateway verifies tokens with"
        )
    click.echo(mint_token(user, topics=topics, ttl_s=ttl_s, secret=secret))
