"""A route's own question, answered without a network."""

from __future__ import annotations

from typing import Any

from tidings.publishing.plan import Failure, Outcome, Refusal
from tidings.publishing.routes import Route


def ask(route: Route, answer: Any) -> Refusal | None:
    """What the route learns from `answer`, a `Failure` included, to the question it has."""
    question = route.question()
    assert question is not None
    return route.learn(question, Outcome(failure=answer) if isinstance(answer, Failure) else Outcome([answer]))
