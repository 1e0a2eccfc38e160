"""Waiting for a condition with a deadline: what tests do instead of sleeping for a while and hoping."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")

POLL_S = 0.005

# What a busy machine may add to a deadline of the code under test. A test that allows this much must be built so that
# breaking the deadline takes far longer still: it is about the deadline, never about speed.
BUSY_S = 2.0


class NotReached(AssertionError):
    """The condition did not become true in time. Carries the last value seen, which is usually the explanation."""

    def __init__(self, what: str, deadline_s: float, last: object) -> None:
        super().__init__(f"not within {deadline_s:g} s: {what} (last seen: {last!r})")
        self.what = what
        self.deadline_s = deadline_s
        self.last = last


@overload
async def until(
    predicate: Callable[..., Awaitable[T]], deadline_s: float = ..., what: str = ..., *, every_s: float = ...
) -> T: ...
@overload
async def until(
    predicate: Callable[..., T], deadline_s: float = ..., what: str = ..., *, every_s: float = ...
) -> T: ...
async def until(
    predicate: Callable[[], Any],
    deadline_s: float = 5,
    what: str = "",
    *,
    every_s: float = POLL_S,
) -> Any:
    """Return the first truthy value of `predicate` (sync or async). Raises `NotReached` after `deadline_s` seconds.

    An exception of the predicate is not swallowed: a condition that cannot be evaluated is a broken test.
    """
    end = time.monotonic() + deadline_s
    while True:
        answer = predicate()
        value = await answer if inspect.isawaitable(answer) else answer
        if value:
            return value
        if time.monotonic() >= end:
            raise NotReached(what or _name(predicate), deadline_s, value)
        await asyncio.sleep(every_s)


def until_sync(predicate: Callable[..., T], deadline_s: float = 5, what: str = "", *, every_s: float = POLL_S) -> T:
    """`until` for code without an event loop."""
    end = time.monotonic() + deadline_s
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() >= end:
            raise NotReached(what or _name(predicate), deadline_s, value)
        time.sleep(every_s)


def _name(predicate: Callable[..., object]) -> str:
    return getattr(predicate, "__qualname__", repr(predicate))
