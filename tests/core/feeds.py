"""Feeds and logs in a few words, for tests of one promise at a time."""

from __future__ import annotations

from tests.support.modellog import ModelLog, Truth
from tidings_gateway.core.feed import (
    Effects,
    Feed,
    ReadAfter,
)
from tidings_gateway.core.outbox import Budget

PLENTY = Budget(10_000, 100_000_000)


def new_feed(
    position: bytes | None = None, *, last: int = 0, invalid: bool = False, held: int = 100, held_bytes: int = 100_000
) -> Feed:
    return Feed(position, last=last, invalid=invalid, held_max_events=held, held_max_bytes=held_bytes)


def new_log(entries: int = 0) -> ModelLog:
    log = ModelLog(Truth())
    for index in range(entries):
        log.append(b"old %d" % index)
    return log


def issued(effects: Effects) -> ReadAfter:
    assert len(effects) == 1
    effect = effects[0]
    assert isinstance(effect, ReadAfter)
    return effect


def answer(feed: Feed, log: ModelLog, read: ReadAfter, *, limit: int = 100, budget: Budget = PLENTY) -> Effects:
    return feed.page(log.read_after(read.position, last=read.last, limit=limit), read.read_id, budget=budget)


def live_feed(log: ModelLog) -> Feed:
    feed = new_feed()
    answer(feed, log, issued(feed.link_back(1, room=True)))
    assert feed.live
    return feed


def catch_up(feed: Feed, log: ModelLog) -> list[object]:
    """Answer reads until the feed is live."""
    effects: list[object] = []
    for _ in range(100):
        if feed.live:
            return effects
        effects += answer(feed, log, issued(feed.has_room()))
    raise AssertionError("never live")
