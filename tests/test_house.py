"""Rules for every file of the project: one noun per file with a test beside it, none too long, none too talkative."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

from tests.support.sources import ROOT, relative, sources, text_files

MAX_LINES = 400
GENERATED = {"constraints.txt", "web/package-lock.json"}

# Modules without a test file of their own name, and where they are tested instead.
TESTED_ELSEWHERE: dict[str, str] = {
    "tidings.__main__": "tests of the command line",
    "tidings.errors": "every test that expects one; they hold no logic",
    "tidings.log.page": "data only; tests of read.lua and of the feed make and judge pages",
    "tidings.log.receipt": "data only; tests of append.lua and of the client",
    "tidings_gateway.bus.clusterstate": "tests/bus/test_cluster.py, which asks a real one",
    "tidings_gateway.bus.member": "tests/bus/test_cluster.py; it only hands on",
    "tidings_gateway.assets": "test_app.py fetches the client's files, the browser tests the page's",
    "tidings_gateway.demo.gateways": "the browser tests run the demo as a whole",
    "tidings_gateway.demo.jobs": "the browser tests run the demo as a whole",
    "tidings_gateway.demo.main": "the browser tests run the demo as a whole",
    "tidings_gateway.http.body": "tests/http/test_publish.py, through the route that reads bodies",
    "tidings_gateway.http.messages": "tests/http/test_publish.py, through the route that parses them",
    "tidings_gateway.http.routes": "every test that asks a route of a whole gateway",
}

# Hosts of package registries, in two halves so that this file does not name one itself.
_HOSTS = [
    a + b
    for a, b in (
        ("py", "pi.org"),
        ("files.pythonhosted", ".org"),
        ("registry.npm", "js.org"),
        ("npm", "js.com"),
        ("deb.deb", "ian.org"),
        ("crates", ".io"),
        ("proxy.go", "lang.org"),
        ("repo.maven", ".apache.org"),
    )
]
_INDEX = re.compile(r"--(extra-)?index-url|--registry[ =]|find-links", re.IGNORECASE)
_ELSEWHERE = re.compile("/" + r"work/|/tmp" + r"/v/")

TESTS = ROOT / "tests"


def _test_files() -> list[Path]:
    return sorted(path for path in TESTS.rglob("test_*.py"))


def test_each_source_has_its_test() -> None:
    """`bus/channels.py` is tested by `tests/bus/test_channels.py` (or `test_channels_….py`): nobody searches.

    A room whose modules only make sense together may have one test, as `settings` has `tests/test_settings.py`.
    """
    stems = Counter(source.path.stem for source in sources())
    missing = []
    for source in sources():
        stem = source.path.stem
        room = source.path.parent.name
        if stem == "__init__" or source.module in TESTED_ELSEWHERE or (TESTS / f"test_{room}.py").exists():
            continue
        partners = [
            path
            for path in _test_files()
            if re.fullmatch(rf"test_({room}_)?{re.escape(stem.strip('_'))}(_\w+)?\.py", path.name)
        ]
        if stems[stem] > 1:
            # Two files of one name: the test's folder, or its name, says which.
            partners = [path for path in partners if room in (path.parent.name, *path.stem.split("_"))]
        if not partners:
            missing.append(relative(source.path))
    assert not missing, "no test file of the same name for:\n" + "\n".join(missing)


def test_exceptions_exist() -> None:
    """The list of modules tested elsewhere names modules that exist."""
    assert set(TESTED_ELSEWHERE) <= {source.module for source in sources()}


def test_no_file_is_too_long() -> None:
    """A file past 400 lines is asking to be two, a test as much as what it tests."""
    code = (".py", ".js", ".mjs", ".lua", ".css", ".html")
    found = []
    for path in text_files():
        if path.suffix in code and relative(path) not in GENERATED:
            lines = path.read_text().count("\n")
            if lines > MAX_LINES:
                found.append(f"{relative(path)}: {lines} lines")
    assert not found, "\n".join(found)


def test_no_address_of_a_registry() -> None:
    """Packages come by name from wherever the reader's own clients are set up to look."""
    found = []
    for path in text_files():
        text = path.read_text()
        found += [f"{relative(path)}: {host}" for host in _HOSTS if host in text]
        if path != Path(__file__):
            found += [f"{relative(path)}: {match[0]}" for match in _INDEX.finditer(text)]
    assert not found, "\n".join(found)


def test_no_path_of_somebody_s_machine() -> None:
    """Nothing in the project refers to a place outside it that only its author has."""
    found = [relative(path) for path in text_files() if _ELSEWHERE.search(path.read_text())]
    assert not found, "\n".join(found)


def test_tests_are_packages() -> None:
    """Every folder with tests is a package, so that two test files may have the same name."""
    folders = {path.parent for path in _test_files()}
    assert not [relative(folder) for folder in folders if not (folder / "__init__.py").exists()]


def test_each_test_says_what_it_requires() -> None:
    """The docstring of a test is the requirement; the test file reads as the specification."""
    found = []
    for path in _test_files():
        for node in ast.walk(ast.parse(path.read_text())):
            is_test = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_")
            if is_test and not ast.get_docstring(node):  # type: ignore[arg-type]
                found.append(f"{relative(path)}:{node.lineno} {node.name}")  # type: ignore[attr-defined]
    assert not found, "\n".join(found)


def test_no_fixed_sleeps_in_tests() -> None:
    """A test, and what it stands on, waits for a condition with a deadline. Where time is the subject, `# time:` on the
    line says why; how often is looked has a name."""
    found = []
    for path in sorted(TESTS.rglob("*.py")):
        lines = path.read_text().splitlines()
        for node in ast.walk(ast.parse("\n".join(lines))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "sleep"):
                continue
            argument = node.args[0] if node.args else None
            fixed = (
                isinstance(argument, ast.Constant) and isinstance(argument.value, (int, float)) and argument.value > 0
            )
            if fixed and "# time:" not in lines[node.lineno - 1]:
                found.append(f"{relative(path)}:{node.lineno}")
    assert not found, "\n".join(found)
