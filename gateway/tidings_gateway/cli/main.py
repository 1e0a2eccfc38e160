"""The commands, and what every failure of theirs becomes: words on standard error and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

import click

from tidings.errors import InvalidInput, TidingsError
from tidings_gateway.assets import MissingAsset
from tidings_gateway.cli.check import check
from tidings_gateway.cli.demo import demo
from tidings_gateway.cli.dev import dev
from tidings_gateway.cli.explaining import explain
from tidings_gateway.cli.publish import publish
from tidings_gateway.cli.serve import serve
from tidings_gateway.cli.tailing import tail
from tidings_gateway.cli.token import token
from tidings_gateway.embedded import EmbeddedError
from tidings_gateway.server.admin import CannotListen
from tidings_gateway.settings import SettingsError

DONE, FAILED, USAGE = 0, 1, 2


def _version() -> str:
    try:
        return version("tidings")
    except PackageNotFoundError:
        return "unknown (not installed)"


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(_version(), prog_name="tidings", message="%(prog)s %(version)s")
def cli() -> None:
    """Tell a browser tab the moment its work is done.

    `tidings demo` shows it; `tidings dev` is a gateway to write a first page against; `tidings serve` is the real one.
    """


for command in (serve, dev, demo, publish, check, tail, explain, token):
    cli.add_command(command)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code."""
    try:
        code = cli.main(list(arguments), prog_name="tidings", standalone_mode=False)
    except click.UsageError as error:
        error.show()
        return USAGE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return FAILED
    except SettingsError as error:
        for problem in error.problems:
            click.echo(f"tidings: {problem}", err=True)
        return USAGE
    except InvalidInput as error:
        click.echo(f"tidings: {error}", err=True)
        return USAGE
    except CannotListen as error:
        click.echo(f"tidings: TIDINGS_ADMIN_LISTEN: cannot listen on {error}", err=True)
        return FAILED
    except (TidingsError, EmbeddedError, MissingAsset) as error:
        click.echo(f"tidings: {error}", err=True)
        return FAILED
    except BrokenPipeError:
        # The reader of our output went away, as `head` does. Python would complain once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code if isinstance(code, int) else DONE


def main() -> None:
    sys.exit(run(sys.argv[1:]))
