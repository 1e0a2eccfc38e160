"""Reading the settings: the environment, files named by it, and flags; unknown names are errors."""

from __future__ import annotations

import difflib
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tidings_gateway.settings.table import ENV_PREFIX, Settings, mark, rows, variable

logger = logging.getLogger("tidings.settings")

MAX_FILE_BYTES = 65_536
"""A larger file is not a secret."""

ELSEWHERE = frozenset({"TIDINGS_URL"})
"""Names of our own that other programs read: the command line's `--url`."""

# Kubernetes gives every pod the addresses of every Service as variables; a Service called "tidings" or "tidings-redis"
# makes these.
_KUBERNETES = re.compile(r"TIDINGS_(?:[A-Z0-9_]+_)?(?:PORT(?:_[A-Z0-9_]+)?|SERVICE_(?:HOST|PORT)(?:_[A-Z0-9_]+)?)")


@dataclass(frozen=True, slots=True)
class SettingsProblem:
    """One thing that is wrong: the variable, its value (None when it is secret or absent), and why."""

    variable: str
    value: str | None
    why: str

    def __str__(self) -> str:
        shown = "" if self.value is None else f"={self.value[:80]!r}"
        return f"{self.variable}{shown}: {self.why}" if self.variable else self.why


class SettingsError(Exception):
    """The settings cannot be used. `problems` holds all that is wrong, not only the first."""

    def __init__(self, problems: list[SettingsProblem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


def load_settings(environ: Mapping[str, str] | None = None, **given: Any) -> Settings:
    """The settings from `environ` (default: the process's own), overridden by `given` (field names).

    Raises `SettingsError` with everything that is wrong.
    """
    environ = os.environ if environ is None else environ
    problems = _unknown_names(environ)
    found: dict[str, Any] = {}
    for name, field in rows():
        if name in given:
            continue
        try:
            text = _read(environ, name, file_allowed=bool(mark(field, "file")))
        except _Unreadable as error:
            problems.append(error.problem)
            continue
        if text is not None:
            found[name] = text
    settings: Settings | None = None
    try:
        settings = Settings(**{**found, **given})
    except ValidationError as error:
        problems += _explain(error, found, given)
    if problems or settings is None:
        raise SettingsError(problems)
    return settings


class _Unreadable(Exception):
    def __init__(self, problem: SettingsProblem) -> None:
        self.problem = problem


def _read(environ: Mapping[str, str], name: str, *, file_allowed: bool) -> str | None:
    key = variable(name)
    text = environ.get(key)
    if not file_allowed or f"{key}_FILE" not in environ:
        return text
    path = environ[f"{key}_FILE"]
    if text is not None:
        raise _Unreadable(SettingsProblem(f"{key}_FILE", path, f"is set although {key} is set too; keep one of them"))
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise _Unreadable(SettingsProblem(f"{key}_FILE", path, f"is larger than {MAX_FILE_BYTES} bytes"))
        return data.decode().strip()
    except OSError as error:
        raise _Unreadable(SettingsProblem(f"{key}_FILE", path, f"cannot be read: {error.strerror}")) from None
    except UnicodeDecodeError:
        raise _Unreadable(SettingsProblem(f"{key}_FILE", path, "is not UTF-8 text")) from None


def _unknown_names(environ: Mapping[str, str]) -> list[SettingsProblem]:
    known = {variable(name) for name, _ in rows()}
    known |= {f"{variable(name)}_FILE" for name, field in rows() if mark(field, "file")}
    known |= ELSEWHERE
    strangers = sorted(name for name in environ if name.startswith(ENV_PREFIX) and name not in known)
    ignored = [name for name in strangers if _KUBERNETES.fullmatch(name)]
    if ignored:
        logger.info("ignoring what Kubernetes set for a Service of this name: %s", ", ".join(ignored))
    problems = []
    for name in strangers:
        if name in ignored:
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        hint = f"; did you mean {near[0]}?" if near else "; `tidings serve --help` lists all"
        problems.append(SettingsProblem(name, None, f"there is no such setting{hint}"))
    return problems


def _explain(error: ValidationError, found: Mapping[str, Any], given: Mapping[str, Any]) -> list[SettingsProblem]:
    problems = []
    for item in error.errors(include_url=False, include_input=False):
        why = _in_words(item)
        if not item["loc"]:
            problems += [SettingsProblem("", None, line) for line in why.splitlines()]
            continue
        name = str(item["loc"][0])
        field = Settings.model_fields.get(name)
        key = variable(name)
        value = found.get(name, given.get(name))
        secret = field is not None and (mark(field, "secret") or mark(field, "file"))
        if len(item["loc"]) > 1 and isinstance(item["loc"][1], int):
            why = f"item {item['loc'][1] + 1} {why}"
        problems.append(SettingsProblem(key, None if secret or value is None else str(value), why))
    return problems


def _in_words(item: ErrorDetails) -> str:
    limits = item.get("ctx", {})
    match item["type"]:
        case "int_parsing" | "int_type" | "int_from_float" | "int_parsing_size":
            return "must be a whole number"
        case "greater_than_equal":
            return f"must be at least {limits['ge']}"
        case "less_than_equal":
            return f"must be at most {limits['le']}"
        case "literal_error":
            return f"must be {limits['expected']}"
    return item["msg"].removeprefix("Value error, ")
