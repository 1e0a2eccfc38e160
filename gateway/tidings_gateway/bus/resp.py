"""One connection to Redis: RESP2 in, RESP2 out, replies in the order of the commands.

RESP2 and not RESP3, because the bus keeps subscriptions and commands on two connections (a page of 128 KiB must never
stand in front of a live record), and with one kind of traffic per connection there is nothing that RESP3's push type
would tell apart. It also needs no HELLO, which some proxies in front of Redis do not know.

What a caller gets back is never tied to the wire: every command leaves an entry in a first-in first-out queue, the
next reply belongs to the oldest entry, and an entry whose caller went away takes its reply and drops it. Otherwise one
cancelled caller shifts everybody's replies by one, and users read each other's data (redis/redis-py #2665).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import hiredis

log = logging.getLogger("tidings.bus")

Argument = bytes | str | int
Words = tuple[Argument, ...]
"""One command."""
Sink = Callable[[object], None]
"""Called exactly once: with the reply, with the `hiredis.ReplyError` Redis answered, or with `ConnectionLost`."""

WRITE_HIGH_WATER_BYTES: Final = 1_048_576
"""Above this the kernel takes nothing any more and `writable` is False: the owner of the connection stops sending."""

KEEPALIVE_IDLE_S: Final = 10
KEEPALIVE_INTERVAL_S: Final = 5
KEEPALIVE_PROBES: Final = 3
USER_TIMEOUT_MS: Final = 10_000
"""The kernel's own search for a dead peer. The canary is faster; this frees the sockets of a link that the canary has
already given up, and of a Redis host that vanished while nothing was being sent."""

_CLOCK_EVERY = 8
_NOTHING: Final = object()


def _ignore(_: object) -> None:
    pass


class ConnectionLost(Exception):
    """The connection ended before the reply came. Whether the command was carried out is not known."""

    def __init__(self, cause: BaseException | None) -> None:
        super().__init__("connection lost" if cause is None else f"connection lost: {cause}")
        self.cause = cause


class Unexpected(Exception):
    """Redis said something that answers no command. `answer` is set when it was an error: Redis refuses a connection
    (too many clients, protected mode) before it was asked anything."""

    def __init__(self, reply: object) -> None:
        super().__init__(f"unexpected: {reply!r:.160}")
        self.answer = reply if isinstance(reply, hiredis.ReplyError) else None


class RespConnection(asyncio.Protocol):
    """Hands on at most `turn_replies` replies, or what fits into `turn_ms`, then lets the event loop go round once;
    while replies wait, nothing more is read from the socket. `on_lost` is called once, after every entry of the queue
    got its `ConnectionLost`; `cause` is None when Redis simply closed the connection.
    """

    def __init__(self, *, turn_replies: int, turn_ms: float, clock_ms: Callable[[], float]) -> None:
        self.on_lost: Callable[[BaseException | None], None] = _ignore
        self.on_writable: Callable[[], None] = lambda: None
        self.lost = False
        self.writable = False
        self._cause: BaseException | None = None
        self.last_received_ms = clock_ms()
        """When bytes last came, on the clock given."""
        self._turn_replies = turn_replies
        self._turn_ms = turn_ms
        self._clock_ms = clock_ms
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._between_turns = False
        self._paused = False
        self._waiting: deque[tuple[float, Sink]] = deque()
        self._receive: Callable[[Any], None] = self._answer

    # Sending

    @property
    def outstanding(self) -> int:
        return len(self._waiting)

    @property
    def oldest_sent_ms(self) -> float | None:
        """When the oldest command without a reply was sent."""
        return self._waiting[0][0] if self._waiting else None

    def send(self, *command: Argument) -> asyncio.Future[object]:
        """Send one command. The future gives the reply, raises `hiredis.ReplyError` or `ConnectionLost`; cancelling it
        cancels nothing on the wire."""
        return self.send_many([command])[0]

    def send_many(self, commands: Sequence[Words]) -> list[asyncio.Future[object]]:
        """Send commands in one write."""
        futures: list[asyncio.Future[object]] = [self._loop.create_future() for _ in commands]
        self.send_to([(pack(words), _Resolve(future)) for words, future in zip(commands, futures, strict=True)])
        return futures

    def send_to(self, commands: Sequence[tuple[bytes, Sink]]) -> None:
        """Send packed commands in one write, each reply to its sink."""
        if self.lost:
            for _, sink in commands:
                sink(ConnectionLost(self._cause))
            return
        now_ms = self._clock_ms()
        self._waiting.extend((now_ms, sink) for _, sink in commands)
        self.write(b"".join([packed for packed, _ in commands]))

    def write(self, data: bytes) -> None:
        """Write packed commands whose replies go to the listener, see `listen`."""
        if self._transport is not None and not self.lost:
            self._transport.write(data)

    # Receiving

    @property
    def behind(self) -> bool:
        """Whether replies that came wait here to be handed on, and more of them in the kernel perhaps."""
        return self._between_turns

    def listen(self, receive: Callable[[Any], None]) -> None:
        """From here on every reply goes to `receive`, as messages of a subscribed connection do."""
        assert not self._waiting, "replies are still due"
        self._receive = receive

    def data_received(self, data: bytes) -> None:
        self.last_received_ms = self._clock_ms()
        self._reader.feed(data)
        if not self._between_turns:
            self._turn()

    def _next_turn(self) -> None:
        self._between_turns = False
        if not self.lost:
            self._turn()

    def _turn(self) -> None:
        deadline_ms = self._clock_ms() + self._turn_ms
        try:
            for count in range(1, self._turn_replies + 1):
                reply = self._reader.gets()
                if reply is _NOTHING:
                    self._resume_reading()
                    return
                self._receive(reply)
                if self.lost:
                    return
                if not count % _CLOCK_EVERY and self._clock_ms() >= deadline_ms:
                    break
        except (hiredis.ProtocolError, Unexpected) as error:
            self.fail(error.answer if isinstance(error, Unexpected) and error.answer else error)
            return
        except Exception as error:
            # Left alone, the exception would end in the loop's log and this connection would be open and deaf.
            log.exception("a reply of Redis could not be handled")
            self.fail(error)
            return
        self._between_turns = True
        self._pause_reading()
        self._loop.call_soon(self._next_turn)

    def _answer(self, reply: object) -> None:
        if not self._waiting:
            raise Unexpected(reply)
        self._waiting.popleft()[1](reply)

    def _pause_reading(self) -> None:
        if self._transport is not None and not self._paused and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._transport is not None and self._paused and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    # Life

    @property
    def peer(self) -> Any:
        """The address at the other end, as the socket gives it; None for a lost connection."""
        return self._transport.get_extra_info("peername") if self._transport is not None else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an isinstance: uvloop's transports are not registered as asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self.writable = True
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        set_socket_options(transport.get_extra_info("socket"))

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self.on_writable()

    def fail(self, cause: BaseException | None) -> None:
        """Give the connection up now: what is buffered is dropped, since a frozen server would never take it."""
        if self._transport is not None:
            self._transport.abort()
        self._end(cause)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)

    def _end(self, cause: BaseException | None) -> None:
        if self.lost:
            return
        self.lost = True
        self.writable = False
        self._cause = cause
        while self._waiting:
            self._waiting.popleft()[1](ConnectionLost(cause))
        self.on_lost(cause)


class _Resolve:
    """The sink of a future, which its caller may have cancelled meanwhile."""

    __slots__ = ("_future",)

    def __init__(self, future: asyncio.Future[object]) -> None:
        self._future = future

    def __call__(self, reply: object) -> None:
        if isinstance(reply, (hiredis.ReplyError, ConnectionLost)):
            reject(self._future, reply)
        elif not self._future.done():
            self._future.set_result(reply)


def pack(words: Words) -> bytes:
    """One command as Redis reads it."""
    # hiredis' stub says "a tuple of one".
    return cast("bytes", hiredis.pack_command(words))  # type: ignore[arg-type]


def reject(future: asyncio.Future[Any], error: BaseException) -> None:
    """Fail `future` without asyncio's complaint when its caller went away and never looks at the error."""
    if not future.done():
        future.set_exception(error)
        future.exception()


def set_socket_options(sock: Any) -> None:
    """No Nagle, and a kernel that looks for a dead peer by itself. What a platform does not have is left out."""
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
        ("TCP_USER_TIMEOUT", USER_TIMEOUT_MS),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
