"""The one timer of a gateway."""

from __future__ import annotations

import time

from tests.support.waiting import until
from tidings_gateway.ticker import Ticker


class Item:
    def __init__(self, again: float | None = None, error: Exception | None = None) -> None:
        self.calls: list[float] = []
        self.faults = 0
        self.again = again
        self.error = error

    def due(self, now: float) -> float | None:
        self.calls.append(now)
        if self.error is not None:
            raise self.error
        return None if self.again is None else now + self.again

    def fault(self) -> None:
        self.faults += 1


async def test_an_item_is_called_at_its_deadline_and_never_early() -> None:
    """By the ticker's own clock."""
    ticker = Ticker()
    ticker.start()
    item = Item()
    at = ticker.now() + 0.15
    ticker.schedule(item, at)
    await until(lambda: item.calls)
    assert item.calls[0] >= at
    ticker.stop()


async def test_an_item_names_its_next_deadline_itself() -> None:
    """What `due` returns is scheduled; None ends it."""
    ticker = Ticker()
    ticker.start()
    item = Item(again=0.01)
    ticker.schedule(item, ticker.now())
    await until(lambda: len(item.calls) >= 3)
    ticker.cancel(item)
    ticker.stop()


async def test_a_fault_in_one_item_does_not_stop_the_clock_of_others() -> None:
    """The item that raised is told; everybody else's deadlines come."""
    ticker = Ticker()
    ticker.start()
    bad, good = Item(error=RuntimeError("broken")), Item(again=0.01)
    ticker.schedule(bad, ticker.now())
    ticker.schedule(good, ticker.now())
    await until(lambda: len(good.calls) >= 3)
    assert bad.faults == 1
    assert len(bad.calls) == 1
    ticker.cancel(good)
    ticker.stop()


async def test_a_late_tick_says_how_late_it_came() -> None:
    """By so long nobody else on the loop was served either. What is told may fail; the clock goes on."""
    ticker = Ticker()
    late: list[float] = []

    def note(late_s: float) -> None:
        late.append(late_s)
        raise RuntimeError("as told")

    ticker.on_late = note
    ticker.start()
    await until(lambda: late)
    time.sleep(0.4)  # time: a loop that stands still is the subject
    await until(lambda: len(late) >= 3)
    assert max(late) > 0.25
    assert min(late) >= 0
    ticker.stop()
