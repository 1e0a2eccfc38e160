"""The outbox: bounded, in order, and durable events are never lost in it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tidings.log.record import DurableRecord
from tidings_gateway.core.frames import EVENT_OVERHEAD_BYTES, Frame, event_frame
from tidings_gateway.core.outbox import CONTROL_RESERVE, Outbox


def durable(number: int, size: int = 10) -> Frame:
    return Frame(b"x" * size, position=b"%d" % number)


def ephemeral(key: bytes, size: int = 10) -> Frame:
    return Frame(b"e" * size, coalesce=key)


def control(size: int = 10) -> Frame:
    return Frame(b"c" * size)


class TestDurable:
    def test_in_order_and_whole(self) -> None:
        """What was taken comes out as it went in."""
        outbox = Outbox()
        offered = [durable(number) for number in range(20)]
        assert all(outbox.offer(frame, 0) for frame in offered)
        assert outbox.take(10**6) == offered
        assert len(outbox) == outbox.bytes == 0

    def test_one_that_does_not_fit_changes_nothing(self) -> None:
        """By count and by bytes, those of the transport included."""
        for outbox, transport in ((Outbox(2, 1_000), 0), (Outbox(10, 25), 0), (Outbox(10, 1_000), 975)):
            kept = [durable(1), durable(2)]
            assert all(outbox.offer(frame, transport) for frame in kept)
            for _ in range(2):
                assert not outbox.fits(durable(3), transport)
                assert not outbox.offer(durable(3), transport)
            assert outbox.take(10**6) == kept
            assert outbox.dropped == 0

    def test_ephemerals_make_way(self) -> None:
        """Progress reports must not cost a log read."""
        outbox = Outbox(3, 1_000)
        for frame in (ephemeral(b"a"), durable(1), ephemeral(b"b")):
            outbox.offer(frame, 0)
        assert outbox.fits(durable(2), 0)
        assert outbox.offer(durable(2), 0)
        assert [frame.position for frame in outbox.take(10**6)] == [b"1", b"2"]
        assert outbox.dropped == 2

    def test_ephemerals_do_not_make_way_for_nothing(self) -> None:
        """They are kept when the durable one would not fit without them either."""
        outbox = Outbox(10, 50)
        outbox.offer(durable(1, 40), 0)
        outbox.offer(ephemeral(b"a"), 0)
        assert not outbox.offer(durable(2, 20), 0)
        assert len(outbox) == 2
        assert outbox.dropped == 0

    def test_one_above_the_bound_may_wait_alone(self) -> None:
        """Refused, it could never be sent, and its user would wait for ever."""
        outbox = Outbox(10, 100)
        assert not outbox.offer(durable(1, 500), 1)
        assert outbox.offer(durable(1, 500), 0)
        assert not outbox.offer(durable(2, 1), 0)

    def test_the_frames_of_a_page_are_always_taken(self) -> None:
        """Their room was there when the page was asked for; ephemerals that came since make way."""
        outbox = Outbox(4, 1_000)
        for key in (b"a", b"b", b"c"):
            outbox.offer(ephemeral(key), 0)
        for number in range(3):
            assert outbox.put(durable(number), 0)
        assert len(outbox) == 3


class TestEphemeral:
    def test_the_newer_takes_the_place_of_the_older(self) -> None:
        """Only the newest state of a (type, key) is worth sending, and it keeps its place in the queue."""
        outbox = Outbox()
        older, newer = ephemeral(b"job\0001"), ephemeral(b"job\0001", 30)
        for frame in (durable(1), older, durable(2), ephemeral(b"job\0002"), newer):
            assert outbox.offer(frame, 0)
        taken = outbox.take(10**6)
        assert taken[1] is newer
        assert older not in taken
        assert [frame.position for frame in taken] == [b"1", None, b"2", None]
        assert outbox.coalesced == 1

    def test_dropped_and_counted_when_full(self) -> None:
        """By count and by bytes, those of the transport included."""
        for outbox, transport in ((Outbox(1, 1_000), 0), (Outbox(10, 19), 0), (Outbox(10, 1_000), 985)):
            assert outbox.offer(ephemeral(b"a"), transport)
            assert not outbox.offer(ephemeral(b"b"), transport)
            assert outbox.offer(ephemeral(b"a"), transport), "one that replaces another needs no room"
            assert (outbox.dropped, outbox.coalesced, len(outbox)) == (1, 1, 1)

    def test_a_larger_one_that_does_not_fit_takes_the_stale_one_with_it(self) -> None:
        """Better nothing than a state that is known to be old."""
        outbox = Outbox(10, 50)
        outbox.offer(durable(1, 30), 0)
        outbox.offer(ephemeral(b"a"), 0)
        assert not outbox.offer(ephemeral(b"a", 40), 0)
        assert len(outbox) == 1
        assert outbox.bytes == 30


class TestControl:
    def test_taken_beyond_the_bounds_but_not_without_end(self) -> None:
        """A client that asks for answers and does not read them is let go."""
        outbox = Outbox(4, 100)
        for number in range(4):
            outbox.offer(durable(number, 25), 0)
        assert all(outbox.offer(control(), 0) for _ in range(CONTROL_RESERVE))
        assert not outbox.offer(control(), 0)
        assert len(outbox) == 4 + CONTROL_RESERVE

    def test_the_reserve_comes_back(self) -> None:
        """What was sent no longer counts."""
        outbox = Outbox(1, 100)
        outbox.offer(durable(1, 100), 0)
        for _ in range(CONTROL_RESERVE):
            outbox.offer(control(), 0)
        outbox.take(100)
        outbox.take(10 * CONTROL_RESERVE)
        assert len(outbox) == 0
        outbox.offer(durable(1, 100), 0)
        assert outbox.offer(control(), 0)

    def test_the_same_frame_twice_is_two(self) -> None:
        """A cached frame may be queued again before it was sent."""
        outbox = Outbox()
        frame = control()
        outbox.offer(frame, 0)
        outbox.offer(frame, 0)
        assert outbox.take(10**6) == [frame, frame]


class TestTake:
    def test_at_least_one_and_no_more_than_asked_for(self) -> None:
        """A frame larger than a batch goes out all the same, alone."""
        outbox = Outbox()
        frames = [durable(number, 40) for number in range(3)]
        for frame in frames:
            outbox.offer(frame, 0)
        assert outbox.take(1) == frames[:1]
        assert outbox.take(80) == frames[1:]
        assert outbox.take(80) == []


@given(
    st.lists(st.tuples(st.sampled_from(["durable", "ephemeral", "control"]), st.integers(0, 300)), max_size=40),
    st.integers(0, 2_000),
    st.lists(st.integers(2, 200), min_size=1, max_size=8),
)
def test_where_there_was_room_a_page_fits(waiting: list[tuple[str, int]], transport: int, bodies: list[int]) -> None:
    """A page within its limits stays within the bounds, whatever ephemerals came while it was on its way."""
    max_events, max_bytes, page_events, page_bytes = 40, 4_000, 8, 1_600
    outbox = Outbox(max_events, max_bytes)
    for index, (kind, size) in enumerate(waiting):
        frame = {"durable": durable(index, size), "ephemeral": ephemeral(b"%d" % index, size), "control": control(size)}
        outbox.offer(frame[kind], transport)
    page_cost = sum(bodies) + len(bodies) * EVENT_OVERHEAD_BYTES
    if page_cost > page_bytes or not outbox.room_for_page(page_events, page_bytes, transport):
        return
    for index, (kind, size) in enumerate(waiting):
        if kind == "ephemeral":
            outbox.offer(ephemeral(b"again %d" % index, size), transport)
    before = b"Abcdefghabcdefgh.1-1"
    for size in bodies:
        record = DurableRecord(before, b"A" * 16 + b".9999999999999999-9999999999", b"{" + b"x" * (size - 1))
        assert outbox.put(event_frame(record, replay=True), transport)
    assert len(outbox) <= max_events
    assert outbox.bytes + transport <= max_bytes


def test_an_empty_queue_has_room_for_any_page() -> None:
    """Settings whose page is larger than the queue must not mean that nothing is ever read."""
    outbox = Outbox(4, 100)
    assert outbox.room_for_page(100, 10_000, 0)
    assert not outbox.room_for_page(100, 10_000, 1)
    outbox.offer(durable(1), 0)
    assert not outbox.room_for_page(100, 10_000, 0)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 400)), max_size=30), st.integers(0, 3_000))
def test_the_budget_is_what_durable_frames_may_take(waiting: list[tuple[bool, int]], transport: int) -> None:
    """Frames within it are all taken, ephemerals making way."""
    outbox = Outbox(20, 3_000)
    for index, (is_durable, size) in enumerate(waiting):
        outbox.offer(durable(index, size) if is_durable else ephemeral(b"%d" % index, size), transport)
    events, size = outbox.budget(transport)
    share = size // events if events else 0
    for number in range(events):
        assert outbox.offer(durable(number, share), transport)
    assert len(outbox) <= 20
    assert outbox.bytes + transport <= max(3_000, transport)


class OutboxMachine(RuleBasedStateMachine):
    """Against a plain list: whatever is offered and taken, the bounds hold and nothing durable is lost or moved."""

    @initialize(events=st.integers(1, 8), size=st.integers(20, 200))
    def start(self, events: int, size: int) -> None:
        self.outbox = Outbox(events, size)
        self.model: list[Frame] = []
        self.transport = 0
        self.number = 0

    def _lost_ephemerals(self) -> None:
        """Take from the model what the outbox was free to drop, and nothing else."""
        kept = list(self.outbox._frames.values())
        self.model = [frame for frame in self.model if frame.coalesce is None or frame in kept]

    @rule(size=st.integers(1, 60))
    def offer_durable(self, size: int) -> None:
        self.number += 1
        frame = durable(self.number, size)
        before = list(self.outbox._frames.values())
        if self.outbox.offer(frame, self.transport):
            self.model.append(frame)
            self._lost_ephemerals()
        else:
            assert list(self.outbox._frames.values()) == before
            durable_bytes = sum(other.size for other in self.model if other.coalesce is None)
            durable_count = sum(other.coalesce is None for other in self.model)
            full = durable_count >= self.outbox.max_events
            assert full or durable_bytes + size + self.transport > self.outbox.max_bytes

    @rule(key=st.sampled_from([b"a", b"b", b"c"]), size=st.integers(1, 60))
    def offer_ephemeral(self, key: bytes, size: int) -> None:
        frame = ephemeral(key, size)
        older = [index for index, other in enumerate(self.model) if other.coalesce == key]
        if self.outbox.offer(frame, self.transport):
            if older:
                self.model[older[0]] = frame
            else:
                self.model.append(frame)
        else:
            self._lost_ephemerals()

    @rule()
    def offer_control(self) -> None:
        frame = control(1)
        if self.outbox.offer(frame, self.transport):
            self.model.append(frame)
        else:
            assert sum(other.position is None and other.coalesce is None for other in self.model) >= CONTROL_RESERVE

    @rule(size=st.integers(0, 100))
    def take(self, size: int) -> None:
        taken = self.outbox.take(size)
        assert taken == self.model[: len(taken)]
        assert bool(taken) == bool(self.model)
        assert len(taken) <= 1 or sum(frame.size for frame in taken) <= size
        del self.model[: len(taken)]

    @rule(size=st.integers(0, 150))
    def transport_holds(self, size: int) -> None:
        self.transport = size

    @invariant()
    def bounds_and_order(self) -> None:
        if not hasattr(self, "outbox"):
            return
        outbox = self.outbox
        frames = list(outbox._frames.values())
        assert frames == self.model
        assert outbox.events == len(frames)
        assert outbox.bytes == sum(frame.size for frame in frames)
        keys = [frame.coalesce for frame in frames if frame.coalesce is not None]
        assert len(keys) == len(set(keys))
        controls = [frame for frame in frames if frame.position is None and frame.coalesce is None]
        assert outbox._control == len(controls)
        others = len(frames) - len(controls)
        assert others <= outbox.max_events
        assert len(frames) <= outbox.max_events + CONTROL_RESERVE
        without = outbox.bytes - sum(frame.size for frame in controls)
        assert without <= outbox.max_bytes or others == 1


TestOutboxMachine = OutboxMachine.TestCase
