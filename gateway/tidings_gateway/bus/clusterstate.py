"""What the bus of a Cluster is: its links taken together, for readiness, metrics and whoever has to find out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tidings.redis_url import Address
from tidings_gateway.bus.link import Link
from tidings_gateway.bus.member import Member
from tidings_gateway.bus.trouble import Kind, Trouble


class ClusterState:
    """Everything `ClusterBus` says of itself; it changes only in there."""

    def __init__(self, clock_ms: Callable[[], float]) -> None:
        self._clock_ms = clock_ms
        self._down_since_ms = clock_ms()
        self._members: dict[Address, Member] = {}
        self._homeless = 0
        """Wanted channels whose slot nobody is known to serve."""
        self._map_trouble: Trouble | None = Trouble(Kind.CLUSTER, "no node of the Cluster was asked yet")
        self._speaking: Member | None = None
        """Whose record is being handed on."""
        self._troubles_before: Counter[str] = Counter()
        self._links_before = self._relinks_before = 0
        """Of primaries that serve nothing any more."""

    def _remember(self, gone: Member) -> None:
        self._troubles_before += gone.primary.troubles
        self._links_before += gone.primary.opened
        self._relinks_before += gone.primary.relinks

    @property
    def primaries(self) -> list[Member]:
        return list(self._members.values())

    @property
    def up(self) -> bool:
        """There is a link to some primary: some users can be served. The others wait, and are told so."""
        return any(member.primary.up for member in self._members.values())

    @property
    def whole(self) -> bool:
        """There is a link to each primary, and each wanted channel has one."""
        members = self._members.values()
        return bool(members) and not self._homeless and all(member.primary.up for member in members)

    @property
    def down_ms(self) -> float:
        """How long there has been no link at all, in ms; 0 while there is one."""
        return min((member.primary.down_ms for member in self._members.values()), default=self._started_ms())

    def _started_ms(self) -> float:
        return self._clock_ms() - self._down_since_ms

    @property
    def reached(self) -> bool:
        """Whether there ever was a link."""
        return self.links > 0

    @property
    def generation(self) -> int:
        """Of the newest link."""
        return max((member.primary.generation for member in self._members.values()), default=0)

    @property
    def why_down(self) -> str:
        """Why some link is missing, as a sentence without secrets; empty while there is none missing."""
        if self._map_trouble is not None:
            return self._map_trouble.words
        return next((member.primary.why_down for member in self._members.values() if member.primary.why_down), "")

    @property
    def writes_refused(self) -> str:
        """Redis' own words while one of the primaries takes no writes; else empty."""
        return next((link.writes_refused for link in self._links() if link.writes_refused), "")

    @property
    def lag_ms(self) -> float | None:
        """From writing a canary to hearing it, the slowest of all links; None while there is none."""
        lags = [link.canary.lag_ms for link in self._links() if link.canary.lag_ms is not None]
        return max(lags, default=None)

    @property
    def links(self) -> int:
        """How many there were."""
        return self._links_before + sum(member.primary.opened for member in self._members.values())

    @property
    def relinks(self) -> int:
        """How many of them replaced an earlier one to the same primary."""
        return self._relinks_before + sum(member.primary.relinks for member in self._members.values())

    @property
    def silent_s(self) -> float:
        """How long ago the last bytes came over the subscribed connection that is silent for longest, in s."""
        heard_ms = min((member.primary.heard_ms for member in self._members.values()), default=self._down_since_ms)
        return (self._clock_ms() - heard_ms) / 1000

    @property
    def troubles(self) -> Counter[str]:
        """Of links that ended or could not be opened, by the value of their `Kind`."""
        return sum((member.primary.troubles for member in self._members.values()), self._troubles_before.copy())

    @property
    def channels(self) -> int:
        """In the tables: wanted, or lingering."""
        return self._homeless + sum(len(member.channels) for member in self._members.values())

    @property
    def reads_outstanding(self) -> int:
        return sum(link.scripts.outstanding for link in self._links())

    @property
    def reads_queued(self) -> int:
        return sum(link.scripts.queued for link in self._links())

    def age_s(self) -> float:
        """How long ago the last bytes came over the link whose record is being handed on, or was last."""
        heard_ms = self._speaking.primary.heard_ms if self._speaking is not None else self._down_since_ms
        return (self._clock_ms() - heard_ms) / 1000

    def _links(self) -> list[Link]:
        return [member.primary.link for member in self._members.values() if member.primary.link is not None]
