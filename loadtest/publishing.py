"""The workers of a load test: publish at a rate, and write down what came of each event."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import gevent

from loadtest.ledger import Ledger
from loadtest.page import Watcher
from tidings import Publisher
from tidings.errors import PublishError

WORKERS = 16
"""One that waits for an answer does not hold the others up. At a few ms an answer, good for thousands of events/s."""


class Workers:
    """`rate` events a second, evenly, to one user after another in an order of their own."""

    def __init__(
        self,
        publisher: Publisher,
        users: Sequence[str],
        rate: float,
        ledger: Ledger,
        watcher: Watcher,
        *,
        clock_ms: Callable[[], float],
        rng: random.Random,
    ) -> None:
        self.behind_ms = 0.0
        """How far the slowest publish was behind its moment, at most."""
        self._publisher = publisher
        self._users = list(users)
        self._step_ms = 1000 / rate
        self._ledger = ledger
        self._watcher = watcher
        self._clock_ms = clock_ms
        self._rng = rng
        self._rng.shuffle(self._users)
        self._sent = 0
        self._stopping = False

    def run(self) -> None:
        """Until `stop`."""
        begin_ms = self._clock_ms()
        gevent.joinall([gevent.spawn(self._work, begin_ms) for _ in range(WORKERS)], raise_error=True)

    def stop(self) -> None:
        self._stopping = True

    def _work(self, begin_ms: float) -> None:
        while not self._stopping:
            number, self._sent = self._sent, self._sent + 1
            left_ms = begin_ms + number * self._step_ms - self._clock_ms()
            if left_ms > 0:
                gevent.sleep(left_ms / 1000)
            self.behind_ms = max(self.behind_ms, -left_ms)
            if not self._stopping:
                self._publish(self._users[number % len(self._users)])

    def _publish(self, user: str) -> None:
        entry = self._ledger.attempt(user, self._clock_ms())
        why = None
        try:
            receipt = self._publisher.publish(
                user, "load.event", {"run": self._ledger.run, "user": user, "key": entry.key}
            )
            entry.position = receipt.position
        except PublishError as error:
            why = str(error)
            self._ledger.fail(entry, why, unknown=error.outcome_unknown)
        self._watcher.happened("publish", "acknowledged", self._clock_ms() - entry.sent_ms, why)
