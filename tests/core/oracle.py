"""The judge of what a feed sends. It knows nothing of the feed's states: it looks at the effects and at the `Truth`.

- each entry sent is the one that truly follows the one before, or the position of the last Opened or Resync: no hole,
  no repeat, nothing that was never stored;
- a Resync comes where the log could not prove continuity, always and only then;
- Synced comes once, `replay` marks what was sent before it, and its count agrees;
- a read asks for what follows the last entry sent.
"""

from __future__ import annotations

from tests.support.modellog import Truth
from tidings.log.page import Page, ResyncReason
from tidings_gateway.core.feed import Effects, Opened, ReadAfter, Resync, Send, Synced


class Oracle:
    def __init__(self, truth: Truth, asked: bytes | None, *, last: int, invalid: bool) -> None:
        self.truth = truth
        self.asked = asked
        self.last = last
        self.invalid = invalid
        self.cursor: bytes | None = None
        """Where the client is; None until Opened."""
        self.sent = 0
        self.replayed = 0
        self.synced = False

    def judge(self, effects: Effects, page: Page | None = None) -> None:
        """`page`: what the feed was just given as the answer to the read in flight, if it was."""
        due = None
        if page is not None:
            due = ResyncReason.INVALID if self.invalid and self.cursor is None else page.reason
        reasons: list[ResyncReason] = []
        for effect in effects:
            if isinstance(effect, Send):
                self._sent(effect)
            elif isinstance(effect, ReadAfter):
                self._read(effect)
            elif isinstance(effect, Opened):
                assert page is not None
                self._opened(effect, page)
            elif isinstance(effect, Resync):
                assert page is not None, "resync without a page"
                assert (effect.position, effect.missed) == (page.top, page.missed)
                self.cursor = effect.position
                reasons.append(effect.reason)
            elif isinstance(effect, Synced):
                assert not self.synced, "synced twice"
                assert (effect.position, effect.replayed) == (self.cursor, self.replayed)
                self.synced = True
        assert reasons == ([] if due is None else [due]), "a resync too many or too few"

    def _opened(self, effect: Opened, page: Page) -> None:
        assert self.cursor is None, "opened twice"
        provable = self.asked is not None and page.reason is None
        assert effect.resumed == provable
        assert effect.position == (self.asked if provable else page.start)
        self.cursor = effect.position

    def _sent(self, effect: Send) -> None:
        true = self.truth.entries.get(effect.record.position)
        assert true is not None, "never stored"
        assert true == effect.record
        assert true.before == self.cursor, "a hole or a repeat"
        assert effect.replay != self.synced
        self.cursor = true.position
        self.sent += 1
        self.replayed += effect.replay

    def _read(self, effect: ReadAfter) -> None:
        opened = self.cursor is not None
        assert effect.position == (self.cursor if opened else self.asked), "a read from elsewhere"
        assert effect.last == (0 if opened else self.last)
