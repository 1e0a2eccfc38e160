"""One link on a fake wire and a clock of the test's own: which silence ends it, and which does not."""

from __future__ import annotations

import itertools
from functools import partial

import pytest

from tests.bus.support import RNG, Listener, turn
from tests.bus.test_resp import Clock, connection, transport
from tests.bus.test_scripts import sent
from tidings.errors import StoreUnavailable
from tidings.log.eventlog import READ, read_command
from tidings.log.names import Names
from tidings_gateway.bus.canary import CANARY, canary_name
from tidings_gateway.bus.channels import Channels
from tidings_gateway.bus.endpoint import Endpoint
from tidings_gateway.bus.limits import BusLimits
from tidings_gateway.bus.link import PATIENCE, Link, LinkParts
from tidings_gateway.bus.resp import RespConnection
from tidings_gateway.bus.trouble import Kind, Trouble

NAMES = Names("t")
NAME = canary_name("t", "gateway1")
LIMITS = BusLimits(redis_timeout_ms=2000, canary_interval_ms=2000, canary_timeout_ms=4000)


class Room:
    """A link whose canary's channel was confirmed and whose first canary is on its way."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.commands: RespConnection = connection(clock=self.clock)
        self.pubsub: RespConnection = connection(clock=self.clock)
        self.listener = Listener()
        self.channels = Channels(linger_ms=0, batch=512)
        parts = LinkParts(
            gateway_id="gateway1",
            canary_name=lambda: NAME,
            scripts=(READ, CANARY),
            channels=self.channels,
            listener=self.listener,
            limits=LIMITS,
            next_generation=partial(next, itertools.count(1)),
            clock_ms=self.clock,
            rng=RNG,
        )
        self.link = Link(Endpoint(), parts, self.commands, self.pubsub)
        self.link.subscriber.open()
        self.pubsub.data_received(b"*3\r\n$9\r\nsubscribe\r\n$%d\r\n%b\r\n:1\r\n" % (len(NAME), NAME))

    def why(self) -> Kind | None:
        return self.link.trouble.kind if self.link.trouble is not None else None

    async def run(self, ms: float, *, answer: bool = True, hear: bool = True) -> None:
        """Let the time go by in ticks, with a server that answers and publishes, or does not."""
        end = self.clock.ms + ms
        while self.clock.ms < end:
            await turn(2)
            if answer:
                while self.commands.outstanding:
                    self.commands.data_received(b"+OK\r\n")
                    await turn()
            if hear:
                self.publish_canary()
            self.clock.ms += self.link.tick_ms
            self.link.tick(self.clock.ms)

    def publish_canary(self) -> None:
        calls = [command for command in sent(self.commands) if command[1] == CANARY.sha.encode()]
        if calls and self.link.canary.awaited:
            value = calls[-1][4]
            message = b"*3\r\n$7\r\nmessage\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(NAME), NAME, len(value), value)
            self.pubsub.data_received(message)

    def noise(self, conn: RespConnection) -> None:
        """Bytes that come in: the beginning of something long."""
        conn.data_received(b"")


async def test_a_healthy_link_lives() -> None:
    """One canary each interval, heard; nothing else."""
    room = Room()
    await room.run(60_000)
    assert room.why() is None
    assert room.link.canary.lag_ms is not None
    canaries = [command for command in sent(room.commands) if command[1] == CANARY.sha.encode()]
    assert 28 <= len(canaries) <= 31


async def test_a_command_without_an_answer_ends_it() -> None:
    """After the Redis time-out, whichever command it was; who waits is told, and both connections are cut."""
    room = Room()
    await room.run(500)
    reading = room.link.read(read_command(NAMES, "ann", None, new_epoch="epoch123"))
    lost: list[Trouble] = []
    room.link.on_lost = lost.append
    await room.run(1900, answer=False, hear=False)
    assert room.why() is None
    await room.run(400, answer=False, hear=False)
    assert room.why() is Kind.SILENT
    assert [why.kind for why in lost] == [Kind.SILENT]
    assert room.link.lost.done()
    assert transport(room.commands).aborted
    assert transport(room.pubsub).aborted
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await reading


async def test_a_subscribe_without_a_confirmation_ends_it() -> None:
    """The same for the subscribed connection."""
    room = Room()
    await room.run(500)
    room.link.follow_table(1)
    room.channels.want(b"a")
    await room.run(2400, hear=False)
    assert room.why() is Kind.SILENT


async def test_a_canary_that_is_not_heard_ends_it() -> None:
    """All commands are answered, and nothing published arrives: at most an interval and its time-out later the link is
    known to be deaf."""
    room = Room()
    await room.run(1000)
    await room.run(4900, hear=False)
    assert room.why() is None
    await room.run(1300, hear=False)
    assert room.why() is Kind.DEAF


async def test_while_bytes_come_in_it_is_we_who_are_slow() -> None:
    """With a backlog on the way in, a late canary does not end the link: replacing it would only add to the backlog.
    But not for ever."""
    room = Room()
    await room.run(1000)
    begun = room.clock.ms
    while room.why() is None and room.clock.ms < begun + 60_000:
        room.noise(room.pubsub)
        await room.run(100, hear=False)
    assert room.why() is Kind.DEAF
    lasted = room.clock.ms - begun
    assert PATIENCE * 4000 <= lasted <= PATIENCE * 4000 + 2300


async def test_answers_that_wait_with_us_are_no_silence() -> None:
    """Thousands of answers have come and this process hands them on slowly: nobody is judged by what may be among them,
    however long it takes; once they are through, what is still missing is."""
    room = Room()
    await room.run(500)
    room.link._sing()
    await turn(2)
    begun = room.clock.ms
    room.pubsub._between_turns = True
    room.commands._between_turns = True
    await room.run(2 * PATIENCE * 4000, answer=False, hear=False)
    assert room.why() is None
    assert room.clock.ms - begun > PATIENCE * 4000
    room.commands._between_turns = False
    await room.run(200, answer=False, hear=False)
    assert room.why() is Kind.SILENT


async def test_a_tick_that_comes_late_judges_nothing() -> None:
    """This process stood still: whatever the clocks say, the answers may be in the sockets. The next tick judges."""
    room = Room()
    await room.run(500)
    room.link._sing()
    await turn()
    room.clock.ms += 30_000
    room.link.tick(room.clock.ms)
    assert room.why() is None
    room.clock.ms += 100
    room.link.tick(room.clock.ms)
    assert room.why() is Kind.SILENT


async def test_always_late_is_judged_all_the_same() -> None:
    """A process that is slow at every tick still notices a dead Redis."""
    room = Room()
    await room.run(500)
    room.link._sing()
    await turn()
    for _ in range(4):
        room.clock.ms += 1500
        room.link.tick(room.clock.ms)
    assert room.why() is Kind.SILENT


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"-READONLY You can't write against a read only replica.\r\n", Kind.REPLICA),
        (b"-NOPERM this user has no permissions to run the 'set' command\r\n", Kind.PERMISSION),
        (b"-ERR something new\r\n", Kind.ANSWERED),
    ],
)
async def test_a_refused_canary_ends_it(answer: bytes, kind: Kind) -> None:
    """Also when it is heard: a replica publishes too."""
    room = Room()
    await turn()
    room.publish_canary()
    room.commands.data_received(answer)
    assert room.why() is kind


@pytest.mark.parametrize("word", ["OOM", "NOREPLICAS", "MISCONF"])
async def test_a_primary_that_takes_no_writes_is_kept(word: str, caplog: pytest.LogCaptureFixture) -> None:
    """It can still be read and heard. Said once, and it is known when it is over."""
    room = Room()
    refused = []
    for answer in (f"-{word} one", f"-{word} two", "+OK"):
        await turn()
        room.publish_canary()
        room.commands.data_received(answer.encode() + b"\r\n")
        refused.append(room.link.writes_refused)
        room.link._sing()
    assert refused == [f"{word} one", f"{word} two", ""]
    assert room.why() is None
    assert len([record for record in caplog.records if "takes no writes" in record.getMessage()]) == 1


async def test_a_lost_connection_ends_it() -> None:
    """Either of them takes the other with it, once."""
    for which in ("commands", "pubsub"):
        room = Room()
        calls: list[Trouble] = []
        room.link.on_lost = calls.append
        getattr(room, which).connection_lost(None)
        assert room.why() is Kind.CLOSED
        assert room.commands.lost
        assert room.pubsub.lost
        room.link.lose(Trouble(Kind.FAULT, "later"))
        assert len(calls) == 1
        with pytest.raises(StoreUnavailable):
            await room.link.read(read_command(NAMES, "ann", None, new_epoch="epoch123"))


async def test_a_read_that_says_the_link_is_of_no_use_ends_it() -> None:
    """READONLY and the like mean everybody, not one read."""
    room = Room()
    await room.run(100)
    reading = room.link.read(read_command(NAMES, "ann", None, new_epoch="epoch123"))
    await turn()
    room.commands.data_received(b"-READONLY You can't write against a read only replica.\r\n")
    with pytest.raises(StoreUnavailable, match="replica"):
        await reading
    assert room.why() is Kind.REPLICA


async def test_an_answer_that_is_no_page_fails_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever sits between us and Redis answers nonsense to one read: that read fails."""
    room = Room()
    await room.run(100)
    reading = room.link.read(read_command(NAMES, "ann", None, new_epoch="epoch123"))
    await turn()
    room.commands.data_received(b"+OK\r\n")
    with pytest.raises(StoreUnavailable, match="no page"):
        await reading
    assert room.why() is None
    assert "no page" in caplog.text
