"""Effects are plain values: compared by what they say, never changed, small."""

from __future__ import annotations

import dataclasses

import pytest

from tidings.log.page import ResyncReason
from tidings.log.record import DurableRecord
from tidings_gateway.core.effects import Effect, Opened, ReadAfter, Resync, RetryLater, Send, Synced

EACH: list[Effect] = [
    ReadAfter(1, None, 0),
    RetryLater(0),
    Opened(True, b"Abcdefgh.0-0"),
    Send(DurableRecord(b"Abcdefgh.0-0", b"Abcdefgh.1-1", b"{}"), False),
    Resync(ResyncReason.EPOCH, b"Abcdefgh.0-0", None),
    Synced(b"Abcdefgh.0-0", 0),
]


@pytest.mark.parametrize("effect", EACH, ids=lambda effect: type(effect).__name__)
def test_a_value(effect: Effect) -> None:
    """Equal when it says the same; a session cannot change what another one may be given; no dictionary each."""
    assert effect == dataclasses.replace(effect)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(effect, dataclasses.fields(effect)[0].name, None)
    assert not hasattr(effect, "__dict__")
