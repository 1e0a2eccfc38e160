"""The table of settings as text: `docs/settings.md`, and the help of `tidings serve`."""

from __future__ import annotations

from pydantic.fields import FieldInfo

from tidings_gateway.settings.table import GROUPS, mark, rows, variable

_HEAD = """# Settings

Every setting of the gateway is an environment variable; `tidings serve` takes the same as flags
(`TIDINGS_HEARTBEAT_MS` is `--heartbeat-ms`). A name ends in its unit. An unknown `TIDINGS_` variable is an error that
names the nearest known one; only what Kubernetes sets for a Service called `tidings` is ignored.

Variables marked † may also be given as a file: `TIDINGS_JWT_SECRET_FILE=/run/secrets/jwt`. On the command line secrets
are taken from files only, since every user of a machine can read its processes' arguments.
Rows that say *Shared* mean the same to publishers, which read the same variables: keep both sides equal.

This page is made by `python -m tidings_gateway.settings`.
"""


def shown_default(field: FieldInfo) -> str:
    """The default as it would be written in the environment."""
    shown = mark(field, "shown")
    if isinstance(shown, str):
        return shown
    value = field.get_default()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)


def markdown() -> str:
    """The whole page."""
    lines = [_HEAD]
    for name, field in rows():
        if name in GROUPS:
            lines += [f"\n## {GROUPS[name]}\n", "| variable | default | meaning |", "|---|---|---|"]
        dagger = " †" if mark(field, "file") else ""
        default = shown_default(field)
        meaning = (field.description or "").replace("|", "\\|")
        lines.append(f"| `{variable(name)}`{dagger} | {f'`{default}`' if default else 'empty'} | {meaning} |")
    return "\n".join(lines) + "\n"
