"""The route to one server, which is none."""

from __future__ import annotations

import pytest

from tidings.publishing.plan import Outcome
from tidings.publishing.routes import OneServer, Question, Server
from tidings.redis_url import Address


def test_one_server_needs_no_question() -> None:
    """Everything goes there, whatever happens: a new connection looks its address up anew."""
    route = OneServer()
    route.doubt(None)
    assert route.question() is None
    assert route.server("a") is None
    assert route.known is None
    assert not route.sharded
    with pytest.raises(AssertionError):
        route.learn(Question(Server(Address("h", 1)), ("PING",)), Outcome())
