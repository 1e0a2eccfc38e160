"""What brings a storm. Each returns when the way back is free again."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import NamedTuple

from loadtest.herd import Herd
from loadtest.options import StrikeKind
from loadtest.world import World


class Struck(NamedTuple):
    words: str
    cut: int = 0
    """So many pages cannot but notice; 0: not known."""


Strike = Callable[[], Struck]


def strike_of(kind: StrikeKind, herd: Herd, world: World | None) -> Strike:
    """Raises `ValueError` for one that needs processes of our own, where there are none."""
    if kind == "cut":
        return lambda: _cut(herd)
    if kind == "none":
        return lambda: Struck("nothing was done")
    if world is None:
        raise ValueError(f"--strike {kind} is for gateways of its own; do it yourself, with --strike none")
    ways = {"drain": _drain, "kill": _kill, "both": _kill_all}
    return lambda: Struck(ways[kind](world))


def _cut(herd: Herd) -> Struck:
    count = herd.cut()
    return Struck(f"{count} connections were reset", count)


def _drain(world: World) -> str:
    gateway = world.gateways[0]
    gateway.signal(signal.SIGTERM)
    code = gateway.wait()
    gateway.start()
    if code != 0:
        raise RuntimeError(f"{gateway.name} ended with {code} after SIGTERM")
    return f"{gateway.name} drained, ended with {code}, and was started again"


def _kill(world: World) -> str:
    gateway = world.gateways[0]
    gateway.kill()
    gateway.start()
    return f"{gateway.name} was killed and started again"


def _kill_all(world: World) -> str:
    for gateway in world.gateways:
        gateway.kill()
    for gateway in world.gateways:
        gateway.start()
    return f"all {len(world.gateways)} gateways were killed and started again"
