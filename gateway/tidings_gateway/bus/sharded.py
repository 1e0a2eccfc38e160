"""The subscribed connection to one node of a Cluster: its channels live in slots, and slots move.

Channels of one SSUBSCRIBE must share a slot, and thousands of users have thousands of slots; so what would be one
command elsewhere is many here, in one write. A node that no longer serves a slot says so in two ways: it takes the
subscriptions away (`sunsubscribe`, unasked), and it refuses new ones (MOVED). The channel table takes the first for a
lost channel, and subscribes it again; the second then says where the channel lives now.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import hiredis

from tidings_gateway.bus.channels import ChannelCommand, Verb
from tidings_gateway.bus.resp import Unexpected, pack
from tidings_gateway.bus.slots import slot_of_channel
from tidings_gateway.bus.subscriber import Outstanding, Subscriber

log = logging.getLogger("tidings.bus")

_WORDS = {Verb.SUBSCRIBE: b"SSUBSCRIBE", Verb.UNSUBSCRIBE: b"SUNSUBSCRIBE"}


class ShardedSubscriber(Subscriber):
    """`on_misplaced` is given channels of one slot that the node refuses, and its words; it returns whether somebody
    else takes care of them now. Otherwise, and when it is the canary's, the link is of no use."""

    def __init__(self, *args: Any, on_misplaced: Callable[[Sequence[bytes], str], bool], **others: Any) -> None:
        self._on_misplaced = on_misplaced
        super().__init__(*args, **others)

    def _send(self, command: ChannelCommand) -> None:
        groups: dict[int, list[bytes]] = {}
        for channel in command.channels:
            groups.setdefault(slot_of_channel(channel), []).append(channel)
        # In the order of the wire, which is the order of the confirmations.
        ordered = tuple(channel for group in groups.values() for channel in group)
        self._outstanding.append(Outstanding(command._replace(channels=ordered), self._clock_ms()))
        word = _WORDS[command.verb]
        self._connection.write(b"".join([pack((word, *group)) for group in groups.values()]))

    def received(self, reply: Any) -> None:
        if isinstance(reply, list):
            kind, channel, what = reply
            if kind == b"smessage":
                if channel == self._canary:
                    self._on_canary(what)
                else:
                    self._hand_on(channel, what)
                return
            if kind == b"ssubscribe":
                self._confirm(Verb.SUBSCRIBE, channel)
                return
            if kind == b"sunsubscribe":
                if channel == self._canary:
                    # Its slot is gone, and with it the proof that anything is heard here.
                    self._on_refused(hiredis.ReplyError("MOVED the canary's slot"))
                else:
                    self._confirm(Verb.UNSUBSCRIBE, channel)
                return
        elif isinstance(reply, hiredis.ReplyError):
            if not self._misplaced(str(reply)):
                self._on_refused(reply)
            return
        raise Unexpected(reply)

    def _hand_on(self, channel: bytes, payload: bytes) -> None:
        try:
            self._listener.record_received(channel, payload)
        except Exception:
            log.exception("a record on channel %r could not be handled", channel[:160])
            self._doubt(channel)

    def _misplaced(self, error: str) -> bool:
        """One command of a batch was refused: the one for the channel whose confirmation is due."""
        head = self._outstanding[0] if self._outstanding else None
        words = error.split(" ")
        moved_slot = int(words[1]) if words[0] == "MOVED" and len(words) > 2 and words[1].isdigit() else None
        slot = slot_of_channel(head.command.channels[head.confirmed]) if head is not None else None
        if moved_slot is not None and slot != moved_slot:
            # An SUNSUBSCRIBE that crossed the node's own `sunsubscribe`, which was taken for its confirmation.
            return True
        if head is None:
            return False
        group = []
        for channel in head.command.channels[head.confirmed :]:
            if slot_of_channel(channel) != slot:
                break
            group.append(channel)
        if self._canary in group:
            return False
        if head.command.verb is Verb.SUBSCRIBE and not self._on_misplaced(group, error):
            return False
        head.confirmed += len(group)
        if head.confirmed == len(head.command.channels):
            self._outstanding.popleft()
        if head.command.verb is Verb.UNSUBSCRIBE:
            for channel in group:
                self._channels.unsubscribed(channel)
        self.speak_soon()
        return True
