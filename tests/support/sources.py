"""The project's own files, and what a Python file imports: for the tests that hold the house in order."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

PACKAGES = {"tidings": ROOT / "publisher" / "tidings", "tidings_gateway": ROOT / "gateway" / "tidings_gateway"}

_NOT_OURS = frozenset({".git", ".venv", "node_modules", "__pycache__", "dist", "build", ".hypothesis"})
_TEXT = frozenset(
    {".py", ".lua", ".js", ".mjs", ".ts", ".css", ".html", ".md", ".toml", ".txt", ".json", ".yaml", ".yml", ".conf"}
)


def text_files() -> Iterator[Path]:
    """Every file of the project that people read, generated ones included."""
    for directory, names, files in ROOT.walk() if hasattr(ROOT, "walk") else _walk(ROOT):
        names[:] = sorted(name for name in names if name not in _NOT_OURS and not name.endswith("_cache"))
        for name in sorted(files):
            path = directory / name
            if path.suffix in _TEXT or path.parent.name == ".ci" or name in ("Makefile", "Dockerfile"):
                yield path


def _walk(top: Path) -> Iterator[tuple[Path, list[str], list[str]]]:  # Path.walk came with Python 3.12
    import os

    for directory, names, files in os.walk(top):
        yield Path(directory), names, files


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@dataclass(frozen=True, slots=True)
class Import:
    """`module` is imported; with `from module import name`, `name` too, which may be a module itself."""

    module: str
    name: str | None
    line: int
    lazy: bool
    """Inside a function, or for type checkers only: it does not happen when the importing module is loaded."""


@dataclass(frozen=True, slots=True)
class Source:
    module: str
    path: Path
    tree: ast.Module

    @property
    def imports(self) -> list[Import]:
        return list(_imports(self.tree, lazy=False))


@functools.cache
def sources() -> tuple[Source, ...]:
    """Every module of the two packages."""
    found = []
    for package, directory in PACKAGES.items():
        for path in sorted(directory.rglob("*.py")):
            parts = [package, *path.relative_to(directory).with_suffix("").parts]
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found.append(Source(module, path, ast.parse(path.read_text(), str(path))))
    return tuple(found)


def _imports(node: ast.AST, *, lazy: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, None, child.lineno, lazy)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"a relative import in line {child.lineno}: write the whole name"
            for alias in child.names:
                yield Import(child.module or "", alias.name, child.lineno, lazy)
        elif isinstance(child, ast.If) and _is_type_checking(child.test):
            for inner in child.body:
                yield from _imports(ast.Module([inner], []), lazy=True)
            for inner in child.orelse:
                yield from _imports(ast.Module([inner], []), lazy=lazy)
        else:
            deeper = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            yield from _imports(child, lazy=lazy or deeper)


def _is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )
