"""What a publisher gets for an event that was accepted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Receipt:
    """`position` is the event's id, None for an ephemeral event. `duplicate`: an earlier publish with the same
    idempotency key stored it, and this is the id it was given then. `listening`: how many gateways took it from the
    channel just now, a hint only; 0 for a duplicate.
    """

    position: str | None
    duplicate: bool = False
    listening: int = 0
