"""What was seen of one Redis server. Nothing here is judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Facts:
    """Empty mappings and None mean "not seen"; `unseen` says why. Times in ms unless the name says otherwise."""

    at: str
    """For people; never holds the password."""
    local: bool = True
    """On this machine, or a unix socket: nobody can listen on the way."""
    tls: bool = False
    verified: bool = True
    """With TLS: the certificate is checked."""
    password: bool = False
    trouble: str = ""
    """Why it could not be asked at all."""
    user: str = "default"
    info: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    cluster: Mapping[str, str] = field(default_factory=dict)
    """CLUSTER INFO, of a node of a Cluster."""
    unseen: Mapping[str, str] = field(default_factory=dict)
    """Commands that only this check needs and that were refused, with Redis' words."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Commands that Tidings needs and that were refused for want of a permission."""
    too_much: tuple[str, ...] = ()
    """What this user may do and Tidings never does."""
    clock_ahead_ms: float | None = None
    """Redis' clock less ours."""
    clock_doubt_ms: float = 0.0
    """Half the round trip: the answer cannot be more exact."""
    pings_ms: tuple[float, ...] = ()
    """Sorted."""
    canary_ms: float | None = None
    """Written, published and heard again; None: it was not."""
    canary_trouble: str = ""

    def number(self, name: str) -> int | None:
        """A field of INFO as a number."""
        text = self.info.get(name, "")
        return int(text) if text.lstrip("-").isdigit() else None

    def setting(self, *names: str) -> str | None:
        """A setting by the first of its names that is known: several were renamed over the years."""
        return next((self.config[name] for name in names if name in self.config), None)
