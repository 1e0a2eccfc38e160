"""The subscribed connection: says to Redis what the channel table wants said, and hands on what is published."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import hiredis

from tidings_gateway.bus.channels import ChannelCommand, Channels, Verb
from tidings_gateway.bus.resp import RespConnection, Unexpected, pack

log = logging.getLogger("tidings.bus")


class BusListener(Protocol):
    """Who hears what the bus hears. Called from the event loop; must not wait, and may call the bus."""

    def record_received(self, channel: bytes, payload: bytes) -> None: ...
    def channel_on(self, channel: bytes, generation: int) -> None:
        """The channel is subscribed, confirmed by Redis: from now on every record published on it is heard, until
        `channel_off` or `link_lost`. A later confirmation has another generation."""
        ...

    def channel_off(self, channel: bytes) -> None:
        """What was published on this one channel may have been missed. `channel_on` follows when that has an end."""
        ...

    def link_lost(self) -> None:
        """The same for all channels."""
        ...

    def last_active(self, channel: bytes) -> int:
        """Channels for which this is greater are subscribed before others, when all have to be."""
        ...


class Subscriber:
    """Commands leave one batch per turn of the event loop, so that subscribing 20,000 channels stalls nobody.

    `canary` is the link's own channel, outside the table. `next_generation` gives a greater number each time.
    `on_refused` is told the error when Redis refuses a command.
    """

    def __init__(
        self,
        connection: RespConnection,
        channels: Channels,
        listener: BusListener,
        *,
        next_generation: Callable[[], int],
        canary: bytes,
        on_canary_on: Callable[[], None],
        on_canary: Callable[[bytes], None],
        on_refused: Callable[[hiredis.ReplyError], None],
        clock_ms: Callable[[], float],
    ) -> None:
        self.generation = 0
        self._connection = connection
        self._channels = channels
        self._listener = listener
        self._next_generation = next_generation
        self._canary = canary
        self._on_canary_on = on_canary_on
        self._on_canary = on_canary
        self._on_refused = on_refused
        self._clock_ms = clock_ms
        self._outstanding: deque[Outstanding] = deque()
        """Commands not yet confirmed whole. Bounded: a channel is in at most one of them."""
        self._speaking = False
        self._following = False
        self._loop = asyncio.get_running_loop()
        connection.listen(self.received)
        connection.on_writable = self.speak_soon

    @property
    def oldest_sent_ms(self) -> float | None:
        return self._outstanding[0].sent_ms if self._outstanding else None

    def open(self) -> None:
        """Subscribe the canary's channel."""
        self._send(ChannelCommand(Verb.SUBSCRIBE, (self._canary,)))

    def follow_table(self, generation: int) -> None:
        """From here on, do what the table says. Channels are confirmed under `generation`."""
        self.generation = generation
        self._following = True
        self.speak_soon()

    def speak_soon(self) -> None:
        """The table changed, or time passed: say what there is to say, from the next turn of the event loop on."""
        if self._following and not self._speaking:
            self._speaking = True
            self._loop.call_soon(self._speak)

    def _speak(self) -> None:
        self._speaking = False
        if self._connection.lost or not self._connection.writable:
            return
        command = self._channels.next_command(self._clock_ms())
        if command is not None:
            self._send(command)
            self.speak_soon()

    def _send(self, command: ChannelCommand) -> None:
        self._outstanding.append(Outstanding(command, self._clock_ms()))
        self._connection.write(pack((command.verb.value, *command.channels)))

    # What Redis says.

    def received(self, reply: Any) -> None:
        if isinstance(reply, list):
            kind = reply[0]
            if kind == b"message":
                channel = reply[1]
                if channel == self._canary:
                    self._on_canary(reply[2])
                    return
                try:
                    self._listener.record_received(channel, reply[2])
                except Exception:
                    log.exception("a record on channel %r could not be handled", channel[:160])
                    self._doubt(channel)
                return
            if kind == b"subscribe":
                self._confirm(Verb.SUBSCRIBE, reply[1])
                return
            if kind == b"unsubscribe":
                self._confirm(Verb.UNSUBSCRIBE, reply[1])
                return
        elif isinstance(reply, hiredis.ReplyError):
            self._on_refused(reply)
            return
        raise Unexpected(reply)

    def _confirm(self, verb: Verb, channel: bytes) -> None:
        head = self._outstanding[0] if self._outstanding else None
        if head is not None and head.command.verb is verb and head.command.channels[head.confirmed] == channel:
            head.confirmed += 1
            if head.confirmed == len(head.command.channels):
                self._outstanding.popleft()
        elif verb is Verb.SUBSCRIBE:
            # Nothing this connection says about channels can be relied on any more.
            raise Unexpected([verb.value, channel])
        # An UNSUBSCRIBE nobody asked for: the table takes it for what it is, a lost channel.
        if channel == self._canary:
            self._on_canary_on()
            return
        if verb is Verb.SUBSCRIBE:
            if self._channels.subscribed(channel, self.generation):
                self._tell(self._listener.channel_on, channel, self.generation)
        elif self._channels.unsubscribed(channel):
            # What is confirmed from here on must not be taken for what held before: a page read meanwhile proves
            # nothing about the time in between.
            self.generation = self._next_generation()
            self._tell(self._listener.channel_off, channel)
            self.speak_soon()
        else:
            self.speak_soon()

    def _doubt(self, channel: bytes) -> None:
        """A record was lost on our side of the wire. Its readers find it in the log; the others are not touched."""
        if self._channels.confirmed(channel) is not None:
            self.generation = self._next_generation()
            self._channels.renew(channel, self.generation)
            self._tell(self._listener.channel_off, channel)
            self._tell(self._listener.channel_on, channel, self.generation)

    def _tell(self, what: Callable[..., None], *args: bytes | int) -> None:
        # One channel's listener that fails must not cost every other channel its link.
        try:
            what(*args)
        except Exception:
            log.exception("the listener failed for channel %r", args[0])


class Outstanding:
    """A command, and how many of its channels were confirmed."""

    __slots__ = ("command", "confirmed", "sent_ms")

    def __init__(self, command: ChannelCommand, sent_ms: float) -> None:
        self.command = command
        self.sent_ms = sent_ms
        self.confirmed = 0
