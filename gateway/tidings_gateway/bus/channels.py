"""Which channels are subscribed, and what to say to Redis next. Pure: time is an argument, commands are return values.

A channel goes round this circle and has at most ONE command outstanding::

    absent ──want──▶ WAITING ──SUBSCRIBE sent──▶ SUBSCRIBING ──confirmed──▶ ON
      ▲                 ▲                                                   │
      │                 └───────────── still wanted ────────────┐           │ unwanted for `linger_ms`,
      └──────────────────── confirmed, not wanted ──────── UNSUBSCRIBING ◀──┘ UNSUBSCRIBE sent

A newcomer that meets UNSUBSCRIBING waits for that confirmation; only then its SUBSCRIBE goes out. With SUBSCRIBE,
UNSUBSCRIBE, SUBSCRIBE in flight together, the confirmation of the first would be taken for that of the last, and an
event published between the two would be lost with nothing to show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum, auto
from itertools import islice
from typing import NamedTuple


class State(Enum):
    WAITING = auto()
    SUBSCRIBING = auto()
    ON = auto()
    UNSUBSCRIBING = auto()


class Verb(Enum):
    SUBSCRIBE = b"SUBSCRIBE"
    UNSUBSCRIBE = b"UNSUBSCRIBE"


class ChannelCommand(NamedTuple):
    verb: Verb
    channels: tuple[bytes, ...]
    """At least one, at most a batch, none twice."""


class _Channel:
    __slots__ = ("generation", "state", "wanted")

    def __init__(self) -> None:
        self.state = State.WAITING
        self.wanted = True
        self.generation = 0


class Channels:
    """The table of one primary's channels. Whether a channel is wanted is said by `want` and `unwant`, which do not
    count: both may be repeated. `linger_ms`: how long an unwanted channel stays subscribed."""

    def __init__(self, *, linger_ms: float, batch: int) -> None:
        self._linger_ms = linger_ms
        self._batch = batch
        self._channels: dict[bytes, _Channel] = {}
        # Dicts as ordered sets. A channel is in at most one of the three, so they are bounded by the table.
        self._waiting: dict[bytes, None] = {}
        self._lingering: dict[bytes, float] = {}
        """Unwanted channels with the time their linger ends, soonest first."""
        self._leaving: dict[bytes, None] = {}
        """ON, unwanted, and their linger is over."""

    def __len__(self) -> int:
        return len(self._channels)

    def __iter__(self) -> Iterator[bytes]:
        """A copy: whoever is told of one may change the table."""
        return iter(list(self._channels))

    @property
    def on(self) -> int:
        """How many are confirmed. Walks the table."""
        return sum(1 for entry in self._channels.values() if entry.state is State.ON)

    def state(self, channel: bytes) -> State | None:
        """None: absent."""
        entry = self._channels.get(channel)
        return entry.state if entry is not None else None

    def confirmed(self, channel: bytes) -> int | None:
        """The generation under which the channel's subscription was confirmed, if it is in force."""
        entry = self._channels.get(channel)
        return entry.generation if entry is not None and entry.state is State.ON else None

    # What the owner wants.

    def want(self, channel: bytes) -> None:
        entry = self._channels.get(channel)
        if entry is None:
            self._channels[channel] = _Channel()
            self._waiting[channel] = None
        elif not entry.wanted:
            entry.wanted = True
            self._lingering.pop(channel, None)
            self._leaving.pop(channel, None)

    def unwant(self, channel: bytes, now_ms: float) -> None:
        entry = self._channels.get(channel)
        if entry is None or not entry.wanted:
            return
        entry.wanted = False
        if entry.state is State.WAITING:
            del self._waiting[channel]
            del self._channels[channel]
        elif entry.state is not State.UNSUBSCRIBING:
            self._lingering[channel] = now_ms + self._linger_ms

    # What to say to Redis.

    def next_command(self, now_ms: float) -> ChannelCommand | None:
        """The next command, which the caller now sends; None when there is nothing to say. Newcomers go first."""
        self._end_lingering(now_ms)
        if self._waiting:
            return ChannelCommand(Verb.SUBSCRIBE, self._take(self._waiting, State.SUBSCRIBING))
        if self._leaving:
            return ChannelCommand(Verb.UNSUBSCRIBE, self._take(self._leaving, State.UNSUBSCRIBING))
        return None

    def due(self, now_ms: float) -> bool:
        """Whether `next_command` would give one."""
        return bool(
            self._waiting or self._leaving or (self._lingering and next(iter(self._lingering.values())) <= now_ms)
        )

    def _end_lingering(self, now_ms: float) -> None:
        while self._lingering:
            channel, due_ms = next(iter(self._lingering.items()))
            if due_ms > now_ms:
                return
            del self._lingering[channel]
            if self._channels[channel].state is State.ON:
                self._leaving[channel] = None
            # SUBSCRIBING: its confirmation finds it unwanted and not lingering.

    def _take(self, queue: dict[bytes, None], state: State) -> tuple[bytes, ...]:
        taken = tuple(islice(queue, self._batch))
        for channel in taken:
            del queue[channel]
            self._channels[channel].state = state
        return taken

    # What Redis says.

    def subscribed(self, channel: bytes, generation: int) -> bool:
        """A SUBSCRIBE was confirmed. Returns whether somebody wants the channel and is to be told."""
        entry = self._channels.get(channel)
        if entry is None or entry.state is not State.SUBSCRIBING:
            return False
        entry.state = State.ON
        entry.generation = generation
        if not entry.wanted and channel not in self._lingering:
            self._leaving[channel] = None
        return entry.wanted

    def unsubscribed(self, channel: bytes) -> bool:
        """An UNSUBSCRIBE was confirmed, or Redis took the subscription away by itself (a cluster slot moved).

        Returns whether a subscription that somebody relies on is gone; the channel will be subscribed again, and what
        was published until then was not heard.
        """
        entry = self._channels.get(channel)
        if entry is None or entry.state in (State.WAITING, State.SUBSCRIBING):
            return False
        relied_on = entry.wanted and entry.state is State.ON
        self._lingering.pop(channel, None)
        self._leaving.pop(channel, None)
        if entry.wanted:
            entry.state = State.WAITING
            self._waiting[channel] = None
        else:
            del self._channels[channel]
        return relied_on

    def forget(self, channel: bytes) -> bool:
        """The channel is somebody else's now (its cluster slot moved). What is still said of it here means nothing.

        Returns whether a subscription that somebody relies on is gone.
        """
        entry = self._channels.pop(channel, None)
        self._waiting.pop(channel, None)
        self._lingering.pop(channel, None)
        self._leaving.pop(channel, None)
        return entry is not None and entry.wanted and entry.state is State.ON

    def renew(self, channel: bytes, generation: int) -> None:
        """The subscription stands, but what it brought was lost on our side: readers must read the log again."""
        entry = self._channels.get(channel)
        if entry is not None and entry.state is State.ON:
            entry.generation = generation

    def reset(self, last_active: Callable[[bytes], float]) -> None:
        """The link is gone and all confirmations with it: whatever is wanted is subscribed anew, from the start, and
        what was active last comes first."""
        wanted = [channel for channel, entry in self._channels.items() if entry.wanted]
        wanted.sort(key=last_active, reverse=True)
        self._channels = {channel: self._channels[channel] for channel in wanted}
        for entry in self._channels.values():
            entry.state = State.WAITING
        self._waiting = dict.fromkeys(self._channels)
        self._lingering.clear()
        self._leaving.clear()
