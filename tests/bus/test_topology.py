"""Which node's map is believed; the real ones are in `test_cluster.py`."""

from __future__ import annotations

import hiredis
import pytest

from tidings.redis_url import Address, parse_redis_url
from tidings_gateway.bus import topology
from tidings_gateway.bus.endpoint import Endpoint
from tidings_gateway.bus.topology import ASKED_AT_ONCE, Topology
from tidings_gateway.bus.trouble import Kind, Trouble


class Nodes:
    """Nodes by name, each with its view; asked in place of real ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **views: tuple[str, int, str] | Exception) -> None:
        self.views = views
        self.asked: list[str] = []
        monkeypatch.setattr(topology, "inquire", self.inquire)

    async def inquire(self, endpoint: Endpoint, commands: object, *, timeout_ms: float) -> list[object]:
        self.asked.append(endpoint.host)
        view = self.views.get(endpoint.host)
        if view is None:
            raise Trouble(Kind.REFUSED, f"nothing listens at {endpoint}")
        if isinstance(view, hiredis.ReplyError):
            return [view, view]
        if isinstance(view, Exception):
            raise view
        state, epoch, owner = view
        info = f"cluster_state:{state}\r\ncluster_current_epoch:{epoch}\r\n".encode()
        return [[[0, 16_383, [owner.encode(), 6379, b"id"], [b"replica", 6379, b"id2"]]], info]


def asking(*names: str) -> Topology:
    return Topology(parse_redis_url("redis+cluster://:pw@" + ",".join(names)), timeout_ms=100)


@pytest.mark.parametrize(
    ("views", "owner"),
    [
        ({"a": ("ok", 3, "a")}, "a"),
        ({"a": ("ok", 3, "a"), "b": ("ok", 4, "b")}, "b"),
        ({"a": ("fail", 9, "a"), "b": ("ok", 4, "b")}, "b"),
        ({"a": ("fail", 3, "a"), "b": ("fail", 4, "b")}, "b"),
    ],
    ids=["the only one", "newest", "cut off", "all cut off"],
)
async def test_whom_to_believe(
    monkeypatch: pytest.MonkeyPatch, views: dict[str, tuple[str, int, str]], owner: str
) -> None:
    """The one that heard of the newest decision and is not cut off; who does not answer is left out."""
    Nodes(monkeypatch, **views)
    found = await asking("gone", "a", "b").ask()
    assert found.owner(77) == Address(owner, 6379)


async def test_nodes_that_were_heard_of_are_asked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the URL may all be gone by then. Whoever is known to answer comes first."""
    nodes = Nodes(monkeypatch, a=("ok", 1, "b"), b=("ok", 2, "c"))
    cluster = asking("a")
    await cluster.ask()
    del nodes.views["a"]
    nodes.asked.clear()
    assert (await cluster.ask(first=[Address("z", 1)])).owner(0) == Address("c", 6379)
    assert nodes.asked == ["z", "b", "replica", "a"]


async def test_not_everybody_is_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handful of a hundred."""
    nodes = Nodes(monkeypatch, n0=("ok", 1, "n0"))
    await asking(*(f"n{number}" for number in range(100))).ask()
    assert len(nodes.asked) == ASKED_AT_ONCE


async def test_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Said in one sentence: what a node answered, rather than that others did not."""
    Nodes(monkeypatch)
    with pytest.raises(Trouble, match="no node of the Cluster answers at a:6379, b:6379"):
        await asking("a", "b").ask()
    Nodes(monkeypatch, b=Trouble(Kind.CREDENTIALS, "refused the password"))
    with pytest.raises(Trouble, match="refused the password"):
        await asking("a", "b").ask()
    Nodes(monkeypatch, b=hiredis.ReplyError("ERR This instance has cluster support disabled"))
    with pytest.raises(Trouble, match="is not part of a Cluster"):
        await asking("a", "b").ask()
    Nodes(monkeypatch, b=hiredis.ReplyError("NOPERM no"))
    with pytest.raises(Trouble, match="does not say who serves which slot: NOPERM no"):
        await asking("a", "b").ask()


def test_the_way_in_is_the_same_everywhere() -> None:
    """Password and TLS of the URL, for nodes it does not name."""
    endpoint = asking("a").endpoint(Address("new", 7000))
    assert (endpoint.host, endpoint.port, endpoint.password) == ("new", 7000, "pw")
