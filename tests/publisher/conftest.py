"""Fixtures for the publishers: each kind in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.publisher.blocking import Blocking
from tests.publisher.stub import StubGateway
from tests.support.tokens import API_KEY
from tests.support.valkey import ValkeyProcess
from tidings import Publisher

Make = Callable[..., Any]


@pytest.fixture(params=[Publisher, Blocking], ids=["blocking", "async"])
def make(request: pytest.FixtureRequest) -> Make:
    kind: Make = request.param
    return kind


@pytest.fixture
def stub() -> Iterator[StubGateway]:
    with StubGateway() as stub:
        yield stub


@pytest.fixture(params=["redis", "http"])
def publisher(request: pytest.FixtureRequest, make: Make, valkey: ValkeyProcess, prefix: str) -> Iterator[Any]:
    if request.param == "redis":
        with make(valkey.url, prefix=prefix) as made:
            yield made
    else:
        with StubGateway() as stub, make(stub.url, api_key=API_KEY) as made:
            yield made
