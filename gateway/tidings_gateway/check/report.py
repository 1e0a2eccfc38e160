"""Findings and settings as text for people, or as data."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tidings_gateway.check.facts import Facts
from tidings_gateway.check.finding import Finding, Level
from tidings_gateway.check.server import product
from tidings_gateway.settings.document import shown_default
from tidings_gateway.settings.table import mark, rows, variable
from tidings_gateway.telemetry.logs import redact

if TYPE_CHECKING:
    from tidings_gateway.settings import Settings

SET = "(set)"


def settings_in_force(settings: Settings) -> dict[str, str]:
    """Every variable and its value; of a secret only that there is one."""
    return {variable(name): _shown(name, settings) for name, _ in rows()}


def changed(settings: Settings) -> dict[str, str]:
    """Those that are not at their default."""
    shown = settings_in_force(settings)
    return {
        variable(name): shown[variable(name)]
        for name, field in rows()
        if name in settings.model_fields_set
        and (mark(field, "secret") or shown[variable(name)] != shown_default(field))
    }


def _shown(name: str, settings: Settings) -> str:
    value = getattr(settings, name)
    if name == "redis_url":
        return redact(value)
    if mark(dict(rows())[name], "secret"):
        return SET if value else ""
    if name == "jwt_public_key":
        return SET if value else ""
    if isinstance(value, tuple) and not hasattr(value, "port"):
        return ",".join(map(str, value))
    return "" if value is None else str(value)


def exit_code(findings: Sequence[Finding]) -> int:
    """1 when something is to be changed."""
    return int(any(finding.level >= Level.WARN for finding in findings))


def as_data(servers: Sequence[Facts], findings: Sequence[Finding], settings: Settings) -> dict[str, Any]:
    return {
        "redis": [facts.at for facts in servers],
        "ok": not exit_code(findings),
        "findings": [
            {"level": each.level.name, "topic": each.topic, "words": each.words, "remedy": each.remedy}
            for each in findings
        ],
        "settings": settings_in_force(settings),
    }


def as_text(
    servers: Sequence[Facts], findings: Sequence[Finding], settings: Settings, *, width: int, users: int
) -> str:
    """One line per finding, its remedy below it, the worst first."""
    told_servers = ", ".join(map(_named, servers)) or "nowhere"
    lines = [f"Redis at {told_servers}, prefix {settings.prefix}, {users:,} users for one gateway", ""]
    column = max(len(finding.topic) for finding in findings) + 8
    for finding in findings:
        head = f"{finding.level.name:<6}{finding.topic:<{column - 6}}"
        lines += _wrapped(finding.words, head, column, width)
        if finding.remedy:
            lines += _wrapped(finding.remedy, " " * (column - 2) + "→ ", column, width)
    told = changed(settings)
    if told:
        lines += ["", "Settings that are not at their default:"]
        longest = max(map(len, told))
        lines += [f"  {name:<{longest}}  {value}" for name, value in told.items()]
    return "\n".join([*lines, "", _summary(findings)])


def _named(facts: Facts) -> str:
    name, version = product(dict(facts.info))
    return f"{facts.at} ({name} {version})" if version else facts.at


def _wrapped(text: str, head: str, column: int, width: int) -> Iterator[str]:
    options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    yield from textwrap.wrap(
        text, max(width, column + 40), initial_indent=head, subsequent_indent=" " * column, **options
    )


def _summary(findings: Sequence[Finding]) -> str:
    to_change = sum(finding.level >= Level.WARN for finding in findings)
    notes = sum(finding.level is Level.NOTE for finding in findings)
    told = "Nothing has to be changed" if not to_change else f"{to_change} to be changed"
    return f"{told}; {notes} note{'' if notes == 1 else 's'}."
