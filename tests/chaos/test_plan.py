"""A chaos run can be repeated, and its plan holds what `make chaos` promises."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.chaos.plan import STRIKE_KINDS, Plan


def test_a_seed_repeats_the_plan() -> None:
    """The same seed chooses the same; another seed does not."""
    assert Plan(seed=7).restarts() == Plan(seed=7).restarts()
    assert Plan(seed=7).restarts() != Plan(seed=8).restarts()
    assert Plan(seed=7).rng("client 1").random() == Plan(seed=7).rng("client 1").random()
    assert Plan(seed=7).rng("client 1").random() != Plan(seed=7).rng("client 2").random()


@pytest.mark.parametrize("seed", range(20))
def test_each_gateway_is_drained_once_and_killed_once(seed: int) -> None:
    """Within the run, and a gateway's second restart is well after its first."""
    plan = Plan(seconds=15, seed=seed)
    for gateway in range(plan.gateways):
        restarts = [restart for restart in plan.restarts() if restart.gateway == gateway]
        assert {restart.kind for restart in restarts} == {"SIGTERM", "kill -9"}
        first, second = (restart.at_s for restart in restarts)
        assert 0 < first < second < plan.seconds
        assert second - first >= 0.1 * plan.seconds


def test_some_users_have_two_clients() -> None:
    """Most users have one client, a fifth of the clients share a user."""
    clients_of = Counter(Counter(Plan(clients=200).users()).values())
    assert clients_of == {1: 120, 2: 40}


@pytest.mark.parametrize("seed", range(20))
def test_each_kind_of_strike_comes_once_a_round(seed: int) -> None:
    """All kinds that are asked for, in any order, then all again; the run is long enough for what is planned."""
    plan = Plan(seconds=240, redis=STRIKE_KINDS, seed=seed)
    strikes = plan.strikes()
    size = len(STRIKE_KINDS)
    assert len(strikes) > 2 * size
    for begin in range(0, len(strikes), size):
        kinds = [strike.kind for strike in strikes[begin : begin + size]]
        assert len(set(kinds)) == len(kinds)
    assert sum(strike.lasts_s + strike.calm_s for strike in strikes) <= plan.seconds
    assert plan.strikes() == strikes


def test_a_run_strikes_redis_or_the_gateways() -> None:
    """Both at once would leave nobody to say which of them was too much."""
    assert Plan().restarts()
    assert not Plan().strikes()
    assert Plan(redis=("kill",)).strikes()
    assert not Plan(redis=("kill",)).restarts()
    assert Plan(redis=("kill", "flush")).resyncs_allowed
    assert not Plan(redis=("kill", "freeze")).resyncs_allowed
