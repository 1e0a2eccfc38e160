"""The world of `feedworld`, driven by Hypothesis: it remembers what it has found and goes back to it."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.core.feedworld import SETUP_BYTES, World
from tests.core.schedules import WEIGHTS

ARGUMENT = st.integers(0, 255)

LOG = ("append", "burst", "append_to_old", "other_reader")
DAMAGE = ("trim", "delete_log", "delete_entry", "wipe", "failover")
HEAR = ("hear", "hear_all")
MISHEAR = ("lose", "repeat", "stray", "reorder")
LINK = ("connect", "lose_link")
READER = ("carry_out", "answer", "fail")
LATER = ("answer_late", "retry")
CLIENT = ("take", "offer_room")

assert {*LOG, *DAMAGE, *HEAR, *MISHEAR, *LINK, *READER, *LATER, *CLIENT} == set(WEIGHTS)


class FeedMachine(RuleBasedStateMachine):
    """Each step is one operation of the world, which checks every promise after it. The end heals the world."""

    world: World

    @initialize(setup=st.binary(min_size=SETUP_BYTES, max_size=SETUP_BYTES))
    def start(self, setup: bytes) -> None:
        self.world = World(setup)

    def run_operation(self, operation: str, argument: int) -> None:
        getattr(self.world, operation)(argument)

    @rule(operation=st.sampled_from(LOG), argument=ARGUMENT)
    def log(self, operation: str, argument: int) -> None:
        self.run_operation(operation, argument)

    @rule(operation=st.sampled_from(DAMAGE), argument=ARGUMENT)
    def damage(self, operation: str, argument: int) -> None:
        self.run_operation(operation, argument)

    @precondition(lambda self: self.world.channel)
    @rule(operation=st.sampled_from(HEAR), argument=ARGUMENT)
    def hear(self, operation: str, argument: int) -> None:
        self.run_operation(operation, argument)

    @precondition(lambda self: self.world.channel)
    @rule(operation=st.sampled_from(MISHEAR), argument=ARGUMENT)
    def mishear(self, operation: str, argument: int) -> None:
        self.run_operation(operation, argument)

    @rule(operation=st.sampled_from(LINK), argument=ARGUMENT)
    def link(self, operation: str, argument: int) -> None:
        self.run_operation(operation, argument)

    @precondition(lambda self: self.world.read is not None)
    @rule(operation=st.sampled_from(READER), argument=ARGUMENT)
    def reader(self, operation: str, argument: int) -> None:
        self.run_operation(operation, argument)

    @precondition(lambda self: self.world.late or self.world.retry_due)
    @rule(operation=st.sampled_from(LATER), argument=ARGUMENT)
    def later(self, operation: str, argument: int) -> None:
        self.run_operation(operation, argument)

    @rule(operation=st.sampled_from(CLIENT), argument=ARGUMENT)
    def client(self, operation: str, argument: int) -> None:
        self.run_operation(operation, argument)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.heal(1)


TestFeedMachine = pytest.mark.timeout(1800)(FeedMachine.TestCase)  # the full profile makes twenty times as many runs
TestFeedMachine.settings = settings(max_examples=10 * settings().max_examples, stateful_step_count=30, deadline=None)
