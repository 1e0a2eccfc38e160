"""Something each process must have its own of: after a fork, connections must not be shared."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PerProcess(Generic[T]):
    """`get` makes one at first use in each process, and gives what came from the parent to `inherited`. No lock of the
    parent's is ever taken in a child: the thread that held it at the fork does not exist there."""

    def __init__(self, make: Callable[[], T], inherited: Callable[[T], object]) -> None:
        self._make = make
        self._inherited = inherited
        self._by_pid: dict[int, T] = {}

    def get(self) -> T:
        pid = os.getpid()
        mine = self._by_pid.get(pid)
        if mine is None:
            # setdefault and pop are atomic: of two threads that come first at once, both get the same one.
            mine = self._by_pid.setdefault(pid, self._make())
            for other in [key for key in self._by_pid if key != pid]:
                parents = self._by_pid.pop(other, None)
                if parents is not None:
                    self._inherited(parents)
        return mine
