"""Just enough of Markdown to hold a document to the code: sections, tables, fenced blocks, links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tests.support.sources import ROOT

_HEADING = re.compile(r"(#+) (.+)")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"`[^`]*`")


class Document:
    """`name` is the file's path in the project."""

    def __init__(self, name: str) -> None:
        self.path: Path = ROOT / name
        self.text = self.path.read_text()

    def section(self, heading: str, *, level: int | None = None) -> str:
        """The text below a heading, up to the next of its level or above; subsections are part of it."""
        lines, inside, own_level = [], False, 0
        for line, in_fence in _lines(self.text):
            found = None if in_fence else _HEADING.fullmatch(line)
            if found and inside and len(found[1]) <= own_level:
                break
            if inside:
                lines.append(line)
            elif found and found[2] == heading and level in (None, len(found[1])):
                inside, own_level = True, len(found[1])
        assert inside, f"{self.path.name} has no heading {heading!r}"
        return "\n".join(lines)

    def headings(self) -> list[str]:
        found = (_HEADING.fullmatch(line) for line, in_fence in _lines(self.text) if not in_fence)
        return [match[2] for match in found if match]

    def links(self) -> list[str]:
        prose = (_CODE.sub("", line) for line, in_fence in _lines(self.text) if not in_fence)
        return [link for line in prose for link in _LINK.findall(line)]

    def anchors(self) -> set[str]:
        """What `#…` may name: headings as GitHub writes them."""
        return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in self.headings()}


class Block(NamedTuple):
    language: str
    text: str


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a section."""
    return [Block(*found) for found in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]


def table(text: str) -> list[dict[str, str]]:
    """The rows of the first table of a section, by the names of its columns, without backticks around a whole cell."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    head, _, *body = cells
    first: list[dict[str, str]] = []
    for row in body:
        if len(row) != len(head) or set("".join(row)) <= set("-|: "):
            break
        first.append(dict(zip(head, row, strict=True)))
    return first


def _lines(text: str) -> list[tuple[str, bool]]:
    found, in_fence = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            in_fence = not in_fence
        found.append((line, in_fence))
    return found
