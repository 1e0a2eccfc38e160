"""Scripts on the command connection: what many callers ask for in one tick leaves in one write, and no more is under
way at once than Redis and we can hold.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

import hiredis

from tidings.log.script import Command, Script
from tidings_gateway.bus.resp import ConnectionLost, RespConnection, Sink, Words, pack


def load_commands(scripts: Sequence[Script]) -> list[Words]:
    return [(b"SCRIPT", b"LOAD", script.text) for script in scripts]


_ASKING = pack(("ASKING",))


class QueueFull(Exception):
    """`queued` calls wait already; one more would wait longer than anybody asks for."""

    def __init__(self, queued: int) -> None:
        super().__init__(f"{queued} calls wait for Redis already")
        self.queued = queued


class _Call:
    """A call that waits or is under way; on the wire it is the sink of its own reply."""

    __slots__ = ("asking", "caller", "packed", "reloaded", "runner", "sink")

    def __init__(
        self, runner: ScriptRunner, packed: bytes, sink: Sink, caller: asyncio.Future[Any] | None, asking: bool
    ) -> None:
        self.asking = asking
        self.runner = runner
        self.packed = packed
        self.sink = sink
        self.caller = caller
        self.reloaded = False

    def __call__(self, reply: object) -> None:
        self.runner.answered(self, reply)


class ScriptRunner:
    """`scripts` are loaded when the connection is opened; should Redis forget them (SCRIPT FLUSH, a restart behind a
    proxy), the first call that notices loads them again and is repeated, which is safe: NOSCRIPT means it did not run.

    Calls beyond `max_outstanding` wait in order, at most `max_queued` of them. One whose caller went away is dropped
    as long as it has not been sent; afterwards its reply is.
    """

    def __init__(
        self, connection: RespConnection, scripts: Sequence[Script], *, max_outstanding: int, max_queued: int
    ) -> None:
        self._connection = connection
        self._scripts = scripts
        self._max_outstanding = max_outstanding
        self._max_queued = max_queued
        self._queue: deque[_Call] = deque()
        self._outstanding = 0
        self._flushing = False
        self._reload = False
        self._loop = asyncio.get_running_loop()
        connection.on_writable = self._flush_soon

    @property
    def outstanding(self) -> int:
        return self._outstanding

    @property
    def queued(self) -> int:
        return len(self._queue)

    def run(
        self,
        command: Command,
        sink: Sink,
        *,
        caller: asyncio.Future[Any] | None = None,
        urgent: bool = False,
        asking: bool = False,
    ) -> None:
        """Run a script at the end of this tick. Not sent if `caller` is done by then. `urgent` goes before what waits.
        `asking`: ASKING stands before it, for a slot of a Cluster that is on its way to this server.

        Raises `QueueFull`, never for an urgent call.
        """
        if self._connection.lost:
            sink(ConnectionLost(None))
            return
        if not urgent and len(self._queue) >= self._max_queued:
            raise QueueFull(len(self._queue))
        call = _Call(self, pack(command.evalsha()), sink, caller, asking)
        if urgent:
            self._queue.appendleft(call)
        else:
            self._queue.append(call)
        self._flush_soon()

    def lose(self, error: ConnectionLost) -> None:
        """The connection is gone: whoever still waits is told. Those on the wire were told by the connection."""
        queue, self._queue = self._queue, deque()
        for call in queue:
            call.sink(error)

    def _flush_soon(self) -> None:
        if not self._flushing and self._queue:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._connection.lost or not self._connection.writable:
            return
        commands: list[tuple[bytes, Sink]] = []
        while self._queue and self._outstanding < self._max_outstanding:
            call = self._queue.popleft()
            if call.caller is None or not call.caller.done():
                if call.asking:
                    commands.append((_ASKING, _ignore))
                commands.append((call.packed, call))
                self._outstanding += 1
        if not commands:
            return
        if self._reload:
            self._reload = False
            # Failing to load is not answered here: the calls behind it fail for the same reason and say so.
            commands[:0] = [(pack(words), _ignore) for words in load_commands(self._scripts)]
        self._connection.send_to(commands)

    def answered(self, call: _Call, reply: object) -> None:
        """For the call itself."""
        self._outstanding -= 1
        if isinstance(reply, hiredis.ReplyError) and str(reply).startswith("NOSCRIPT") and not call.reloaded:
            call.reloaded = True
            self._reload = True
            self._queue.appendleft(call)
        else:
            call.sink(reply)
        self._flush_soon()


def _ignore(reply: object) -> None:
    pass
