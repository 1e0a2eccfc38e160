"""Which server the Sentinels call primary.

All of them are asked at once, since one alone may be the one that was cut off and still believes in the old primary.
Sentinels number their decisions: the answer with the greatest configuration epoch is the newest, however many others
disagree, and an answer older than one seen before is not believed.

What they say is not the last word. A link is opened only to a server that calls itself primary, takes a write and
publishes it back; see `handshake` and `canary`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import hiredis

from tidings.redis_url import Address, RedisUrl
from tidings_gateway.bus.endpoint import Endpoint, endpoint_of, sentinels_of
from tidings_gateway.bus.inquiry import inquire
from tidings_gateway.bus.trouble import Kind, Trouble


class Sighting(NamedTuple):
    """What one Sentinel says."""

    address: Address
    epoch: int


def newest(
    sightings: Sequence[Sighting], *, known_epoch: int, majority: int, current: Address | None = None
) -> Sighting | None:
    """The one to believe; None when all are older than what is known. `current` wins a tie: two names of one server
    must not make a link change between them.

    An older epoch is believed of a majority: then an operator has made the Sentinels forget and begin anew.
    """
    if not sightings:
        return None
    epoch = max(sighting.epoch for sighting in sightings)
    if epoch < known_epoch and len(sightings) < majority:
        return None
    found = [sighting for sighting in sightings if sighting.epoch == epoch]
    return next((sighting for sighting in found if sighting.address == current), found[0])


class Sentinels:
    """Raises `InvalidSetting` for certificate files that cannot be read."""

    watches = True

    def __init__(self, url: RedisUrl, *, timeout_ms: float) -> None:
        """`timeout_ms`: how long a Sentinel may take to answer."""
        assert url.service is not None
        self._service = url.service
        self._servers = endpoint_of(url)
        """How to get into a data server, wherever it is."""
        self._sentinels = sentinels_of(url)
        self._majority = len(self._sentinels) // 2 + 1
        self._names = ", ".join(map(str, url.addresses))
        self._timeout_ms = timeout_ms
        self._epoch = 0
        """The greatest seen."""

    async def locate(self) -> Endpoint:
        sightings = await self._ask_all()
        found = newest(sightings, known_epoch=self._epoch, majority=self._majority)
        if found is None:
            raise Trouble(
                Kind.SENTINEL,
                f"too few of the Sentinels at {self._names} answer, and what they say of {self._service} is outdated",
            )
        self._epoch = found.epoch
        return replace(self._servers, host=found.address.host, port=found.address.port)

    async def moved(self, endpoint: Endpoint) -> Trouble | None:
        current = Address(endpoint.host, endpoint.port)
        try:
            sightings = await self._ask_all()
        except Trouble:
            return None  # Without Sentinels there is no failover either: what works is kept.
        found = newest(sightings, known_epoch=self._epoch, majority=self._majority, current=current)
        if found is None:
            return None
        self._epoch = found.epoch
        if found.address == current:
            return None
        return Trouble(Kind.MOVED, f"the Sentinels call another server than {endpoint} the primary of {self._service}")

    async def _ask_all(self) -> list[Sighting]:
        """Returns when a majority has answered, or nobody will any more. Raises `Trouble` when nobody has."""
        sightings: list[Sighting] = []
        troubles: list[Trouble] = []
        asked = [asyncio.ensure_future(self._ask(sentinel)) for sentinel in self._sentinels]
        try:
            for answer in asyncio.as_completed(asked):
                try:
                    sightings.append(await answer)
                except Trouble as why:
                    troubles.append(why)
                if len(sightings) >= self._majority:
                    break
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        if not sightings:
            # One that answers, and does not know the service, says more than one that does not answer.
            answered = next((why for why in troubles if why.kind not in (Kind.REFUSED, Kind.SILENT)), None)
            raise answered or Trouble(Kind.SENTINEL, f"no Sentinel answers at {self._names}")
        return sightings

    async def _ask(self, sentinel: Endpoint) -> Sighting:
        where, master = await inquire(
            sentinel,
            # During a failover only the first of them names the promoted server already.
            [("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service), ("SENTINEL", "MASTER", self._service)],
            timeout_ms=self._timeout_ms,
        )
        if isinstance(where, hiredis.ReplyError):
            raise Trouble(Kind.SENTINEL, f"the Sentinel at {sentinel} answered with: {str(where)[:160]}")
        if where is None:
            raise Trouble(Kind.SENTINEL, f"the Sentinel at {sentinel} knows no service {self._service}")
        if not isinstance(where, list) or len(where) != 2:
            raise Trouble(Kind.SENTINEL, f"what listens at {sentinel} is no Sentinel")
        return Sighting(Address(where[0].decode("ascii", "replace").lower(), int(where[1])), _epoch(master))


def _epoch(master: object) -> int:
    """0 for a Sentinel whose user may not ask: then the first answer counts."""
    if not isinstance(master, list):
        return 0
    fields = dict(zip(master[::2], master[1::2], strict=False))
    return int(fields.get(b"config-epoch", 0))
