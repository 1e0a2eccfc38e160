"""Who serves which slot, as far as is known."""

from __future__ import annotations

import random

from tidings.log.names import SLOTS, Names, slot_of
from tidings.publishing.slots import SlotMap, SlotRange
from tidings.redis_url import Address
from tidings_gateway.bus.slots import Slots, slot_of_channel

A, B = Address("a", 1), Address("b", 2)


def slots(*ranges: tuple[int, int, Address]) -> Slots:
    found = Slots()
    found.adopt(SlotMap(tuple(SlotRange(first, last, owner, (owner,)) for first, last, owner in ranges)))
    return found


def test_a_channel_is_in_its_users_slot() -> None:
    """With any prefix, and as the publisher counts."""
    for user in ("ann", "u7", "a:b=c@d+e~f", "x" * 128):
        assert slot_of_channel(Names("t").channel(user)) == slot_of(user)
        assert slot_of_channel(Names("other.prefix").meta(user)) == slot_of(user)
    assert slot_of_channel(b"t:{123456789}") == 0x31C3 % SLOTS, "the check value of CRC16/XMODEM"


def test_a_whole_map_replaces_all_that_was_known() -> None:
    """Also slots that nobody serves in it."""
    known = slots((0, 16_383, A))
    assert known.covered
    assert known.primaries == {A}
    known.move(7, B)
    assert known.owner(7) == B
    known.adopt(SlotMap((SlotRange(0, 99, B, (B,)),)))
    assert [known.owner(slot) for slot in (0, 7, 99, 100)] == [B, B, B, None]
    assert known.primaries == {B}
    assert slots().covered is False


def test_one_slot_moves() -> None:
    """To somebody, or to nobody anybody knows of."""
    known = slots((0, 8_191, A), (8_192, 16_383, B))
    known.move(8_191, B)
    known.move(0, None)
    assert [known.owner(slot) for slot in (0, 1, 8_191, 8_192)] == [None, A, B, B]


def test_a_key_of_ones_own() -> None:
    """In a slot the owner serves, not always the same; none for who serves nothing."""
    known = slots((0, 5, A), (6, 16_383, B))
    rng = random.Random(3)
    tags = [known.tag(A, rng) for _ in range(8)]
    found = {slot_of_channel(b"p:gw:x:{%b}" % (tag or "").encode()) for tag in tags}
    assert found <= set(range(6))
    assert len(found) > 1
    assert known.tag(Address("c", 3), rng) is None
