"""What every document must hold: its links lead somewhere, its settings exist, its numbers are the defaults."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.markdown import Document
from tests.support.sources import ROOT, relative, text_files
from tidings_gateway.settings import Settings
from tidings_gateway.settings.environment import ELSEWHERE
from tidings_gateway.settings.table import mark, rows, variable

_VARIABLE = re.compile(r"TIDINGS_[A-Z0-9_]*[A-Z0-9]")
_WITH_DEFAULT = re.compile(r"`(TIDINGS_[A-Z0-9_]+)` \(([0-9][0-9,]*)(?: (ms|s|KiB|MiB|days?))?[,)]")
_UNITS = {"": 1, "KiB": 1024, "MiB": 1024**2, "ms": 1, "s": 1000, "day": 86_400_000, "days": 86_400_000}

# Variables of others that the documents speak of.
KUBERNETES = {"TIDINGS_PORT", "TIDINGS_SERVICE_HOST", "TIDINGS_SERVICE_PORT"}


def _documents() -> list[Document]:
    return [Document(relative(path)) for path in text_files() if path.suffix == ".md"]


@pytest.fixture(params=_documents(), ids=lambda document: str(document.path.relative_to(ROOT)))
def document(request: pytest.FixtureRequest) -> Document:
    found: Document = request.param
    return found


def test_links_lead_somewhere(document: Document) -> None:
    """A link to a file of the project names one that is there, and its anchor a heading of that file."""
    broken = []
    for link in document.links():
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        path = (document.path.parent / name).resolve() if name else document.path
        if not path.exists() or (anchor and anchor not in _anchors(path)):
            broken.append(link)
    assert not broken


def _anchors(path: Path) -> set[str]:
    return Document(relative(path)).anchors() if path.suffix == ".md" else set()


def test_settings_exist(document: Document) -> None:
    """A variable that a document names is a setting of the gateway, or of the command line."""
    known = {variable(name) for name, _ in rows()} | ELSEWHERE | KUBERNETES
    known |= {f"{variable(name)}_FILE" for name, field in rows() if mark(field, "file")}
    assert not set(_VARIABLE.findall(document.text)) - known


def test_defaults_are_true(document: Document) -> None:
    """A default that stands in brackets behind a setting is the default."""
    wrong = []
    for name, number, unit in _WITH_DEFAULT.findall(document.text):
        field = Settings.model_fields[name.removeprefix("TIDINGS_").lower()]
        documented = int(number.replace(",", "")) * _UNITS[unit]
        default = field.default * (1000 if name.endswith("_S") and unit else 1)
        if documented != default:
            wrong.append(f"{name}: {number} {unit}, but it is {field.default}")
    assert not wrong
