"""`tidings serve`: a gateway, configured by the environment and by flags that mirror it."""

from __future__ import annotations

import logging
import os

import click

from tidings_gateway.settings import Settings, SettingsError, SettingsProblem, load_settings
from tidings_gateway.settings.document import shown_default
from tidings_gateway.settings.limits import raise_descriptor_limit
from tidings_gateway.settings.table import GROUPS, mark, rows, variable

log = logging.getLogger("tidings.serve")

_FILE = "_file"


class _Serve(click.Command):
    """Prints its many flags in the groups of the table."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        group = ""
        records: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            name = (parameter.name or "").removesuffix(_FILE)
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            heading = "Other" if name == "help" else GROUPS.get(name, group)
            if heading != group and records:
                self._write(formatter, group, records)
                records = []
            group = heading
            records.append(record)
        self._write(formatter, group, records)

    @staticmethod
    def _write(formatter: click.HelpFormatter, group: str, records: list[tuple[str, str]]) -> None:
        with formatter.section(group):
            formatter.write_dl(records, col_max=34)


def _options() -> list[click.Parameter]:
    options: list[click.Parameter] = []
    for name, field in rows():
        flag = "--" + name.replace("_", "-")
        default = shown_default(field)
        shown = f"; default: {default}" if default else ""
        in_file = bool(mark(field, "file"))
        # A secret on the command line can be read by every user of the machine.
        if not in_file or name == "redis_url":
            told = f"{field.description} [{variable(name)}{shown}]"
            options.append(click.Option([flag], metavar="TEXT", help=told))
        if in_file:
            what = "The same, in a file." if name == "redis_url" else f"A file with it. {field.description}"
            told = f"{what} [{variable(name)}_FILE]"
            options.append(click.Option([f"{flag}-file"], metavar="PATH", help=told))
    return options


def _from_flags(flags: dict[str, str | None]) -> Settings:
    """A flag stands in for its variable, so that one parser reads both."""
    environ = dict(os.environ)
    for name, text in flags.items():
        if text is None:
            continue
        setting = name.removesuffix(_FILE)
        environ.pop(variable(setting), None)
        environ.pop(variable(setting) + "_FILE", None)
        environ[variable(name)] = text
    return load_settings(environ)


def require_secrets(settings: Settings) -> None:
    """Raises `SettingsError` when anybody could connect as anybody, or nobody could publish."""
    problems = []
    if not settings.jwt_secret and not settings.jwt_public_key:
        why = (
            "is not set, and neither is TIDINGS_JWT_PUBLIC_KEY: one of them must say whose tokens to trust. "
            "(`tidings dev` makes up secrets of its own, to try things out.)"
        )
        problems.append(SettingsProblem("TIDINGS_JWT_SECRET", None, why))
    if not settings.api_key:
        why = "is not set: publishers need a key of at least 32 bytes for POST /v1/publish."
        problems.append(SettingsProblem("TIDINGS_API_KEY", None, why))
    if problems:
        raise SettingsError(problems)


def _serve(**flags: str | None) -> int:
    from tidings_gateway.app import run
    from tidings_gateway.telemetry.logs import setup_logging

    raise_descriptor_limit()
    setup_logging()  # for what is said while the settings are read
    settings = _from_flags(flags)
    require_secrets(settings)
    setup_logging(settings.log_level, settings.log_format)
    if not settings.allowed_origins:
        log.warning("TIDINGS_ALLOWED_ORIGINS is empty: no web page can connect, only programs")
    return run(settings)


serve = _Serve(
    "serve",
    params=_options(),
    callback=_serve,
    help="Run a gateway.\n\nEvery flag is also an environment variable, named in brackets; a flag wins. Secrets are "
    "taken from variables or files, never from flags.",
)
