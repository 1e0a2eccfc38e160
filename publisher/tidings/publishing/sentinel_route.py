"""The route to whichever server the Sentinels call primary.

One after the other is asked, until a majority has answered or nobody is left. One alone may have been cut off together
with an old primary, which lives, takes what is published, and will forget it. Sentinels number their decisions: the
newest is believed, and one older than what was known before only of a majority. Whatever goes wrong with the server
found, they are asked anew. Sentinels may lag, so what they say is no proof. The proof is in every exchange: a replica
refuses an append as READONLY, and what a replica would take (an ephemeral event, a question for a position) is sent
together with ROLE.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidings.publishing.faults import ServerError, fault_of
from tidings.publishing.plan import Outcome, Refusal
from tidings.publishing.routes import Question, Server
from tidings.redis_url import Address, RedisUrl


class SentinelRoute:
    sharded = False

    def __init__(self, url: RedisUrl) -> None:
        assert url.service is not None
        self._service = url.service
        self._sentinels = tuple(Server(address, sentinel=True) for address in url.addresses)
        self._primary: Server | None = None
        self._doubted = True
        self._majority = len(self._sentinels) // 2 + 1
        self._epoch = 0
        """The newest decision known."""
        self._heard: dict[Server, tuple[int, Address]] = {}
        self._failed: set[Server] = set()
        """Who has been asked, since there was doubt."""
        self.known: frozenset[Server] = frozenset(self._sentinels)

    def question(self) -> Question | None:
        if not self._doubted:
            return None
        # During a failover only the first of them names the promoted server already.
        more = (("SENTINEL", "MASTER", self._service),)
        return Question(self._next(), ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service), more)

    def _next(self) -> Server:
        left = (
            sentinel for sentinel in self._sentinels if sentinel not in self._heard and sentinel not in self._failed
        )
        return next(left, self._sentinels[0])

    def learn(self, question: Question, outcome: Outcome) -> Refusal | None:
        if not self._doubted:
            return None  # another plan has learned it meanwhile
        why = ""
        if outcome.failure is None:
            answer = outcome.answers[0]
            address = _address(answer)
            if address is not None:
                self._heard[question.server] = (_epoch(outcome.answers[1:]), address)
            else:
                why = self._why(question, answer)
        else:
            why = f"the Sentinel {question.server.address} does not answer: {outcome.failure.why}"
        if why:
            self._failed.add(question.server)
            self._prefer_others(question.server)
        heard = list(self._heard.values())
        asked = len(heard) + len(self._failed) >= len(self._sentinels)
        if len(heard) < self._majority and not asked:
            return self._refusal(why) if why else None
        self._heard, self._failed = {}, set()
        if not heard:
            return self._refusal(why)
        epoch, address = max(heard, key=lambda sighting: sighting[0])
        if epoch < self._epoch and len(heard) < self._majority:
            return self._refusal(f"too few Sentinels answer, and what they say of {self._service} is outdated")
        self._epoch, self._primary, self._doubted = epoch, Server(address), False
        self.known = frozenset((*self._sentinels, self._primary))
        return None

    def _refusal(self, why: str) -> Refusal:
        return Refusal(why, "unavailable", again=True, at_once=len(self._sentinels) > 1, retryable=True)

    def _why(self, question: Question, answer: Any) -> str:
        where = question.server.address
        if answer is None:
            return f"the Sentinel {where} knows no service called {self._service}"
        if isinstance(answer, ServerError):
            return f"the Sentinel {where} refused to say who is primary (sentinel_password?): {fault_of(answer).words}"
        return f"{where} is no Sentinel"

    def server(self, user: str) -> Server | None:  # noqa: ARG002 - the same for all
        return self._primary

    def doubt(self, server: Server | None) -> None:
        if server == self._primary and not self._doubted:
            self._doubted = True
            self._prefer_others(self._sentinels[0])

    def _prefer_others(self, sentinel: Server) -> None:
        self._sentinels = (*(other for other in self._sentinels if other != sentinel), sentinel)

    def moved(self, server: Server) -> None:
        """A node of a Cluster behind Sentinels does not exist; `faults` has the words."""


def _epoch(answers: Sequence[Any]) -> int:
    """0 of a Sentinel whose user may not ask: then the first that was heard counts."""
    try:
        return int(dict(zip(answers[0][::2], answers[0][1::2], strict=False))[b"config-epoch"])
    except (TypeError, ValueError, LookupError):
        return 0


def _address(answer: Any) -> Address | None:
    try:
        host, port = answer
        return Address(host.decode("ascii"), int(port))
    except (TypeError, ValueError, AttributeError):
        return None
