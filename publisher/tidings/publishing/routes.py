"""Which server a call is for. Sans-I/O: a route says what must be asked of whom, and learns from the answers.

A route belongs to a publisher: its plans and threads share what it has learned, and what one of them finds wrong is
asked anew by the next. It never retries or waits; the plan does.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from tidings.publishing.plan import Outcome, Refusal
from tidings.redis_url import Address

RedisCommand = tuple[bytes | str, ...]


class Server(NamedTuple):
    """`sentinel`: it is one, and is entered with the Sentinels' own credentials."""

    address: Address
    sentinel: bool = False


class Question(NamedTuple):
    """A command whose answer tells where calls are to be sent; and others, whose answers say more about it."""

    server: Server
    command: RedisCommand
    more: tuple[RedisCommand, ...] = ()


class Route(Protocol):
    @property
    def sharded(self) -> bool:
        """Whether channels live in slots, as keys do: SPUBLISH instead of PUBLISH."""

    @property
    def known(self) -> frozenset[Server] | None:
        """Connections to others are not kept. None: there is only one server."""

    def question(self) -> Question | None:
        """What must be asked before a call can be sent; None when it is known where to."""

    def learn(self, question: Question, outcome: Outcome) -> Refusal | None:
        """What came of it; the refusal is that of every call that waits for the answer."""

    def server(self, user: str) -> Server | None:
        """Where calls for this user go. None: to the one server there is, or that is not known yet."""

    def doubt(self, server: Server | None) -> None:
        """It does not answer, or not as the right one would: ask before anything is sent there again."""

    def moved(self, server: Server) -> None:
        """Slots have moved; this node, which got one, knows."""


class OneServer:
    """The one the URL names."""

    sharded = False
    known = None

    def question(self) -> Question | None:
        return None

    def learn(self, question: Question, outcome: Outcome) -> Refusal | None:  # noqa: ARG002 - nothing was asked
        raise AssertionError

    def server(self, user: str) -> Server | None:  # noqa: ARG002 - the same for all
        return None

    def doubt(self, server: Server | None) -> None:
        """The address may lead elsewhere by now; every new connection looks it up."""

    def moved(self, server: Server) -> None:
        """A node of a Cluster behind a URL for one server: `faults` has the words."""
