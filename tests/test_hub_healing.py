"""The hub after a lost link: who reads the log when."""

from __future__ import annotations

import pytest

from tests.support.fakes import Desk, FakeSink, entry, page, position
from tidings.errors import StoreUnavailable
from tidings_gateway.session import Session

USERS = ("ann", "bob", "cat", "dan", "eve")


async def desk_of(heal_reads: int, *users: str) -> tuple[Desk, dict[str, tuple[Session, FakeSink]]]:
    """A live session for each user, in this order, and the link lost."""
    desk = Desk(heal_reads=heal_reads)
    live = {user: await desk.live(0, user) for user in users}
    desk.bus.asked.clear()
    desk.hub.link_lost()
    desk.bus.generations.clear()
    return desk, live


def confirm(desk: Desk, *users: str, generation: int = 2) -> None:
    for user in users:
        desk.confirm(user, generation)


async def test_only_so_many_read_at_once_in_the_order_they_were_confirmed() -> None:
    """Each answered page makes room for the next session, to the last of them."""
    desk, live = await desk_of(2, *USERS)
    confirm(desk, *USERS)
    assert desk.bus.asked == ["ann", "bob"]
    for done in range(5):
        assert desk.bus.unanswered == min(2, 5 - done)
        await desk.bus.answer(page(0, 1))
    assert desk.bus.asked == list(USERS)
    assert [sink.numbers() for _, sink in live.values()] == [[1]] * 5


async def test_whoever_is_published_to_while_waiting_is_next() -> None:
    """Their event is what they miss; the others miss nothing as far as anybody knows."""
    desk, live = await desk_of(1, *USERS)
    confirm(desk, *USERS)
    desk.hear(entry(1), "eve")
    assert live["eve"][1].numbers() == []
    await desk.bus.answer(page(0, 0))
    assert desk.bus.asked == ["ann", "eve"]
    await desk.bus.answer(page(0, 1))
    assert live["eve"][1].numbers() == [1]
    desk.hear(entry(2), "eve")
    assert live["eve"][1].numbers() == [1, 2]


async def test_a_newcomer_does_not_wait_behind_them() -> None:
    """Its client waits for the welcome; the read of a new session goes out at once, and takes nobody's turn."""
    desk, _ = await desk_of(1, *USERS)
    confirm(desk, *USERS)
    desk.session(position(0), "new")
    desk.confirm("new", 2)
    assert desk.bus.asked == ["ann", "new"]
    assert desk.bus.unanswered == 2


async def test_one_that_was_not_welcomed_yet_does_not_wait_either() -> None:
    """The link was lost while its first read was under way."""
    desk, _ = await desk_of(1, *USERS)
    desk.session(position(0), "new")
    desk.confirm("new", 2)
    desk.hub.link_lost()
    await desk.bus.answer(StoreUnavailable("lost"))
    confirm(desk, *USERS, generation=3)
    desk.confirm("new", 3)
    assert desk.bus.asked == ["new", "ann", "new"]


async def test_several_pages_keep_one_turn() -> None:
    """A session with a long way to go does not make a second one out of each page."""
    desk, live = await desk_of(1, *USERS[:2])
    confirm(desk, *USERS[:2])
    await desk.bus.answer(page(0, 6, upto=4))
    await desk.bus.answer(page(4, 6))
    assert desk.bus.asked == ["ann", "ann", "bob"]
    assert live["ann"][1].numbers() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("how", ["slow", "failed", "gone", "gone before"])
async def test_one_that_cannot_go_on_gives_its_turn_away(how: str) -> None:
    """A client that takes nothing, a read that failed, a session that left: the next one's turn comes."""
    desk, live = await desk_of(1, *USERS[:2])
    session, sink = live["ann"]
    if how == "gone before":
        session.close()
    confirm(desk, *USERS[:2])
    if how == "slow":
        sink.paused, sink.held = True, 16_384
        await desk.bus.answer(page(0, 6, upto=4))
        assert desk.bus.asked == ["ann", "bob"]
    elif how == "failed":
        await desk.bus.answer(StoreUnavailable("busy"))
        assert desk.bus.asked == ["ann", "bob"]
    elif how == "gone":
        session.close()
        assert desk.bus.asked == ["ann", "bob"]
    else:
        assert desk.bus.asked == ["bob"]
    session.close()


async def test_without_room_no_turn_is_spent() -> None:
    """A session whose queue is full reads when it has room, as ever, and holds up nobody until then."""
    desk, live = await desk_of(1, *USERS[:2])
    session, sink = live["ann"]
    sink.paused, sink.held = True, 16_384
    confirm(desk, *USERS[:2])
    assert desk.bus.asked == ["bob"]
    sink.paused, sink.held = False, 0
    session.writable()
    assert desk.bus.asked == ["bob", "ann"]


async def test_lost_again_half_way() -> None:
    """Everybody is healed anew by the next link; no turn is lost with the reads that failed."""
    desk, live = await desk_of(2, *USERS)
    confirm(desk, *USERS)
    await desk.bus.answer(page(0, 0))
    desk.hub.link_lost()
    desk.bus.generations.clear()
    while desk.bus.unanswered:
        await desk.bus.answer(StoreUnavailable("lost"))
    desk.bus.asked.clear()
    confirm(desk, *USERS, generation=3)
    while (unanswered := desk.bus.unanswered) > 0:
        assert unanswered <= 2
        await desk.bus.answer(page(0, 1))
    assert sorted(desk.bus.asked) == sorted(USERS)
    assert [sink.numbers() for _, sink in live.values()] == [[1]] * 5


async def test_a_channel_lost_while_it_waits() -> None:
    """It is not read under a confirmation that is not in force any more, and is read after the next."""
    desk, live = await desk_of(1, *USERS[:3])
    confirm(desk, *USERS[:3])
    desk.hub.channel_off(desk.hub.channel("bob"))
    del desk.bus.generations[desk.hub.channel("bob")]
    await desk.bus.answer(page(0, 0))
    assert desk.bus.asked == ["ann", "cat"]
    await desk.bus.answer(page(0, 0))
    desk.confirm("bob", 3)
    await desk.bus.answer(page(0, 1))
    assert live["bob"][1].numbers() == [1]


async def test_a_session_that_raises_costs_nobody_else_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its fault ends it alone."""
    desk, live = await desk_of(1, *USERS[:2])
    session, sink = live["ann"]

    def broken(_: Session, generation: int) -> None:
        raise RuntimeError("broken")

    with monkeypatch.context() as patched:
        patched.setattr(Session, "link_back", broken)
        desk.confirm("ann", 2)
    assert sink.calls == ["failed"]
    desk.confirm("bob", 2)
    assert desk.bus.asked == ["bob"]
    session.close()


async def test_who_was_active_last_says_so() -> None:
    """A record makes its user the last active one, and so does opening a session: their channels are subscribed first,
    and hence healed first."""
    desk = Desk()
    for user in USERS:
        await desk.live(0, user)
    desk.hear(entry(1), "bob")
    desk.hear(entry(1), "ann")
    order = sorted(USERS, key=lambda user: desk.hub.last_active(desk.hub.channel(user)), reverse=True)
    assert order == ["ann", "bob", "eve", "dan", "cat"]
    assert desk.hub.last_active(b"nobody's") == 0
