"""The route through a Cluster: each user's keys and channel share a slot, and a slot map says who serves it.

The map is asked of any node, and anew whenever one says MOVED, says that the cluster is down, or does not answer. After
MOVED the node it names is asked first: it knows, when others may not have heard of it yet.
"""

from __future__ import annotations

from tidings.log.names import slot_of
from tidings.publishing.faults import ServerError, fault_of
from tidings.publishing.plan import Outcome, Refusal
from tidings.publishing.routes import Question, Server
from tidings.publishing.slots import SlotMap, parse_slots
from tidings.redis_url import RedisUrl

_NO_CLUSTER = "cluster support disabled"


class ClusterRoute:
    sharded = True

    def __init__(self, url: RedisUrl) -> None:
        self._seeds = tuple(Server(address) for address in url.addresses)
        self._ask = self._seeds
        """Who is asked for the map, in this order."""
        self._map: SlotMap | None = None
        self._doubted = True
        self.known: frozenset[Server] = frozenset(self._seeds)

    def question(self) -> Question | None:
        if not self._doubted:
            return None
        return Question(self._ask[0], ("CLUSTER", "SLOTS"))

    def learn(self, question: Question, outcome: Outcome) -> Refusal | None:
        asked = question.server
        if outcome.failure is not None:
            why = f"the node {asked.address} does not answer: {outcome.failure.why}"
        else:
            answer = outcome.answers[0]
            if isinstance(answer, ServerError) and _NO_CLUSTER in answer.text:
                why = f"{asked.address} is not part of a Redis Cluster; a single server has a redis:// URL"
                return Refusal(why, "cluster")
            try:
                found = parse_slots(answer, asked.address)
                why = "" if found.ranges else f"the node {asked.address} knows of nobody who serves a slot"
            except ValueError:
                words = fault_of(answer).words if isinstance(answer, ServerError) else "that is no answer"
                why = f"the node {asked.address} did not say who serves which slot: {words}"
            if not why:
                self._take(found, asked)
                return None
        self._prefer_others(asked)
        return Refusal(why, "unavailable", again=True, at_once=len(self._ask) > 1, retryable=True)

    def _take(self, found: SlotMap, asked: Server) -> None:
        nodes = tuple(Server(address) for address in found.nodes)
        self._map, self._doubted = found, False
        self.known = frozenset((*nodes, *self._seeds))
        self._ask = tuple(dict.fromkeys((asked, *nodes, *self._seeds)))

    def server(self, user: str) -> Server | None:
        if self._map is None:
            return None
        address = self._map.owner(slot_of(user))
        # Nobody, as far as is known: any node knows better, or says that the cluster is down.
        return self._ask[0] if address is None else Server(address)

    def doubt(self, server: Server | None) -> None:
        self._doubted = True
        if server is not None:
            self._prefer_others(server)

    def _prefer_others(self, server: Server) -> None:
        if server in self._ask:
            self._ask = (*(other for other in self._ask if other != server), server)

    def moved(self, server: Server) -> None:
        self._doubted = True
        self._ask = tuple(dict.fromkeys((server, *self._ask)))
