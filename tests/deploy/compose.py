"""compose.yaml as data."""

from __future__ import annotations

from typing import Any

import yaml

from tests.support.sources import ROOT

COMPOSE = ROOT / "deploy" / "compose.yaml"


def load() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return found


def service(name: str) -> dict[str, Any]:
    found: dict[str, Any] = load()["services"][name]
    return found


def environment_of(name: str) -> dict[str, str]:
    """Of one service; what is taken from the reader's own environment is left out."""
    return {key: value for key, value in service(name)["environment"].items() if not value.startswith("${")}


def seconds(text: str) -> float:
    """`30s`, `1m`."""
    return float(text[:-1]) * {"s": 1, "m": 60}[text[-1]]
