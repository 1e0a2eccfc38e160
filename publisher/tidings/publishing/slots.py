"""Who serves which slot of a Cluster, out of the answer to CLUSTER SLOTS. Pure."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidings.redis_url import Address


class SlotRange(NamedTuple):
    first: int
    last: int
    primary: Address
    nodes: tuple[Address, ...]
    """The primary and its replicas."""


@dataclass(frozen=True, slots=True)
class SlotMap:
    """`ranges` are sorted and do not overlap."""

    ranges: tuple[SlotRange, ...]

    def owner(self, slot: int) -> Address | None:
        """None: nobody serves it, as far as is known."""
        index = bisect_right(self.ranges, slot, key=lambda found: found.first) - 1
        if index >= 0 and slot <= self.ranges[index].last:
            return self.ranges[index].primary
        return None

    @property
    def nodes(self) -> tuple[Address, ...]:
        """Every node, each once; primaries first."""
        primaries = [found.primary for found in self.ranges]
        return tuple(dict.fromkeys([*primaries, *(node for found in self.ranges for node in found.nodes)]))


class Redirect(NamedTuple):
    """What MOVED and ASK say."""

    slot: int
    address: Address


def parse_slots(answer: Any, asked: Address) -> SlotMap:
    """`asked`: who answered; a node that does not know its own address gives none, and means this one.

    Raises `ValueError` for what is no answer to CLUSTER SLOTS.
    """
    try:
        ranges = []
        for first, last, *nodes in answer:
            found = tuple(_node(node, asked) for node in nodes)
            ranges.append(SlotRange(int(first), int(last), found[0], found))
        return SlotMap(tuple(sorted(ranges)))
    except (ValueError, TypeError, IndexError, AttributeError):
        raise ValueError("no answer to CLUSTER SLOTS") from None


def _node(node: Any, asked: Address) -> Address:
    host = node[0].decode("ascii") if node[0] is not None else ""
    return Address(asked.host if host in ("", "?") else host, int(node[1]))


def parse_redirect(text: str, asked: Address) -> Redirect:
    """``MOVED 3999 host:port`` or ``ASK …``. Raises `ValueError`."""
    _, slot, where = text.split(" ")[:3]
    host, _, port = where.rpartition(":")
    return Redirect(int(slot), Address(asked.host if host in ("", "?") else host.strip("[]"), int(port)))
