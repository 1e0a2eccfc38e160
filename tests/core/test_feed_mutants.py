"""The oracle of `feedworld` can fail: every plausible mistake in the feed is caught by a few of its schedules."""

from __future__ import annotations

import random

import pytest

from tests.core.schedules import describe, failure, minimal, random_schedule
from tidings.log.page import Page
from tidings.log.position import Position
from tidings.log.record import DurableRecord
from tidings_gateway.core.feed import Effect, Effects, Feed, Opened, Send, State, Synced
from tidings_gateway.core.outbox import Budget

SCHEDULES = 4_000
"""At most this many are tried. Most mistakes show within a few dozen."""


class OverflowForgetsThatItForgot(Feed):
    """Catch-up ends although records above the page were heard and thrown away."""

    __slots__ = ()

    def _hold(self, record: DurableRecord) -> None:
        super()._hold(record)
        if self.state is State.OUTDATED:
            self.state = State.READING


class HoldsNothing(Feed):
    __slots__ = ()

    def _hold(self, record: DurableRecord) -> None:
        pass


class PageOfAnEarlierLinkIsTheLast(Feed):
    """No check of the generation: a page asked for before the link was lost ends catch-up after it is back."""

    __slots__ = ()

    def link_back(self, generation: int, *, room: bool) -> Effects:
        effects = super().link_back(generation, room=room)
        if self.state is State.OUTDATED:
            self.state = State.READING
        return effects


class LinkLossUnnoticed(Feed):
    __slots__ = ()

    def link_lost(self) -> Effects:
        return () if self.live else super().link_lost()


class LiveAgainWithTheLink(Feed):
    """Reconnected, and nothing read: what was published in between is gone."""

    __slots__ = ()

    def link_back(self, generation: int, *, room: bool) -> Effects:
        if self.synced and self.state is State.DEAF:
            self.state = State.LIVE
            return ()
        return super().link_back(generation, room=room)


class BreakInTheHeldIgnored(Feed):
    __slots__ = ()

    def _drain(self, events: int, size: int, effects: list[Effect]) -> bool:
        super()._drain(events, size, effects)
        return True


class HeldSentUnchecked(Feed):
    """Replay and live glued together, as is often done."""

    __slots__ = ()

    def _drain(self, events: int, size: int, effects: list[Effect]) -> bool:
        for record in self._held or ():
            self._send(record, effects)
        return True


class BudgetIgnored(Feed):
    __slots__ = ()

    def _drain(self, events: int, size: int, effects: list[Effect]) -> bool:
        return super()._drain(1_000, 1_000_000, effects)


class AnyPageIsTheLast(Feed):
    __slots__ = ()

    def page(self, page: Page, read_id: int, *, budget: Budget) -> Effects:
        whole = Page(page.start, page.end, page.entries, page.reason, page.missed)
        return super().page(whole, read_id, budget=budget)


class LiveAfterResync(Feed):
    """ "Resync means refetch, so the rest does not matter"."""

    __slots__ = ()

    def page(self, page: Page, read_id: int, *, budget: Budget) -> Effects:
        effects = list(super().page(page, read_id, budget=budget))
        if page.reason is not None and self.state is State.DUE:
            self._go_live(effects)
        return effects


class ResyncSwallowed(Feed):
    __slots__ = ()

    def page(self, page: Page, read_id: int, *, budget: Budget) -> Effects:
        return super().page(Page(page.start, page.top, page.entries), read_id, budget=budget)


class NeverForgets(Feed):
    """Held records of an earlier epoch stay and keep catch-up from ending."""

    __slots__ = ()

    def _forget(self) -> None:
        pass


class AnswersToGivenUpReadsCount(Feed):
    __slots__ = ()

    def _awaits(self, read_id: int) -> bool:
        return True


class ComparesSeqOnly(Feed):
    """No tag: a fork after a failover looks like the same log."""

    __slots__ = ()

    def accept(self, record: DurableRecord) -> bool:
        if self.live and b"." in record.position[:17] and record.position.isascii() and record.position != b"nonsense":
            mine, theirs = Position.parse(self.position), Position.parse(record.position)
            if mine.seq + 1 == theirs.seq:
                self.position = record.position
                return True
        return False


class GapIgnored(Feed):
    __slots__ = ()

    def record(self, record: DurableRecord, *, room: bool) -> Effects:
        if self.live and record.before != self.position:
            return ()
        return super().record(record, room=room)


class OverflowDropsTheRecord(Feed):
    __slots__ = ()

    def overflowed(self, record: DurableRecord) -> Effects:
        return ()


class FullOutboxIsIgnored(Feed):
    __slots__ = ()

    def record(self, record: DurableRecord, *, room: bool) -> Effects:
        return super().record(record, room=True)


class SyncedWithEveryCatchUp(Feed):
    __slots__ = ()

    def _go_live(self, effects: list[Effect]) -> None:
        super()._go_live(effects)
        effects.append(Synced(self.position, self.replayed))


class ReplayForEver(Feed):
    __slots__ = ()

    def page(self, page: Page, read_id: int, *, budget: Budget) -> Effects:
        effects = super().page(page, read_id, budget=budget)
        return [Send(effect.record, True) if isinstance(effect, Send) else effect for effect in effects]


class AlwaysResumed(Feed):
    __slots__ = ()

    def _open_or_resync(self, page: Page, effects: list[Effect]) -> None:
        super()._open_or_resync(page, effects)
        if effects and isinstance(effects[0], Opened):
            effects[0] = Opened(True, page.start)


class ReadsWithoutRoom(Feed):
    __slots__ = ()

    def page(self, page: Page, read_id: int, *, budget: Budget) -> Effects:
        return [*super().page(page, read_id, budget=budget), *self.has_room()]


class ReadsWithoutLink(Feed):
    __slots__ = ()

    def link_lost(self) -> Effects:
        super().link_lost()
        if self.state is State.DEAF:
            self.state = State.DUE
        return ()


class NeverRetries(Feed):
    __slots__ = ()

    def retry(self, room: bool) -> Effects:
        return ()


class FailedReadForgotten(Feed):
    __slots__ = ()

    def read_failed(self, read_id: int) -> Effects:
        return ()


class ReadsWithoutEnd(Feed):
    __slots__ = ()

    def _go_on(self, effects: list[Effect], *, progress: bool, at_once: bool = True) -> None:
        super()._go_on(effects, progress=True, at_once=at_once)


MISTAKES = Feed.__subclasses__()


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_the_schedules_catch(mistake: type[Feed]) -> None:
    """The schedules find the mistake, and what is left after cutting the schedule down still shows it."""
    rng = random.Random(mistake.__name__)
    for _ in range(SCHEDULES):
        schedule = random_schedule(rng)
        if failure(schedule, mistake) is not None:
            small = minimal(schedule, mistake)
            assert failure(small, mistake) is not None
            assert failure(small) is None, f"the feed itself fails\n{describe(small)}"
            return
    pytest.fail(f"{SCHEDULES} schedules do not notice it")
