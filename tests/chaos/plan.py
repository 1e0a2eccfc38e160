"""What a chaos run does, all of it following from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

RestartKind = Literal["SIGTERM", "kill -9"]


@dataclass(frozen=True, slots=True)
class Restart:
    at_s: float
    gateway: int
    kind: RestartKind


@dataclass(frozen=True, slots=True)
class Plan:
    """`clients` are spread over fewer users, so that some users have two. `rate`: events per second, all users."""

    seconds: float = 60
    clients: int = 200
    rate: float = 500
    gateways: int = 2
    publishers: int = 16
    cut_every_s: tuple[float, float] = (1.0, 5.0)
    seed: int = 1
    quiet_s: float = 30
    """How long after the last event everything may take to arrive."""
    recovery_s: float = 10
    """The longest a client may be without a synced connection, beyond the time when no gateway was there at all."""

    def users(self) -> list[str]:
        """The user of each client. Every fifth client shares its user with the one before."""
        return [f"user-{number - 1 if number % 5 == 4 else number}" for number in range(self.clients)]

    def restarts(self) -> list[Restart]:
        """Each gateway is restarted twice: one way in the first half of the run, the other way in the second."""
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
