"""The subscribed connection: pace, confirmations matched to commands, and what a fault costs."""

from __future__ import annotations

import itertools
from functools import partial

import hiredis
import pytest

from tests.bus.support import Listener, turn
from tests.bus.test_resp import Clock, connection, transport
from tests.bus.test_scripts import sent
from tidings_gateway.bus.channels import Channels
from tidings_gateway.bus.resp import RespConnection
from tidings_gateway.bus.subscriber import Subscriber

CANARY = b"t:gw:x:{0}"


class Room:
    """A subscriber on a fake connection, past its canary."""

    def __init__(self, listener: Listener | None = None, *, batch: int = 512) -> None:
        self.clock = Clock()
        self.conn: RespConnection = connection(clock=self.clock)
        self.channels = Channels(linger_ms=0, batch=batch)
        self.listener = listener or Listener()
        self.canaries: list[bytes] = []
        self.refused: list[hiredis.ReplyError] = []
        self.canary_on = 0
        self.subscriber = Subscriber(
            self.conn,
            self.channels,
            self.listener,
            next_generation=partial(next, itertools.count(2)),
            canary=CANARY,
            on_canary_on=self._canary_on,
            on_canary=self.canaries.append,
            on_refused=self.refused.append,
            clock_ms=self.clock,
        )
        self.subscriber.open()
        self.confirm(b"subscribe", CANARY)
        self.subscriber.follow_table(1)

    def _canary_on(self) -> None:
        self.canary_on += 1

    def want(self, *channels: bytes) -> None:
        for channel in channels:
            self.channels.want(channel)
        self.subscriber.speak_soon()

    def confirm(self, kind: bytes, *channels: bytes) -> None:
        for channel in channels:
            self.say(b"*3\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n:1\r\n" % (len(kind), kind, len(channel), channel))

    def publish(self, channel: bytes, payload: bytes) -> None:
        self.say(b"*3\r\n$7\r\nmessage\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(channel), channel, len(payload), payload))

    def say(self, data: bytes) -> None:
        self.conn.data_received(data)

    def commands(self) -> list[list[bytes]]:
        return sent(self.conn)[1:]


async def test_one_batch_in_each_turn_of_the_loop() -> None:
    """Subscribing many channels lets everybody else on the event loop go on."""
    room = Room(batch=2)
    room.want(b"a", b"b", b"c", b"d", b"e")
    counts = []
    for _ in range(4):
        await turn()
        counts.append(len(room.commands()))
    assert counts == [1, 2, 3, 3]
    assert room.commands() == [[b"SUBSCRIBE", b"a", b"b"], [b"SUBSCRIBE", b"c", b"d"], [b"SUBSCRIBE", b"e"]]


async def test_the_canary_is_the_links_own() -> None:
    """Its confirmation and its messages never reach the listener."""
    room = Room()
    room.publish(CANARY, b"token.1")
    assert (room.canary_on, room.canaries) == (1, [b"token.1"])
    assert room.listener.records == []
    assert room.listener.on == {}


async def test_confirmations_and_records_reach_the_listener() -> None:
    """In the order Redis said them."""
    room = Room()
    room.want(b"a", b"b")
    await turn()
    room.confirm(b"subscribe", b"a")
    room.publish(b"a", b"x\n1")
    room.confirm(b"subscribe", b"b")
    assert room.listener.on == {b"a": 1, b"b": 1}
    assert room.listener.records == [(b"a", b"x\n1")]


async def test_age_of_the_oldest_unconfirmed_command() -> None:
    """A SUBSCRIBE counts as answered when its last channel was confirmed."""
    room = Room()
    room.clock.ms = 7
    room.want(b"a", b"b")
    await turn()
    ages = [room.subscriber.oldest_sent_ms]
    for channel in (b"a", b"b"):
        room.confirm(b"subscribe", channel)
        ages.append(room.subscriber.oldest_sent_ms)
    assert ages == [7, 7, None]


@pytest.mark.parametrize(
    "nonsense",
    [
        b"*3\r\n$9\r\nsubscribe\r\n$1\r\nz\r\n:1\r\n",
        b"*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:1\r\n",
        b"*2\r\n$4\r\npong\r\n$0\r\n\r\n",
        b"+OK\r\n",
    ],
)
async def test_a_connection_out_of_step_is_given_up(nonsense: bytes) -> None:
    """A confirmation that was not asked for, or comes in another order, makes all of them doubtful."""
    room = Room()
    room.want(b"a", b"b")
    await turn()
    room.say(nonsense)
    assert room.conn.lost
    assert transport(room.conn).aborted
    assert room.listener.on == {}


async def test_a_refused_command_is_told() -> None:
    """An error in place of the confirmations goes to the link."""
    room = Room()
    room.want(b"a")
    await turn()
    room.say(b"-NOPERM this user has no permissions to access the 'a' channel\r\n")
    assert [str(error)[:6] for error in room.refused] == ["NOPERM"]


async def test_a_subscription_taken_away_comes_back_under_a_new_generation() -> None:
    """A page that was read before must not prove anything about the time without the subscription. Other channels are
    not touched."""
    room = Room()
    room.want(b"a", b"b")
    await turn()
    room.confirm(b"subscribe", b"a", b"b")
    room.confirm(b"unsubscribe", b"a")
    assert room.listener.off == [b"a"]
    assert room.channels.confirmed(b"a") is None
    await turn()
    assert room.commands()[-1] == [b"SUBSCRIBE", b"a"]
    room.confirm(b"subscribe", b"a")
    assert room.listener.on == {b"a": 2, b"b": 1}


async def test_a_record_that_cannot_be_handled_puts_its_own_channel_in_doubt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The readers of that channel are sent to the log, under a new generation; all others keep their link."""

    class Failing(Listener):
        def record_received(self, channel: bytes, payload: bytes) -> None:
            if payload == b"bad":
                raise KeyError("ours")
            super().record_received(channel, payload)

    room = Room(Failing())
    room.want(b"a", b"b")
    await turn()
    room.confirm(b"subscribe", b"a", b"b")
    room.publish(b"a", b"bad")
    room.publish(b"b", b"good")
    assert room.listener.off == [b"a"]
    assert room.listener.on == {b"a": 2, b"b": 1}
    assert room.channels.confirmed(b"a") == 2
    assert room.listener.records == [(b"b", b"good")]
    assert not room.conn.lost
    assert "could not be handled" in caplog.text


async def test_a_listener_that_fails_for_one_channel_costs_no_other_one(caplog: pytest.LogCaptureFixture) -> None:
    """The fault is logged; the link stays."""

    class Failing(Listener):
        def channel_on(self, channel: bytes, generation: int) -> None:
            if channel == b"a":
                raise KeyError("ours")
            super().channel_on(channel, generation)

    room = Room(Failing())
    room.want(b"a", b"b")
    await turn()
    room.confirm(b"subscribe", b"a", b"b")
    assert room.listener.on == {b"b": 1}
    assert not room.conn.lost
    assert "the listener failed" in caplog.text


async def test_a_newcomer_during_unsubscribing_is_subscribed_after_it() -> None:
    """On the wire: UNSUBSCRIBE, its confirmation, and only then SUBSCRIBE."""
    room = Room()
    room.want(b"a")
    await turn()
    room.confirm(b"subscribe", b"a")
    room.channels.unwant(b"a", 0)
    room.subscriber.speak_soon()
    await turn()
    room.want(b"a")
    await turn(3)
    assert room.commands() == [[b"SUBSCRIBE", b"a"], [b"UNSUBSCRIBE", b"a"]]
    room.confirm(b"unsubscribe", b"a")
    await turn()
    assert room.commands()[2:] == [[b"SUBSCRIBE", b"a"]]
    assert room.channels.confirmed(b"a") is None


async def test_a_full_socket_holds_the_commands() -> None:
    """They go out when the transport takes more, without anybody asking again."""
    room = Room()
    room.conn.pause_writing()
    room.want(b"a")
    await turn(2)
    assert room.commands() == []
    room.conn.resume_writing()
    await turn()
    assert room.commands() == [[b"SUBSCRIBE", b"a"]]
