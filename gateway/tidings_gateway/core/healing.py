"""Who reads the log next when thousands must: after a lost link every session of it has to, and all at once they would
stand in each other's way, in front of newcomers, and in Redis in front of publishers.

So only `at_once` of them catch up at a time, in the order they were added; one that is hurried is the next. Pure.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Healing(Generic[T]):
    """Bounded by whoever adds: nothing is in here twice."""

    __slots__ = ("_at_once", "_under_way", "waiting")

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._under_way: set[T] = set()
        self.waiting: OrderedDict[T, None] = OrderedDict()

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    def add(self, item: T) -> None:
        """It waits for its turn, behind all others."""
        self.waiting[item] = None

    def hurry(self, item: T) -> None:
        """If it waits, it is the next."""
        if item in self.waiting:
            self.waiting.move_to_end(item, last=False)

    def take(self) -> T | None:
        """Whose turn it is; None while as many as may be are under way. Owes a `done` or a `discard`."""
        if not self.waiting or len(self._under_way) >= self._at_once:
            return None
        item, _ = self.waiting.popitem(last=False)
        self._under_way.add(item)
        return item

    def done(self, item: T) -> bool:
        """It has caught up, or waits for something else. Returns whether a place became free."""
        if item not in self._under_way:
            return False
        self._under_way.discard(item)
        return True

    def discard(self, item: T) -> bool:
        """It is gone. Returns whether a place became free."""
        self.waiting.pop(item, None)
        return self.done(item)

    def clear(self) -> None:
        """The link is gone: whoever comes back is added again."""
        self.waiting.clear()
        self._under_way.clear()
