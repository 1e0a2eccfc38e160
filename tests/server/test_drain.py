"""The drain in virtual time."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tidings_gateway.server.drain import Drain
from tidings_gateway.server.draining import Draining, Phase
from tidings_gateway.server.settings import ServerSettings

SETTINGS = ServerSettings()
GRACE, WINDOW, SETTLE = 5.0, 20.0, 2.0


class VirtualClock:
    """Sleeping is moving the time on, past everything planned for it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.plans: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    @property
    def elapsed(self) -> float:
        return self.now - 1000.0

    def plan(self, after: float, action: Callable[[], None]) -> None:
        self.plans.append((self.now + after, action))

    async def sleep(self, delay_s: float) -> None:
        ends = self.now + delay_s
        while due := [plan for plan in self.plans if plan[0] <= ends]:
            plan = min(due, key=lambda plan: plan[0])
            self.plans.remove(plan)
            self.now = max(self.now, plan[0])
            plan[1]()
        self.now = ends


class FakeSocket:
    """`flush_s`: from the request to go to the start of the close; `answer_s`: from there to the end. None: never."""

    def __init__(self, world: World, flush_s: float | None = 0.0, answer_s: float | None = 0.01) -> None:
        self.world = world
        self.flush_s = flush_s
        self.answer_s = answer_s
        self.closing = False
        self.asked: float | None = None
        self.closed: float | None = None
        self.aborted: float | None = None

    def drain(self, retry_ms: int) -> None:
        assert retry_ms == SETTINGS.retry_ms
        assert self.asked is None, "asked twice"
        self.asked = self.world.clock.elapsed
        if self.flush_s is not None:
            self.world.clock.plan(self.flush_s, self._close)

    def close(self, code: int, reason: str = "") -> None:
        assert code == 1012
        self._close()

    def _close(self) -> None:
        if not self.closing:
            self.closing = True
            self.closed = self.world.clock.elapsed
            if self.answer_s is not None:
                self.world.clock.plan(self.answer_s, lambda: self.world.open.discard(self))

    def abort(self) -> None:
        self.aborted = self.world.clock.elapsed
        self.world.open.discard(self)


class World:
    """What there is to drain."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.draining = Draining()
        self.open: set[FakeSocket] = set()
        self.requests = 0
        self.refusing_at: float | None = None
        self.all: list[FakeSocket] = []

    def add(self, count: int = 1, flush_s: float | None = 0.0, answer_s: float | None = 0.01) -> list[FakeSocket]:
        added = [FakeSocket(self, flush_s, answer_s) for _ in range(count)]
        self.open.update(added)
        self.all += added
        return added

    def sockets(self) -> list[FakeSocket]:
        return list(self.open)

    def start_refusing(self) -> None:
        assert self.draining.phase is Phase.WINDOW
        self.refusing_at = self.clock.elapsed

    def busy(self) -> bool:
        return self.requests > 0

    def drain(self) -> Drain:
        return Drain(self, self.draining, SETTINGS, clock=self.clock, rng=random.Random(1))


@pytest.fixture
def world() -> World:
    return World()


async def test_closes_are_spread_over_the_window(world: World) -> None:
    """Everybody is asked once, nobody before the grace is over, no second of the window has more than three times
    its share, and the last ones go near its end."""
    sockets = world.add(1000)
    await world.drain().run()
    asked = sorted(socket.asked for socket in sockets if socket.asked is not None)
    assert len(asked) == 1000
    assert asked[0] >= GRACE
    assert GRACE + WINDOW * 0.9 < asked[-1] <= GRACE + WINDOW
    buckets = [sum(GRACE + second <= moment < GRACE + second + 1 for moment in asked) for second in range(20)]
    assert max(buckets) <= 3 * 1000 / 20
    assert not any(socket.aborted for socket in sockets)


async def test_grace_changes_nothing_but_readiness(world: World) -> None:
    """In the grace the process is not ready, and everything else goes on: nothing is refused and nobody asked."""
    (socket,) = world.add()
    seen: list[tuple[bool, bool]] = []
    world.clock.plan(GRACE - 0.01, lambda: seen.append((world.draining.started, world.draining.refusing)))
    await world.drain().run()
    assert seen == [(True, False)]
    assert world.refusing_at == GRACE
    assert socket.asked is not None
    assert socket.asked >= GRACE


async def test_ends_early_when_nobody_is_left(world: World) -> None:
    """Without sockets and requests the window is not waited out."""
    await world.drain().run()
    assert world.clock.elapsed == pytest.approx(GRACE)


async def test_ends_early_when_all_left_by_themselves(world: World) -> None:
    """When the last client leaves by itself, the rest of the window is not waited out."""
    world.add(3)
    world.clock.plan(GRACE - 1, world.open.clear)
    await world.drain().run()
    assert world.clock.elapsed < GRACE + 0.2


async def test_requests_are_waited_for(world: World) -> None:
    """Requests are served to the end, within the window."""
    world.requests = 1

    def done() -> None:
        world.requests = 0

    world.clock.plan(GRACE + 7, done)
    await world.drain().run()
    assert GRACE + 7 <= world.clock.elapsed < GRACE + 7.2


async def test_flush_is_bounded(world: World) -> None:
    """A handler that never starts to close is closed for it, close_timeout_ms after it was asked."""
    sockets = world.add(50, flush_s=None)
    await world.drain().run()
    for socket in sockets:
        assert socket.asked is not None
        assert socket.closed is not None
        limit = min(socket.asked + SETTINGS.close_timeout_ms / 1000, GRACE + WINDOW)
        assert socket.closed == pytest.approx(limit, abs=0.1)


async def test_peers_that_never_answer_are_cut_off(world: World) -> None:
    """The drain ends within its time although no peer ever answers, and it is the abort that ends them."""
    sockets = world.add(100, answer_s=None)
    await world.drain().run()
    assert world.clock.elapsed == pytest.approx(GRACE + WINDOW + SETTLE, abs=0.1)
    assert all(socket.aborted for socket in sockets)
    assert not world.open


async def test_newcomers_of_the_grace_are_drained(world: World) -> None:
    """Who connects in the grace is served, and asked to go in the window like everybody else."""
    late: list[FakeSocket] = []
    world.clock.plan(GRACE / 2, lambda: late.extend(world.add(1)))
    await world.drain().run()
    assert late[0].asked is not None
    assert late[0].aborted is None


async def test_newcomers_of_the_window_are_closed(world: World) -> None:
    """Whoever is still attached in the window, and was not asked, is closed by the server at its end."""
    world.requests = 1  # keeps the window open
    late: list[FakeSocket] = []
    world.clock.plan(GRACE + 3, lambda: late.extend(world.add(1)))
    await world.drain().run()
    assert late[0].closed == pytest.approx(GRACE + WINDOW, abs=0.1)


async def test_closing_sockets_are_left_alone(world: World) -> None:
    """A socket that is closing already is not told to."""
    (socket,) = world.add(1, answer_s=None)
    socket.close(1012)
    await world.drain().run()
    assert socket.asked is None
