"""Who is due: a timer wheel for the deadlines of very many connections.

Deadlines are rounded up to ticks, and all items of one tick share one slot. Scheduling, moving and cancelling cost a
few dictionary operations however many items there are; a turn of the wheel touches the due ones only. Slots are made
when something is put into them, so a deadline may lie as far ahead as it likes.

An item has one deadline. A connection with several keeps the nearest here and asks itself what is due when called.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class Wheel(Generic[Item]):
    """`tick_ms` is the resolution, a whole number; `now_ms` the time it starts at, of a clock that never goes back."""

    __slots__ = ("_slot_of", "_slots", "_start_ms", "_tick", "_tick_ms")

    def __init__(self, tick_ms: int, now_ms: float) -> None:
        self._tick_ms = tick_ms
        self._start_ms = now_ms
        self._tick = 0
        # Dictionaries as ordered sets: items of one tick come due in the order they were scheduled in.
        self._slots: dict[int, dict[Item, None]] = {}
        self._slot_of: dict[Item, dict[Item, None]] = {}

    def __len__(self) -> int:
        return len(self._slot_of)

    def __contains__(self, item: Item) -> bool:
        return item in self._slot_of

    def schedule(self, item: Item, due_ms: float) -> None:
        """Make `due_ms` the item's deadline, instead of the one it may have. One that has passed is due at the next
        tick."""
        self.cancel(item)
        # Rounded up: never early.
        tick = max(self._tick + 1, -int((self._start_ms - due_ms) // self._tick_ms))
        slot = self._slots.get(tick)
        if slot is None:
            slot = self._slots[tick] = {}
        slot[item] = None
        self._slot_of[item] = slot

    def cancel(self, item: Item) -> bool:
        """Forget the item. False when it was not scheduled (any more)."""
        slot = self._slot_of.pop(item, None)
        if slot is None:
            return False
        del slot[item]
        return True

    def advance(self, now_ms: float) -> list[Item]:
        """Turn the wheel to `now_ms` and return the items that came due, the earlier tick first.

        They are no longer scheduled. An item that is ended while this list is being worked through is still in it.
        """
        target = int((now_ms - self._start_ms) // self._tick_ms)
        if target <= self._tick:
            return []
        due: list[Item] = []
        ticks: Iterable[int] = range(self._tick + 1, target + 1)
        if len(self._slots) < target - self._tick:
            # After a long sleep there are more ticks than slots.
            ticks = sorted(tick for tick in self._slots if tick <= target)
        for tick in ticks:
            slot = self._slots.pop(tick, None)
            if slot:
                due.extend(slot)
        self._tick = target
        for item in due:
            del self._slot_of[item]
        return due
