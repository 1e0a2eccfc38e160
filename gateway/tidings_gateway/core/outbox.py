"""What waits for one client whose transport takes nothing just now. Bounded by count and by bytes.

Three kinds of frames wait in one queue, in the order they were offered:

- durable (`Frame.position`): never dropped, never merged. One that does not fit is refused and nothing changes; the
  feed then reads it from the log when there is room again.
- ephemeral (`Frame.coalesce`): a newer one takes the place of an older one with the same type and key. They are
  dropped, and counted, when they do not fit, and make way for a durable one that would fit without them.
- control (neither): always taken, up to `CONTROL_RESERVE` of them beyond the bounds. There is one welcome, one synced
  and one goodbye per connection, one heartbeat at a time, and a resync only for a page, which is read only when there
  is room. What is left are answers to a client that asks and does not read: the reserve ends that.

The bytes held by the transport belong to the same bound, since that is where the bytes of a client that does not read
collect first. An outbox exists only while something must wait.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidings_gateway.core.frames import Frame

CONTROL_RESERVE: Final = 64
"""Control frames that may wait beyond the bounds."""


class Budget(NamedTuple):
    """What can be taken now."""

    events: int
    bytes: int


class Outbox:
    """`max_events` frames and `max_bytes` of payload, the transport's own bytes included.

    A single durable frame above `max_bytes` is taken when it would wait alone: refused, it could never be sent.
    """

    __slots__ = ("_control", "_frames", "_serial", "bytes", "coalesced", "dropped", "max_bytes", "max_events")

    def __init__(self, max_events: int = 256, max_bytes: int = 262_144) -> None:
        self.max_events = max_events
        self.max_bytes = max_bytes
        self.bytes = 0
        """Payload bytes waiting here, without the transport's."""
        self.coalesced = 0
        """Ephemerals that a newer one replaced."""
        self.dropped = 0
        """Ephemerals that did not fit."""
        self._control = 0
        # Ephemerals by what they coalesce on, all others by a serial number: a dictionary keeps the place of a key
        # whose value is replaced, which is what coalescing needs.
        self._frames: dict[bytes | int, Frame] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def events(self) -> int:
        """Frames waiting."""
        return len(self._frames)

    def fits(self, frame: Frame, transport_bytes: int) -> bool:
        """Whether `offer` would take this durable frame."""
        if self._fits(frame.size, transport_bytes):
            return True
        events, size = self._ephemerals()
        return events > 0 and self._fits(frame.size, transport_bytes, events, size)

    def offer(self, frame: Frame, transport_bytes: int) -> bool:
        """Queue the frame. False: it was not taken. If durable, nothing has changed then, and the feed must be told; if
        ephemeral, it was counted as dropped; if control, the reserve is used up, and the client is to be let go."""
        if frame.position is not None and not self.fits(frame, transport_bytes):
            return False
        return self.put(frame, transport_bytes)

    def put(self, frame: Frame, transport_bytes: int) -> bool:
        """As `offer`, but a durable frame is always taken: for the frames of a page, whose room was there when the read
        was issued, and which would otherwise have to be read twice."""
        coalesce = frame.coalesce
        if coalesce is not None:
            return self._put_ephemeral(coalesce, frame, transport_bytes)
        if not self._fits(frame.size, transport_bytes):
            if frame.position is not None:
                self._drop_ephemerals()
            elif self._control >= CONTROL_RESERVE:
                return False
        if frame.position is None:
            self._control += 1
        self._serial += 1
        self._frames[self._serial] = frame
        self.bytes += frame.size
        return True

    def take(self, max_bytes: int) -> list[Frame]:
        """Remove and return the frames at the head that make up `max_bytes`, at least one if any waits."""
        keys: list[bytes | int] = []
        size = 0
        for key, frame in self._frames.items():
            if keys and size + frame.size > max_bytes:
                break
            keys.append(key)
            size += frame.size
        taken = [self._frames.pop(key) for key in keys]
        self.bytes -= size
        self._control -= sum(frame.position is None and frame.coalesce is None for frame in taken)
        return taken

    def budget(self, transport_bytes: int) -> Budget:
        """What durable frames could be taken now, ephemerals making way."""
        events, size = self._ephemerals()
        return Budget(
            max(0, self.max_events - len(self._frames) + events),
            max(0, self.max_bytes - transport_bytes - self.bytes + size),
        )

    def room_for_page(self, page_events: int, page_bytes: int, transport_bytes: int) -> bool:
        """Whether a page of at most `page_events` entries and `page_bytes` could be taken as a whole. The bytes are
        those of its frames, `EVENT_OVERHEAD_BYTES` for each beside the body, as the log counts them too.

        Settings whose page never fits must not mean that nothing is ever read: an empty queue is always room enough.
        """
        if not self._frames and not transport_bytes:
            return True
        events, size = self.budget(transport_bytes)
        return page_events <= events and page_bytes <= size

    def _fits(self, size: int, transport_bytes: int, without_events: int = 0, without_bytes: int = 0) -> bool:
        events = len(self._frames) - without_events
        waiting = self.bytes - without_bytes + transport_bytes
        return events < self.max_events and (waiting + size <= self.max_bytes or waiting == 0)

    def _put_ephemeral(self, coalesce: bytes, frame: Frame, transport_bytes: int) -> bool:
        older = self._frames.get(coalesce)
        if older is None:
            if len(self._frames) >= self.max_events or self.bytes + transport_bytes + frame.size > self.max_bytes:
                self.dropped += 1
                return False
        else:
            if frame.size > older.size and self.bytes + transport_bytes + frame.size - older.size > self.max_bytes:
                # The older one is stale already, so it goes too: showing it would be worse than showing nothing.
                del self._frames[coalesce]
                self.bytes -= older.size
                self.dropped += 2
                return False
            self.coalesced += 1
            self.bytes -= older.size
        self._frames[coalesce] = frame
        self.bytes += frame.size
        return True

    def _ephemerals(self) -> tuple[int, int]:
        waiting = [frame.size for frame in self._frames.values() if frame.coalesce is not None]
        return len(waiting), sum(waiting)

    def _drop_ephemerals(self) -> None:
        kept = {key: frame for key, frame in self._frames.items() if frame.coalesce is None}
        self.dropped += len(self._frames) - len(kept)
        self._frames = kept
        self.bytes = sum(frame.size for frame in kept.values())
