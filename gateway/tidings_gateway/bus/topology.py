"""What the nodes of a Cluster say about who serves which slot, and whom of them to believe."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import hiredis

from tidings.publishing.slots import SlotMap, parse_slots
from tidings.redis_url import Address, RedisUrl
from tidings_gateway.bus.endpoint import Endpoint, endpoint_of
from tidings_gateway.bus.info import info_fields
from tidings_gateway.bus.inquiry import inquire
from tidings_gateway.bus.trouble import Kind, Trouble

ASKED_AT_ONCE = 8
"""Nodes asked for one look at the map. Any of them knows all of it; some may be cut off, or late."""

_SHOWN_CHARS = 160


class View(NamedTuple):
    """How one node sees the Cluster. `ok`: it is not cut off. `epoch`: the newest decision it has heard of."""

    ok: bool
    epoch: int
    slots: SlotMap


class Topology:
    """Raises `InvalidSetting` for certificate files that cannot be read."""

    def __init__(self, url: RedisUrl, *, timeout_ms: float) -> None:
        """`timeout_ms`: how long a node may take to answer."""
        self._door = endpoint_of(url)
        self._seeds = url.addresses
        self._nodes: tuple[Address, ...] = ()
        self._timeout_ms = timeout_ms

    def endpoint(self, address: Address) -> Endpoint:
        return replace(self._door, host=address.host, port=address.port)

    async def ask(self, *, first: Iterable[Address] = ()) -> SlotMap:
        """The newest map there is. `first`: whom to ask before others, because they are known to answer. Returns when
        all who were asked have answered or failed. Raises `Trouble` when nobody knows."""
        asked = list(dict.fromkeys((*first, *self._nodes, *self._seeds)))[:ASKED_AT_ONCE]
        answers = await asyncio.gather(*(self._ask(address) for address in asked), return_exceptions=True)
        views: list[View] = []
        troubles: list[Trouble] = []
        for answer in answers:
            if isinstance(answer, View):
                views.append(answer)
            elif isinstance(answer, Trouble):
                troubles.append(answer)
            else:
                raise answer
        # The next look begins elsewhere: with many nodes, those asked now may all be wrong in the same way.
        if self._nodes:
            self._nodes = (*self._nodes[ASKED_AT_ONCE:], *self._nodes[:ASKED_AT_ONCE])
        if not views:
            known = next((why for why in troubles if why.kind not in (Kind.REFUSED, Kind.SILENT)), None)
            names = ", ".join(map(str, asked))
            raise known or Trouble(Kind.CLUSTER, f"no node of the Cluster answers at {names}")
        best = max(views, key=lambda view: (view.ok, view.epoch))
        self._nodes = best.slots.nodes
        return best.slots

    async def _ask(self, address: Address) -> View:
        endpoint = self.endpoint(address)
        slots, info = await inquire(endpoint, [("CLUSTER", "SLOTS"), ("CLUSTER", "INFO")], timeout_ms=self._timeout_ms)
        if isinstance(slots, hiredis.ReplyError):
            text = str(slots)[:_SHOWN_CHARS]
            if "cluster support disabled" in text:
                raise Trouble(
                    Kind.CLUSTER, f"Redis at {address} is not part of a Cluster; a single server has a redis:// URL"
                )
            raise Trouble(Kind.CLUSTER, f"Redis at {address} does not say who serves which slot: {text}")
        try:
            found = parse_slots(slots, address)
        except ValueError:
            raise Trouble(Kind.CLUSTER, f"what listens at {address} is no node of a Cluster") from None
        if not found.ranges:
            raise Trouble(Kind.CLUSTER, f"Redis at {address} knows of nobody who serves a slot")
        # Empty for a node whose user may not ask: then any answer is as good as another.
        fields = info_fields(info)
        return View(fields.get("cluster_state") == "ok", int(fields.get("cluster_current_epoch", 0)), found)
