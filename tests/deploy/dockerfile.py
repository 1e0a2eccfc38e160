"""A Dockerfile as data: its stages, and what each instruction says."""

from __future__ import annotations

import fnmatch
import json
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.sources import ROOT

DOCKERFILE = ROOT / "deploy" / "Dockerfile"
KNOWN = frozenset(
    {
        "FROM",
        "WORKDIR",
        "COPY",
        "RUN",
        "ENV",
        "LABEL",
        "USER",
        "EXPOSE",
        "STOPSIGNAL",
        "HEALTHCHECK",
        "ENTRYPOINT",
        "CMD",
    }
)


@dataclass(frozen=True, slots=True)
class Instruction:
    word: str
    rest: str

    @property
    def exec_form(self) -> list[str]:
        """The arguments of `["a", "b"]`. Raises `ValueError` for the shell's form."""
        found = json.loads(self.rest)
        if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
            raise ValueError(f"not in exec form: {self.rest}")
        return found

    @property
    def pairs(self) -> dict[str, str]:
        """`a=b c="d e"`."""
        return dict(item.split("=", 1) for item in shlex.split(self.rest))


@dataclass(slots=True)
class Stage:
    base: str
    name: str
    instructions: list[Instruction] = field(default_factory=list)

    def last(self, word: str) -> Instruction:
        return [instruction for instruction in self.instructions if instruction.word == word][-1]

    def env(self) -> dict[str, str]:
        return {k: v for i in self.instructions if i.word == "ENV" for k, v in i.pairs.items()}

    @property
    def user(self) -> tuple[int, int]:
        """Numbers. Raises `ValueError` for names."""
        uid, _, gid = self.last("USER").rest.partition(":")
        return int(uid), int(gid)

    @property
    def command(self) -> list[str]:
        """What process 1 is. Raises `ValueError` when a shell would be."""
        return self.last("ENTRYPOINT").exec_form + self.last("CMD").exec_form

    @property
    def healthcheck(self) -> tuple[dict[str, str], list[str]]:
        """Its options, and its command."""
        options, _, command = self.last("HEALTHCHECK").rest.partition("CMD ")
        flags = dict(item.removeprefix("--").split("=", 1) for item in options.split())
        return flags, Instruction("CMD", command).exec_form


def stages(text: str) -> list[Stage]:
    """Raises `ValueError` for an instruction that `scratch.py` could not follow."""
    found: list[Stage] = []
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for logical in "\n".join(lines).replace("\\\n", " ").splitlines():
        word, _, rest = logical.strip().partition(" ")
        if not word:
            continue
        if word not in KNOWN:
            raise ValueError(f"unknown instruction {word}")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            found.append(Stage(base, name))
        else:
            found[-1].instructions.append(Instruction(word, rest.strip()))
    return found


class Ignore:
    """`.dockerignore`: the last pattern that matches a path, or a folder above it, decides."""

    def __init__(self, text: str) -> None:
        lines = [line.strip() for line in text.splitlines()]
        self._rules = [
            (line.removeprefix("!"), not line.startswith("!")) for line in lines if line and not line.startswith("#")
        ]

    def __call__(self, path: Path) -> bool:
        """Is it left out? `path` is relative to the context."""
        ignored = False
        places = [place.as_posix() for place in (path, *path.parents) if place.as_posix() != "."]
        for pattern, verdict in self._rules:
            deep = pattern.startswith("**/")
            names = [place.rpartition("/")[2] for place in places] if deep else places
            if any(_matches(name, pattern.removeprefix("**/")) for name in names):
                ignored = verdict
        return ignored


def _matches(name: str, pattern: str) -> bool:
    return name.count("/") == pattern.count("/") and fnmatch.fnmatchcase(name, pattern)
