"""The subscribed connection to a node of a Cluster: what crosses no slot, and what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial

import hiredis

from tests.bus.support import Listener, turn
from tests.bus.test_resp import Clock, connection
from tests.bus.test_scripts import sent
from tidings_gateway.bus.channels import Channels, State
from tidings_gateway.bus.sharded import ShardedSubscriber
from tidings_gateway.bus.slots import slot_of_channel

CANARY = b"t:gw:x:{0}"
ANN, ANN2, BOB = b"t:{ann}", b"t2:{ann}", b"t:{bob}"
MOVED = f"-MOVED {slot_of_channel(ANN)} other:1\r\n".encode()


class Room:
    """A subscriber on a fake connection, past its canary; `takes` is what it is told of misplaced channels."""

    def __init__(self) -> None:
        self.conn = connection(clock=Clock())
        self.channels = Channels(linger_ms=0, batch=512)
        self.listener = Listener()
        self.canaries: list[bytes] = []
        self.refused: list[hiredis.ReplyError] = []
        self.misplaced: list[tuple[list[bytes], str]] = []
        self.takes = True
        self.subscriber = ShardedSubscriber(
            self.conn,
            self.channels,
            self.listener,
            next_generation=partial(next, itertools.count(2)),
            canary=CANARY,
            on_canary_on=lambda: None,
            on_canary=self.canaries.append,
            on_refused=self.refused.append,
            clock_ms=Clock(),
            on_misplaced=self._on_misplaced,
        )
        self.subscriber.open()
        self.say(b"ssubscribe", CANARY)
        self.subscriber.follow_table(1)

    def _on_misplaced(self, channels: Sequence[bytes], error: str) -> bool:
        self.misplaced.append((list(channels), error))
        if self.takes:
            for channel in channels:
                self.channels.forget(channel)
        return self.takes

    async def want(self, *channels: bytes) -> None:
        for channel in channels:
            self.channels.want(channel)
        self.subscriber.speak_soon()
        await turn()

    def say(self, kind: bytes, channel: bytes, what: bytes = b":1\r\n") -> None:
        self.conn.data_received(b"*3\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n%b" % (len(kind), kind, len(channel), channel, what))

    def commands(self) -> list[list[bytes]]:
        return sent(self.conn)[1:]


async def test_one_command_for_each_slot() -> None:
    """In one write; the confirmations are told apart."""
    room = Room()
    await room.want(ANN, BOB, ANN2)
    assert room.commands() == [[b"SSUBSCRIBE", ANN, ANN2], [b"SSUBSCRIBE", BOB]]
    for channel in (ANN, ANN2, BOB):
        room.say(b"ssubscribe", channel)
    assert set(room.listener.on) == {ANN, ANN2, BOB}
    assert room.subscriber.oldest_sent_ms is None


async def test_records_and_canaries_are_handed_on() -> None:
    """As sharded messages, each to whom it is for."""
    room = Room()
    await room.want(ANN)
    room.say(b"ssubscribe", ANN)
    room.say(b"smessage", ANN, b"$3\r\nx\n1\r\n")
    room.say(b"smessage", CANARY, b"$2\r\nme\r\n")
    assert room.listener.records == [(ANN, b"x\n1")]
    assert room.canaries == [b"me"]


async def test_a_slot_that_was_taken_away() -> None:
    """Told at once; asked for again, refused with the new owner's name; the others' confirmations still fit."""
    room = Room()
    await room.want(ANN)
    room.say(b"ssubscribe", ANN)
    room.say(b"sunsubscribe", ANN)
    assert room.listener.off == [ANN]
    await turn()
    assert room.commands()[-1] == [b"SSUBSCRIBE", ANN]
    await room.want(BOB)
    room.conn.data_received(MOVED)
    assert [channels for channels, _ in room.misplaced] == [[ANN]]
    assert "other:1" in room.misplaced[0][1]
    room.say(b"ssubscribe", BOB)
    assert set(room.listener.on) == {BOB}
    assert not room.refused


async def test_one_refusal_is_for_its_own_slot_only() -> None:
    """In the middle of a batch: the channels before and behind it are confirmed."""
    room = Room()
    await room.want(BOB, ANN, ANN2, b"t:{cat}")
    room.say(b"ssubscribe", BOB)
    room.conn.data_received(MOVED)
    room.say(b"ssubscribe", b"t:{cat}")
    assert [channels for channels, _ in room.misplaced] == [[ANN, ANN2]]
    assert set(room.listener.on) == {BOB, b"t:{cat}"}
    assert room.subscriber.oldest_sent_ms is None


async def test_an_unsubscribe_that_crossed_the_nodes_own() -> None:
    """The node's `sunsubscribe` is taken for the answer, and its refusal, which has no other addressee, for nothing."""
    room = Room()
    await room.want(ANN)
    room.say(b"ssubscribe", ANN)
    room.channels.unwant(ANN, 0)
    room.subscriber.speak_soon()
    await turn()
    assert room.commands()[-1] == [b"SUNSUBSCRIBE", ANN]
    room.say(b"sunsubscribe", ANN)
    await room.want(BOB)
    room.conn.data_received(MOVED)
    room.say(b"ssubscribe", BOB)
    assert set(room.listener.on) >= {BOB}
    assert not room.refused
    assert not room.misplaced


async def test_an_unsubscribe_that_is_refused() -> None:
    """Whoever does not serve the slot has no subscription either; who came back meanwhile is subscribed anew."""
    room = Room()
    await room.want(ANN)
    room.say(b"ssubscribe", ANN)
    room.channels.unwant(ANN, 0)
    room.subscriber.speak_soon()
    await turn()
    room.channels.want(ANN)
    room.conn.data_received(MOVED)
    assert room.channels.state(ANN) is State.WAITING
    await turn()
    assert room.commands()[-1] == [b"SSUBSCRIBE", ANN]


async def test_what_nobody_takes_care_of_ends_the_link() -> None:
    """A refusal for another reason, one of the canary, and a canary whose slot is gone."""
    room = Room()
    room.takes = False
    await room.want(ANN)
    room.conn.data_received(b"-NOPERM no\r\n")
    assert [str(error) for error in room.refused] == ["NOPERM no"]

    room = Room()
    room.say(b"sunsubscribe", CANARY)
    assert str(room.refused[0]).startswith("MOVED")

    room = Room()
    room.subscriber.open()
    room.conn.data_received(f"-MOVED {slot_of_channel(CANARY)} other:1\r\n".encode())
    assert str(room.refused[0]).startswith("MOVED")
    assert not room.misplaced
