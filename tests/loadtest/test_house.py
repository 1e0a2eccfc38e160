"""The load test stands on its own: whoever points it at a deployment needs no part of the tests."""

from __future__ import annotations

import ast

from tests.support.sources import ROOT

PURE = {"machine.py", "states.py", "load.py", "pacing.py", "places.py", "ledger.py", "options.py"}
NOT_PURE = {"asyncio", "gevent", "locust", "os", "random", "socket", "ssl", "subprocess", "threading", "time"}


def _imported(name: str) -> set[str]:
    """The packages that a file imports, at whatever depth."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / "loadtest" / name).read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
    return found


def test_it_imports_nothing_of_the_tests() -> None:
    """No file of it."""
    files = sorted(path.name for path in (ROOT / "loadtest").glob("*.py"))
    assert "locustfile.py" in files
    assert [name for name in files if "tests" in _imported(name)] == []


def test_the_machine_is_pure() -> None:
    """No clock, chance, socket or loop in what decides."""
    assert {name: _imported(name) & NOT_PURE for name in sorted(PURE)} == {name: set() for name in sorted(PURE)}
