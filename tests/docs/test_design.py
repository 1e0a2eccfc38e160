"""DESIGN.md names rooms, files and bounds that exist, with the numbers they have."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from tests.docs.markdown import Document, blocks, table
from tests.support.sources import PACKAGES, ROOT, sources
from tidings import Publisher
from tidings_gateway.bus.limits import BusLimits
from tidings_gateway.server.settings import ServerSettings
from tidings_gateway.settings import Settings

DESIGN = Document("docs/DESIGN.md")

_BOUND = re.compile(r"([0-9][0-9,]*)(?: ([A-Za-z]+)(?:/s)?)? \(`(\w+)`\)")
_UNITS = {"": 1, "KiB": 1024, "MiB": 1024**2, "frames": 1, "s": 1}


def _value(name: str, where: str) -> Any:
    """What a bound's name stands for: an argument's or a setting's default, or a constant of the code."""
    if name.isupper():
        return next(_constants(name))
    if where == "publisher":
        return inspect.signature(Publisher).parameters[name].default
    if name in Settings.model_fields:
        return Settings.model_fields[name].default
    for settings in (BusLimits, ServerSettings):
        for field in fields(settings):
            if field.name == name:
                return field.default
    raise AssertionError(f"there is no bound {name}")


def _constants(name: str) -> Iterator[Any]:
    for source in sources():
        for node in source.tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                yield ast.literal_eval(node.value)  # type: ignore[attr-defined]


def test_bounds_are_true() -> None:
    """Every bound in the table has the name and the value that the code gives it."""
    wrong = []
    rows = table(DESIGN.section("What is bounded where"))
    assert len(rows) > 20
    for row in rows:
        for number, unit, name in _BOUND.findall(row["bound"]):
            documented = float(number.replace(",", "")) * _UNITS[unit]
            value = _value(name, row["where"])
            if documented != value / (1000 if name.endswith("_ms") else 1):
                wrong.append(f"{name} is {value}, not {number} {unit}")
    assert not wrong


def test_every_bound_of_a_session_is_there() -> None:
    """No bound on what one client may cost is missing from the table."""
    named = set(re.findall(r"`(\w+)`", DESIGN.section("What is bounded where")))
    costs = {
        name for name in Settings.model_fields if name.startswith(("queue_", "held_", "page_", "inbound_", "max_"))
    }
    assert costs - {"max_event_bytes"} <= named


def test_files_are_there() -> None:
    """Every file and room that the document names exists."""
    places = [*PACKAGES.values(), *(path / "core" for path in PACKAGES.values()), ROOT, ROOT / "web"]
    named = set(re.findall(r"[\w./]+\.(?:py|lua|js)\b", DESIGN.text))
    assert named
    missing = {name for name in named if not any((place / name).exists() for place in places)}
    house = blocks(DESIGN.section("The house"))[0].text
    assert not {name for name in missing if not (f" {name}" in house and any(ROOT.rglob(name)))}


def test_the_house_is_the_house() -> None:
    """Each room of the gateway stands in the drawing of the house."""
    house = blocks(DESIGN.section("The house"))[0].text
    gateway = PACKAGES["tidings_gateway"]
    rooms = {path.name for path in gateway.iterdir() if (path / "__init__.py").exists()}
    rooms |= {path.name for path in gateway.glob("*.py") if path.name != "__init__.py"}
    rooms -= {"assets.py", "embedded.py"}  # helpers of `tidings dev`, and of what serves the client's files
    assert not {room for room in rooms if room not in house}
