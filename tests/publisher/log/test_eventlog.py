"""The log on a real server is the log of the contract: the same random life in the scripts and in a plain model."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis.asyncio
from hypothesis import settings

from tests.publisher.support import Listener, RealLog
from tests.support.modellog import ModelLog, Truth
from tests.support.valkey import ValkeyProcess
from tidings.errors import InvalidSetting, InvalidUser
from tidings.log.eventlog import EventLog, LogLimits, append_command, new_epoch, new_tag, read_command
from tidings.log.names import Names
from tidings.log.page import Page
from tidings.log.position import Position
from tidings.log.record import encode_durable
from tidings.log.script import SCRIPTS, Command

LIVES = 60
STEPS = 60
FRAME_BYTES = 112


class Twins:
    """The same log twice: in the model and on a server. Every step happens to both, and both must say the same."""

    def __init__(self, server: ValkeyProcess, prefix: str, seed: int) -> None:
        self.rng = random.Random(seed)
        self.retention = self.rng.choice((3, 10, 50))
        self.watching = self.rng.random() < 0.5
        self.truth = Truth()
        self.model = ModelLog(self.truth, retention=self.retention, watch_era=self.watching)
        self.real = RealLog(
            server,
            prefix,
            limits=LogLimits(max_events=self.retention),
            failover="resync" if self.watching else "trust",
        )
        self.positions: list[bytes] = []
        self.log: list[str] = []
        self.channel: Listener = self.real.listen()

    def step(self) -> None:
        steps = [(self.append, 10), (self.read, 10), (self.replay, 2), (self.trim, 1), (self.delete_entry, 1)]
        steps += [(self.delete_log, 1), (self.wipe, 1), (self.lose, 1), (self.change_primary, 1)]
        action = self.rng.choices([step for step, _ in steps], [weight for _, weight in steps])[0]
        self.log.append(action.__name__)
        action()

    def append(self) -> None:
        body = b"x" * self.rng.choice((1, 50, 3000))
        was = self.model.epoch
        record = self.model.append(body)
        # An epoch that the model did not ask for must not be used: it could not be mistaken for the right one.
        epoch = "Unwanted" if self.model.epoch == was else self.model.epoch
        receipt = self.real.append(body, epoch=epoch, tag=self.model.tag)
        assert receipt.position is not None
        assert receipt.position.encode() == record.position
        assert receipt.listening == 1
        assert self.channel.heard() == encode_durable(*record)
        self.positions.append(record.position)

    def read(self) -> None:
        self.compare(self.some_position(), last=0)

    def replay(self) -> None:
        if self.is_whole():
            self.compare(None, last=self.rng.choice((0, 1, 3, 20)))

    def compare(self, position: bytes | None, *, last: int) -> None:
        limit = self.rng.choice((1, 2, 5, 33, 128))
        # The model counts bodies, the script frames.
        max_bytes = self.rng.choice((1, 1_000_000))
        was = self.model.epoch
        wanted: Page = self.model.read_after(position, last=last, limit=limit, max_bytes=max_bytes)
        epoch = "Unwanted" if self.model.epoch == was else self.model.epoch
        assert self.real.read(position, last=last, limit=limit, max_bytes=max_bytes, epoch=epoch) == wanted
        self.positions += [wanted.start, wanted.top, wanted.end]

    def some_position(self) -> bytes | None:
        if not self.positions or self.rng.random() < 0.1:
            return None
        if self.rng.random() < 0.1:
            part = Position.parse(self.rng.choice(self.positions))
            return part._replace(seq=max(0, part.seq + self.rng.randint(-2, 2))).encode()
        return self.rng.choice(self.positions[-30:])

    def is_whole(self) -> bool:
        """Nobody deleted from the middle: what "the last N" are is then beyond dispute."""
        seqs = [entry.seq for entry in self.model.entries]
        return not seqs or seqs == list(range(seqs[0], self.model.seq + 1))

    def trim(self) -> None:
        keep = self.rng.randint(0, 5)
        self.model.trim(keep)
        self.real.server.cli("XTRIM", self.real.log_key, "MAXLEN", "=", keep)

    def delete_entry(self) -> None:
        if self.model.entries:
            index = self.rng.randrange(len(self.model.entries))
            entry = self.model.entries[index]
            self.model.delete_entry(index)
            assert self.real.server.cli("XDEL", self.real.log_key, f"{entry.seq}-{entry.tag}") == 1

    def delete_log(self) -> None:
        self.model.delete_log()
        self.real.server.cli("DEL", self.real.log_key)

    def wipe(self) -> None:
        stray = self.rng.random() < 0.5
        self.model.wipe(stray=stray)
        self.real.server.cli("DEL", self.real.meta_key, *(() if stray else (self.real.log_key,)))

    def lose(self) -> None:
        """A failover to a primary that lacks the newest entries."""
        if self.model.epoch is None:
            return
        self.model = self.model.fork(self.rng.randint(0, 3))
        server = self.real.server
        server.cli("DEL", self.real.log_key)
        for entry in self.model.entries:
            fields = ("b", entry.body, "p", entry.before)
            server.cli("XADD", self.real.log_key, f"{entry.seq}-{entry.tag}", *fields)
        server.cli("HSET", self.real.meta_key, "seq", self.model.seq, "tag", self.model.tag)
        server.cli("DEBUG", "CHANGE-REPL-ID")

    def change_primary(self) -> None:
        self.model.era += 1
        self.real.server.cli("DEBUG", "CHANGE-REPL-ID")


@pytest.fixture(scope="module")
def own() -> Iterator[ValkeyProcess]:
    """A server whose identity these tests may change."""
    with ValkeyProcess() as server:
        yield server


@pytest.mark.parametrize("batch", range(6))
def test_the_real_log_lives_like_the_model(own: ValkeyProcess, batch: int) -> None:
    """Appends, reads from every position there ever was, trims, deletions, lost meta, stray logs, forks and changes of
    primary in any order: the same receipts, the same records on the channel, the same verdicts, the same pages."""
    for seed in range(batch * 1000, batch * 1000 + LIVES // 6 * max(1, settings().max_examples // 100)):
        twins = Twins(own, f"life{seed}", seed)
        try:
            for _ in range(STEPS):
                twins.step()
        except AssertionError as error:
            error.add_note(f"seed {seed}: {' '.join(twins.log)}")
            raise
        finally:
            twins.channel.close()


# The class, over whatever runs commands


@pytest.fixture
async def run(valkey: ValkeyProcess) -> AsyncIterator[Any]:
    client = redis.asyncio.Redis(host="127.0.0.1", port=valkey.port)
    for script in SCRIPTS:
        await client.script_load(script.text)

    async def run(command: Command) -> Any:
        return await client.execute_command(*command.evalsha())  # type: ignore[no-untyped-call]

    yield run
    await client.aclose()


async def test_append_read_top(run: Any, prefix: str) -> None:
    """Append gives a receipt, read_after the pages, top the newest position, also of a user without events."""
    log = EventLog(run, Names(prefix), LogLimits(max_events=5), random.Random(1))
    empty = await log.top("alice")
    assert Position.parse(empty)[1:] == (0, 0)
    receipts = [await log.append("alice", b"%d" % number) for number in range(7)]
    assert receipts[-1].position == (await log.top("alice")).decode()
    assert (await log.read_after("alice", empty)).reason == "trimmed"
    page = await log.read_after("alice", None, last=3)
    assert [record.body for record in page.entries] == [b"4", b"5", b"6"]
    assert (await log.read_after("alice", page.end)).entries == ()
    assert (await log.append("alice", b"again", idempotency_key="k")).duplicate is False
    assert (await log.append("alice", b"again", idempotency_key="k")).duplicate is True


async def test_users_do_not_meet(run: Any, prefix: str) -> None:
    """An event for one user is in no other user's log."""
    log = EventLog(run, Names(prefix))
    for user in ("a", "A", "a.", "a:log", "a@b", "aa"):
        await log.append(user, user.encode())
    for user in ("a", "A", "a.", "a:log", "a@b", "aa"):
        entries = (await log.read_after(user, None, last=10)).entries
        assert [record.body for record in entries] == [user.encode()]


async def test_what_run_raises_comes_through(prefix: str) -> None:
    """The log neither hides nor repeats what went wrong below it."""

    async def run(command: Command) -> Any:
        raise ConnectionResetError(command.script.name)

    log = EventLog(run, Names(prefix))
    with pytest.raises(ConnectionResetError, match="append"):
        await log.append("alice", b"x")
    with pytest.raises(ConnectionResetError, match="read"):
        await log.top("alice")


def test_every_epoch_and_tag_is_new() -> None:
    """Epochs and tags come from the caller's random numbers, fit the grammar, use all of it, and do not repeat."""
    rng = random.SystemRandom()
    epochs = {new_epoch(rng) for _ in range(2000)}
    assert len(epochs) == 2000
    assert len({character for epoch in epochs for character in epoch}) == 62
    tags = {new_tag(rng) for _ in range(2000)}
    assert len(tags) > 1990
    for epoch, tag in zip(epochs, tags, strict=False):
        assert 1 <= tag <= 9_999_999_999
        Position.parse(f"{epoch}.1-{tag}")
    assert new_epoch(random.Random(7)) == new_epoch(random.Random(7))


def test_commands_name_only_keys_of_their_user() -> None:
    """KEYS are those of one user, and the idempotency key only when one was given: a Cluster refuses anything else, and
    answers TRYAGAIN for a key that is absent while its slot moves."""
    names = Names("p")
    plain = append_command(names, "u", b"x", epoch="EpochAAA", tag=1)
    assert plain.keys == (b"p:{u}:meta", b"p:{u}:log")
    keyed = append_command(names, "u", b"x", epoch="EpochAAA", tag=1, idempotency_key="k")
    assert keyed.keys == (b"p:{u}:meta", b"p:{u}:log", b"p:{u}:idem:k")
    assert read_command(names, "u", None, new_epoch="EpochAAA").keys == (b"p:{u}:meta", b"p:{u}:log")
    with pytest.raises(InvalidUser):
        append_command(names, "*", b"x", epoch="EpochAAA", tag=1)
    with pytest.raises(InvalidUser):
        read_command(names, "a{b}", None, new_epoch="EpochAAA")


@pytest.mark.parametrize(
    "limits", [{"max_events": 0}, {"log_ttl_s": 0}, {"idempotency_ttl_s": -1}, {"meta_ttl_s": 10, "log_ttl_s": 20}]
)
def test_limits_that_make_no_sense(limits: dict[str, int]) -> None:
    """A log keeps something for some time, and meta not less long than the entries."""
    with pytest.raises(InvalidSetting):
        LogLimits(**limits)
