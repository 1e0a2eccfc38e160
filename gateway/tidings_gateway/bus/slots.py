"""Who serves which slot of a Cluster, as far as is known: the map the nodes give, and what was learned since. Pure."""

from __future__ import annotations

import random
from binascii import crc_hqx

from tidings.log.names import SLOTS
from tidings.publishing.slots import SlotMap
from tidings.redis_url import Address


def slot_of_channel(channel: bytes) -> int:
    """What stands in braces decides, as for keys. Every channel of ours has braces."""
    begin = channel.index(b"{") + 1
    return crc_hqx(channel[begin : channel.index(b"}", begin)], 0) % SLOTS


class Slots:
    """`owners[slot]` is None for a slot that nobody serves, as far as is known."""

    def __init__(self) -> None:
        self._owners: list[Address | None] = [None] * SLOTS

    def owner(self, slot: int) -> Address | None:
        return self._owners[slot]

    def adopt(self, slot_map: SlotMap) -> None:
        """A whole map replaces all that was known."""
        owners: list[Address | None] = [None] * SLOTS
        for first, last, primary, _ in slot_map.ranges:
            owners[first : last + 1] = [primary] * (last - first + 1)
        self._owners = owners

    def move(self, slot: int, to: Address | None) -> None:
        """One slot changed hands: its old owner said so."""
        self._owners[slot] = to

    @property
    def primaries(self) -> set[Address]:
        return {owner for owner in self._owners if owner is not None}

    @property
    def covered(self) -> bool:
        """Whether each slot has an owner."""
        return None not in self._owners

    def tag(self, owner: Address, rng: random.Random) -> str | None:
        """Some text whose slot this owner serves, for a key of its own; None when it serves none.

        At random: if that one slot moves away, the next try finds another.
        """
        if owner not in self._owners:
            return None
        number = rng.getrandbits(32)
        while self._owners[crc_hqx(b"%x" % number, 0) % SLOTS] != owner:
            number += 1
        return f"{number:x}"
