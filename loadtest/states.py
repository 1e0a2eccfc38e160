"""The states of the client's machine, as `State` of `web/machine.js`, and its constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from loadtest.places import Places, parse

BASE_MS: Final = 500
CAP_MS: Final = 30_000
HEALTHY_MS: Final = 10_000
CONNECT_MS: Final = 10_000
TOKEN_MS: Final = 30_000
LOAD_MS: Final = 60_000
PROBE_MS: Final = 4_000
PROBE_AFTER_MS: Final = 2_000
HELD_MAX: Final = 4096
SILENCE_MS: Final = 30_000
SERVER_MS_MAX: Final = 3_600_000
CLOSE_SILENT: Final = 3008
CLOSE_RESTART: Final = 4000

Event = Mapping[str, Any]
Effect = dict[str, Any]
Effects = Sequence[Effect]
Name = Literal["idle", "authorizing", "connecting", "greeting", "replaying", "live", "waiting", "stopped"]
Phase = Literal["resync", "due", "running"]


@dataclass(frozen=True, slots=True)
class Load:
    """The page's fetch of its state. `at`: when it starts (due), or is given up (running)."""

    phase: Phase
    at: float = 0
    reason: str = ""
    missed: float | None = None
    id: int = 0


class Ending(NamedTuple):
    code: int
    reason: str


class Held(NamedTuple):
    log: str
    id: str
    event: Effect | None


@dataclass(frozen=True, slots=True)
class State:
    """As `State` of machine.js, member by member."""

    name: Name = "idle"
    dial: int = 0
    deadline: float | None = None
    attempt: int = 0
    refusals: int = 0
    silence_ms: float = SILENCE_MS
    welcomed_at: float | None = None
    known: bool = False
    sent: bool = False
    session: Mapping[str, str] | None = None
    goodbye: tuple[int, float | None] | None = None
    last: Ending | None = None
    position: Places | None = None
    reached: Places | None = None
    cursor: Places | None = None
    load: Load | None = None
    loads: int = 0
    load_failures: int = 0
    held: tuple[Held, ...] = ()

    @property
    def wake_at(self) -> float | None:
        """When `tick` is due; None: never."""
        if self.held and not self.loading:
            return float("-inf")
        times = [] if self.deadline is None else [self.deadline]
        if self.load is not None and self.load.phase != "resync":
            times.append(self.load.at)
        return min(times, default=None)

    @property
    def public_name(self) -> str:
        """As a page sees it: `live` only when nothing is missing."""
        return "loading" if self.name == "live" and self.load is not None else self.name

    @property
    def loading(self) -> bool:
        return self.load is not None and self.load.phase == "running"


Step = tuple[State, Effects]
Handler = Callable[[State, Event, float, float], Step]


def initial(position: object = None) -> State:
    """`position`: where the page stands; what is no position counts as none."""
    return State(position=parse(position))
