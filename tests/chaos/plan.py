"""What a chaos run does, all of it following from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal, get_args

RestartKind = Literal["SIGTERM", "kill -9"]

StrikeKind = Literal["kill", "freeze", "pause", "pubsub-kill", "failover", "flush", "oom"]
STRIKE_KINDS: tuple[StrikeKind, ...] = get_args(StrikeKind)

LOSES_DATA: frozenset[StrikeKind] = frozenset({"flush", "failover"})
"""After these a page may be told to fetch its state. After the others it must not be: the server writes through."""


@dataclass(frozen=True, slots=True)
class Restart:
    at_s: float
    gateway: int
    kind: RestartKind


@dataclass(frozen=True, slots=True)
class Strike:
    """Against Redis, the gateways left alone. `calm_s`: what follows it, until the next one."""

    kind: StrikeKind
    lasts_s: float
    calm_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """`clients` are spread over fewer users, so that some users have two. `rate`: events per second, all users.
    With `redis`, it is Redis that is struck in these ways, and not the gateways."""

    seconds: float = 60
    clients: int = 200
    rate: float = 500
    gateways: int = 2
    publishers: int = 16
    cut_every_s: tuple[float, float] = (1.0, 5.0)
    redis: tuple[StrikeKind, ...] = ()
    strike_s: tuple[float, float] = (1.0, 6.0)
    """How long a strike lasts, if it does: on both sides of the time-outs of a link (2 s) and a canary (4 s)."""
    calm_s: float = 6.0
    """Between two strikes: longer than the 5 s within which everybody must have live events again."""
    seed: int = 1
    quiet_s: float = 30
    """How long after the last event everything may take to arrive."""
    recovery_s: float = 10
    """The longest a client may be without a synced connection, beyond the time when there was no gateway at all, or no
    Redis."""

    @property
    def resyncs_allowed(self) -> bool:
        return any(kind in LOSES_DATA for kind in self.redis)

    def strikes(self) -> list[Strike]:
        """Round after round, each kind once in each, in another order, as many as fit into the run (at least one)."""
        rng = random.Random(f"strikes {self.seed}")
        found: list[Strike] = []
        left_s = self.seconds
        while self.redis:
            for kind in rng.sample(self.redis, len(self.redis)):
                strike = Strike(kind, rng.uniform(*self.strike_s), self.calm_s)
                left_s -= strike.lasts_s + strike.calm_s
                if left_s < 0 and found:
                    return found
                found.append(strike)
        return found

    def users(self) -> list[str]:
        """The user of each client. Every fifth client shares its user with the one before."""
        return [f"user-{number - 1 if number % 5 == 4 else number}" for number in range(self.clients)]

    def restarts(self) -> list[Restart]:
        """Each gateway is restarted twice: one way in the first half of the run, the other way in the second."""
        if self.redis:
            return []
        rng = random.Random(f"restarts {self.seed}")
        found = []
        for gateway in range(self.gateways):
            kinds: list[RestartKind] = ["SIGTERM", "kill -9"]
            rng.shuffle(kinds)
            for kind, (low, high) in zip(kinds, ((0.08, 0.4), (0.5, 0.85)), strict=True):
                found.append(Restart(rng.uniform(low, high) * self.seconds, gateway, kind))
        return sorted(found, key=lambda restart: restart.at_s)

    def rng(self, name: str) -> random.Random:
        """A generator of its own for each actor, so that one actor's pace does not change another's choices."""
        return random.Random(f"{name} {self.seed}")
