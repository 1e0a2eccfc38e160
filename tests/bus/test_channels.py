"""The channel table against a server that confirms late."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidings_gateway.bus.channels import ChannelCommand, Channels, State, Verb

LINGER_MS = 100


def table(batch: int = 512, linger_ms: float = LINGER_MS) -> Channels:
    return Channels(linger_ms=linger_ms, batch=batch)


def on(channels: Channels, *names: bytes) -> None:
    for name in names:
        channels.want(name)
    while channels.next_command(0) is not None:
        pass
    for name in names:
        assert channels.subscribed(name, 1)


def test_a_wanted_channel_is_subscribed_once_and_then_confirmed() -> None:
    """However often it is wanted, one SUBSCRIBE goes out; it is confirmed only by Redis' answer."""
    channels = table()
    channels.want(b"a")
    channels.want(b"a")
    assert channels.next_command(0) == ChannelCommand(Verb.SUBSCRIBE, (b"a",))
    channels.want(b"a")
    assert channels.next_command(0) is None
    assert channels.confirmed(b"a") is None
    assert channels.subscribed(b"a", 7)
    assert channels.confirmed(b"a") == 7


def test_commands_come_in_batches() -> None:
    """No command names more channels than a batch."""
    channels = table(batch=2)
    for name in (b"a", b"b", b"c"):
        channels.want(name)
    assert channels.next_command(0) == ChannelCommand(Verb.SUBSCRIBE, (b"a", b"b"))
    assert channels.next_command(0) == ChannelCommand(Verb.SUBSCRIBE, (b"c",))
    assert channels.next_command(0) is None


def test_an_unwanted_channel_lingers() -> None:
    """UNSUBSCRIBE goes out only when nobody wanted the channel for the whole linger, counted from the last time."""
    channels = table()
    on(channels, b"a")
    channels.unwant(b"a", 0)
    assert channels.next_command(LINGER_MS - 1) is None
    channels.want(b"a")
    assert channels.next_command(LINGER_MS) is None
    assert channels.confirmed(b"a") == 1
    channels.unwant(b"a", 200)
    channels.unwant(b"a", 250)
    assert not channels.due(299)
    assert channels.due(300)
    assert channels.next_command(300) == ChannelCommand(Verb.UNSUBSCRIBE, (b"a",))


def test_a_newcomer_during_unsubscribing_waits_for_that_confirmation() -> None:
    """SUBSCRIBE goes out only after UNSUBSCRIBE was confirmed, and nothing before it counts as confirmed."""
    channels = table()
    on(channels, b"a")
    channels.unwant(b"a", 0)
    assert channels.next_command(LINGER_MS) == ChannelCommand(Verb.UNSUBSCRIBE, (b"a",))
    channels.want(b"a")
    assert channels.confirmed(b"a") is None
    assert channels.next_command(LINGER_MS) is None
    assert not channels.unsubscribed(b"a")
    assert channels.next_command(LINGER_MS) == ChannelCommand(Verb.SUBSCRIBE, (b"a",))
    assert channels.confirmed(b"a") is None
    assert channels.subscribed(b"a", 2)
    assert channels.confirmed(b"a") == 2


def test_a_channel_left_before_its_confirmation_is_unsubscribed_after_it() -> None:
    """Also when the linger ended first: never two commands under way, and nobody is told of a channel nobody wants."""
    channels = table()
    channels.want(b"a")
    channels.next_command(0)
    channels.unwant(b"a", 0)
    assert channels.next_command(LINGER_MS) is None
    assert not channels.subscribed(b"a", 1)
    assert channels.next_command(LINGER_MS) == ChannelCommand(Verb.UNSUBSCRIBE, (b"a",))
    assert not channels.unsubscribed(b"a")
    assert channels.state(b"a") is None
    assert len(channels) == 0


def test_a_channel_left_before_anything_was_said_costs_nothing() -> None:
    """A user who comes and goes within one tick is not mentioned to Redis."""
    channels = table()
    channels.want(b"a")
    channels.unwant(b"a", 0)
    assert channels.next_command(10**9) is None
    assert len(channels) == 0


def test_a_channel_that_lives_elsewhere_now_is_forgotten() -> None:
    """In whatever state; only one that was confirmed and wanted is missed. What is said of it later means nothing."""
    channels = table(batch=9)
    on(channels, b"on", b"lingering")
    channels.unwant(b"lingering", 0)
    channels.want(b"subscribing")
    assert channels.next_command(0) is not None
    channels.want(b"waiting")
    assert set(channels) == {b"on", b"lingering", b"subscribing", b"waiting"}
    assert [channel for channel in channels if channels.forget(channel)] == [b"on"]
    assert not channels.forget(b"nobody")
    assert not channels.subscribed(b"subscribing", 2)
    assert not channels.unsubscribed(b"on")
    assert len(channels) == 0
    assert channels.next_command(10**9) is None


def test_what_was_active_last_is_subscribed_first() -> None:
    """After a lost link; what was never active keeps its order behind."""
    channels = table(batch=9)
    on(channels, b"a", b"b", b"c", b"d")
    active = {b"c": 7, b"d": 9}
    channels.reset(lambda channel: active.get(channel, 0))
    assert channels.next_command(0) == ChannelCommand(Verb.SUBSCRIBE, (b"d", b"c", b"a", b"b"))


def test_a_lost_link_starts_from_the_whole_set() -> None:
    """Whatever was confirmed, under way or half-way re-subscribed: everything wanted is said again, and only that."""
    channels = table(batch=2)
    on(channels, b"a", b"b", b"c", b"d", b"e")
    channels.unwant(b"e", 0)
    for _ in range(3):  # lost again and again in the middle of re-subscribing
        channels.reset(lambda _: 0)
        assert channels.confirmed(b"a") is None
        assert channels.next_command(0) == ChannelCommand(Verb.SUBSCRIBE, (b"a", b"b"))
        assert channels.subscribed(b"a", 2)
    assert channels.next_command(0) == ChannelCommand(Verb.SUBSCRIBE, (b"c", b"d"))
    assert channels.next_command(0) is None
    assert channels.state(b"e") is None


def test_a_subscription_taken_away_is_asked_for_again() -> None:
    """An UNSUBSCRIBE confirmation nobody asked for is a loss the owner is told of; the channel comes back."""
    channels = table()
    on(channels, b"a")
    assert channels.unsubscribed(b"a")
    assert channels.confirmed(b"a") is None
    assert channels.next_command(0) == ChannelCommand(Verb.SUBSCRIBE, (b"a",))
    assert not channels.unsubscribed(b"a"), "the late answer to something older changes nothing"
    assert channels.subscribed(b"a", 3)
    assert channels.confirmed(b"a") == 3


def test_a_loss_that_crosses_our_unsubscribe_cannot_confirm_a_newcomer() -> None:
    """Redis took the channel away while UNSUBSCRIBE was on its way, and two confirmations of it come: whichever is
    taken for the answer, the newcomer counts as subscribed only when its own SUBSCRIBE was answered."""
    channels = table()
    on(channels, b"a")
    channels.unwant(b"a", 0)
    channels.next_command(LINGER_MS)
    channels.want(b"a")
    assert not channels.unsubscribed(b"a")
    assert channels.next_command(LINGER_MS) == ChannelCommand(Verb.SUBSCRIBE, (b"a",))
    assert not channels.unsubscribed(b"a")
    assert channels.confirmed(b"a") is None
    assert channels.next_command(LINGER_MS) is None
    assert channels.subscribed(b"a", 2)


@pytest.mark.parametrize("channel", [b"never heard of", b"waiting"])
def test_confirmations_of_what_was_not_said_change_nothing(channel: bytes) -> None:
    """Only what was sent can be confirmed."""
    channels = table()
    channels.want(b"waiting")
    assert not channels.subscribed(channel, 1)
    assert not channels.unsubscribed(channel)
    assert channels.confirmed(channel) is None
    assert channels.next_command(0) == ChannelCommand(Verb.SUBSCRIBE, (b"waiting",))


def test_an_endless_flicker_keeps_the_table_small() -> None:
    """Coming and going a thousand times within one linger leaves one entry, and the linger counts from the last."""
    channels = table()
    on(channels, b"a")
    for moment in range(1000):
        channels.unwant(b"a", moment / 100)
        channels.want(b"a")
    channels.unwant(b"a", 10)
    assert channels.next_command(LINGER_MS + 9) is None
    assert channels.next_command(LINGER_MS + 10) == ChannelCommand(Verb.UNSUBSCRIBE, (b"a",))


NAMES = st.sampled_from([b"a", b"b", b"c"])


class ChannelsMachine(RuleBasedStateMachine):
    """The table, a wire with commands on their way, a server, and a wire with confirmations on their way back."""

    def __init__(self) -> None:
        super().__init__()
        self.channels = table(batch=2)
        self.now_ms = 0.0
        self.generation = 1
        self.step = 0
        self.wanted: dict[bytes, int] = {}
        """Channel to the step in which it was wanted last."""
        self.to_server: list[tuple[Verb, bytes, int]] = []
        self.from_server: list[tuple[Verb, bytes, int]] = []
        self.subscribed: set[bytes] = set()
        self.relying: dict[bytes, int] = {}
        """What the owner was told: channel to generation."""
        self.crossed: set[bytes] = set()
        """Channels whose unsubscription was taken for the answer to a command that was still on its way."""

    @rule(channel=NAMES)
    def want(self, channel: bytes) -> None:
        self.step += 1
        self.channels.want(channel)
        self.wanted.setdefault(channel, self.step)
        generation = self.channels.confirmed(channel)
        if generation is not None:
            self.relying[channel] = generation

    @rule(channel=NAMES)
    def unwant(self, channel: bytes) -> None:
        self.channels.unwant(channel, self.now_ms)
        self.wanted.pop(channel, None)
        self.relying.pop(channel, None)

    @rule(by_ms=st.sampled_from([1.0, LINGER_MS / 2, LINGER_MS]))
    def wait(self, by_ms: float) -> None:
        self.now_ms += by_ms

    @rule()
    def speak(self) -> None:
        self.step += 1
        due = self.channels.due(self.now_ms)
        command = self.channels.next_command(self.now_ms)
        assert command is None or (due and 1 <= len(command.channels) <= 2)
        if command is not None:
            self.crossed |= {channel for _, channel, step in self.from_server if step < 0} & set(command.channels)
            self.to_server += [(command.verb, channel, self.step) for channel in command.channels]

    @precondition(lambda self: self.to_server)
    @rule()
    def server_acts(self) -> None:
        verb, channel, step = self.to_server.pop(0)
        (self.subscribed.add if verb is Verb.SUBSCRIBE else self.subscribed.discard)(channel)
        self.from_server.append((verb, channel, step))

    @precondition(lambda self: self.from_server)
    @rule()
    def answer_arrives(self) -> None:
        verb, channel, _ = self.from_server.pop(0)
        if verb is Verb.SUBSCRIBE:
            if self.channels.subscribed(channel, self.generation):
                assert channel in self.wanted
                self.relying[channel] = self.generation
        elif self.channels.unsubscribed(channel):
            self.relying.pop(channel, None)

    @precondition(lambda self: self.subscribed - {channel for _, channel, _ in self.to_server})
    @rule(data=st.data())
    def server_takes_away(self, data: st.DataObject) -> None:
        """As a cluster does when a slot moves: an unsubscription nobody asked for, in its place among the answers."""
        channel = data.draw(st.sampled_from(sorted(self.subscribed)))
        if any(channel == other for _, other, _ in self.to_server):
            self.crossed.add(channel)
        self.subscribed.discard(channel)
        self.from_server.append((Verb.UNSUBSCRIBE, channel, -1))

    @rule()
    def everything_arrives(self) -> None:
        """What makes the later states of the circle as likely to be visited as the first."""
        self.speak()
        while self.to_server:
            self.server_acts()
        while self.from_server:
            self.answer_arrives()

    @rule(channel=NAMES)
    def leave_for_good(self, channel: bytes) -> None:
        self.unwant(channel)
        self.wait(LINGER_MS)
        self.speak()

    @rule()
    def link_is_lost(self) -> None:
        self.to_server.clear()
        self.from_server.clear()
        self.subscribed.clear()
        self.relying.clear()
        self.crossed.clear()
        self.generation += 1
        self.channels.reset(lambda _: 0)

    @invariant()
    def one_command_outstanding(self) -> None:
        under_way = [channel for _, channel, step in self.to_server + self.from_server if step >= 0]
        assert len([c for c in under_way if c not in self.crossed]) == len(set(under_way) - self.crossed)

    @invariant()
    def confirmed_means_subscribed(self) -> None:
        """No confirmation is believed that something already on its way takes back, unless the server did it itself."""
        taken = {channel for _, channel, step in self.from_server if step < 0}
        leaving = {channel for verb, channel, _ in self.to_server if verb is Verb.UNSUBSCRIBE}
        for channel, generation in self.relying.items():
            assert self.channels.confirmed(channel) == generation
            assert channel in taken or (channel in self.subscribed and channel not in leaving)

    @invariant()
    def wanted_is_not_forgotten(self) -> None:
        for channel in self.wanted:
            assert self.channels.state(channel) is not None

    def teardown(self) -> None:
        """At rest the server's subscriptions are what is wanted, and everybody who wants was told."""
        for _ in range(50):
            self.now_ms += LINGER_MS
            self.speak()
            while self.to_server:
                self.server_acts()
            while self.from_server:
                self.answer_arrives()
        assert self.subscribed == set(self.wanted)
        assert set(self.relying) == set(self.wanted)
        assert len(self.channels) == len(self.wanted)
        for channel in self.wanted:
            assert self.channels.state(channel) is State.ON


TestChannelsMachine = ChannelsMachine.TestCase
TestChannelsMachine.settings = settings(max_examples=3 * settings().max_examples, stateful_step_count=50)
