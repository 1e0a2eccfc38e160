"""The route to whichever server the Sentinels call primary.

Any Sentinel that answers is believed, but not for long: whatever goes wrong with the server it named, the question is
asked anew, of another Sentinel first. A Sentinel may lag, so its answer is no proof. The proof is in every exchange: a
replica refuses an append as READONLY, and what a replica would take (an ephemeral event, a question for a position) is
sent together with ROLE.
"""

from __future__ import annotations

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
        self.known: frozenset[Server] = frozenset(self._sentinels)

    def question(self) -> Question | None:
        if not self._doubted:
            return None
        return Question(self._sentinels[0], ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service))

    def learn(self, question: Question, outcome: Outcome) -> Refusal | None:
        if outcome.failure is None:
            answer = outcome.answers[0]
            address = _address(answer)
            if address is not None:
                self._primary, self._doubted = Server(address), False
                self.known = frozenset((*self._sentinels, self._primary))
                return None
            why = self._why(question, answer)
        else:
            why = f"the Sentinel {question.server.address} does not answer: {outcome.failure.why}"
        self._prefer_others(question.server)
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


def _address(answer: Any) -> Address | None:
    try:
        host, port = answer
        return Address(host.decode("ascii"), int(port))
    except (TypeError, ValueError, AttributeError):
        return None
