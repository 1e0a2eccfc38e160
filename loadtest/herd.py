"""All pages of one process, and what they can be asked together."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from loadtest.browser import Browser
from loadtest.ledger import Ledger
from loadtest.options import Options
from loadtest.page import Page, Watcher
from tidings import mint_token

TOKEN_TTL_S = 86_400


def clock_ms() -> float:
    return time.monotonic() * 1000


class Herd:
    """`urls`: WebSocket addresses; each dial picks one. `position`: where a user's log stands (`Publisher.position`).
    `first`: the number of the first page."""

    def __init__(
        self,
        options: Options,
        urls: Sequence[str],
        secret: str,
        position: Callable[[str], str],
        watcher: Watcher,
        *,
        first: int = 0,
    ) -> None:
        self.options = options
        self.ledger = Ledger()
        self.browsers: list[Browser] = []
        self._urls = list(urls)
        self._secret = secret
        self._position = position
        self._watcher = watcher
        self._next = first
        self._tokens: dict[str, str] = {}

    def add(self) -> Browser:
        """One more page; the caller runs it."""
        options, number = self.options, self._next
        self._next += 1
        user = options.user_of(number)
        rng = random.Random(f"page {number} {options.seed}")
        browser = Browser(
            Page(user, self.ledger, self._watcher, clock_ms),
            lambda: rng.choice(self._urls),
            lambda refused: self._token(user, anew=refused),
            self._position,
            self._watcher,
            refetch_ms=options.refetch_ms,
            origin=options.origin or None,
            clock_ms=clock_ms,
            rng=rng,
        )
        self.browsers.append(browser)
        return browser

    def _token(self, user: str, *, anew: bool) -> str:
        # Kept: a signature per dial would be paid by this process in the middle of the storm.
        if anew or user not in self._tokens:
            self._tokens[user] = mint_token(user, ttl_s=TOKEN_TTL_S, secret=self._secret)
        return self._tokens[user]

    @property
    def users(self) -> list[str]:
        return sorted({browser.page.user for browser in self.browsers})

    @property
    def connected(self) -> int:
        return sum(browser.connected for browser in self.browsers)

    @property
    def live(self) -> int:
        return sum(browser.page.live for browser in self.browsers)

    def cut(self) -> int:
        """Reset every connection. Returns how many there were."""
        return sum(browser.cut() for browser in self.browsers)

    def settled(self) -> bool:
        """Nothing that was acknowledged is on its way any more."""
        return all(browser.page.live and not browser.page.missing() for browser in self.browsers)
