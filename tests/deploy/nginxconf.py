"""Single values of nginx.conf, by the name of their directive."""

from __future__ import annotations

import re

from tests.support.nginx import CONF

_UNITS = {"": 1, "s": 1, "h": 3600, "k": 1024, "m": 1024**2}


def values(directive: str) -> list[str]:
    """What follows the directive, wherever it stands, in order."""
    return re.findall(rf"^\s*{re.escape(directive)}\s+(.*?);$", CONF.read_text(), re.MULTILINE)


def number(directive: str) -> int:
    """The only value of the directive, in seconds or bytes. `m` is a mebibyte: no time in this file has minutes."""
    (value,) = set(values(directive))
    return measure(value)


def measure(text: str) -> int:
    match = re.fullmatch(r"(\d+)([a-z]?)", text)
    assert match, f"not a number: {text}"
    return int(match[1]) * _UNITS[match[2]]
