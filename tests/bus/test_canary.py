"""The canary's own clock, and its script on a real server."""

from __future__ import annotations

from tests.support.valkey import ValkeyProcess
from tidings_gateway.bus.canary import CANARY, Canary, canary_name


def canary() -> Canary:
    return Canary(b"t:gw:x:{0}", "token", interval_ms=2000)


def test_one_at_a_time_and_one_an_interval() -> None:
    """The next is due an interval after the one before was sent, and never before that one was heard."""
    bird = canary()
    assert bird.due(0)
    value = bird.send(0).args[0]
    assert not bird.due(10_000)
    bird.heard(value, 3)
    assert bird.lag_ms == 3
    assert not bird.due(1_999)
    assert bird.due(2_000)


def test_only_the_one_under_way_counts() -> None:
    """An old one that was stuck in a frozen server, a repeated one, or somebody else's proves nothing."""
    bird = canary()
    old = bird.send(0).args[0]
    bird.heard(old, 1)
    new = bird.send(2000).args[0]
    assert new != old
    for payload in (old, b"token.99", b""):
        bird.heard(payload, 2500)
        assert bird.awaited
    other = Canary(bird.name, "other token", interval_ms=2000)
    bird.heard(other.send(0).args[0], 2500)
    assert bird.awaited
    assert bird.lag_ms == 1


def test_its_name_is_no_users_channel() -> None:
    """It lies under the prefix, so that one ACL pattern covers it, and outside of what any user id can name."""
    assert canary_name("app", "k3J9xQ2m") == b"app:gw:k3J9xQ2m:{0}"


def test_the_script_writes_publishes_and_leaves_nothing(valkey: ValkeyProcess, prefix: str) -> None:
    """The key goes away by itself after the gateway did."""
    command = Canary(canary_name(prefix, "gateway1"), "t", interval_ms=1).send(0)
    assert valkey.cli("EVAL", CANARY.text, 1, *command.keys, *command.args) == b"OK"
    assert valkey.cli("GET", *command.keys) == b"t.1"
    assert 0 < valkey.cli("PTTL", *command.keys) <= 60_000
