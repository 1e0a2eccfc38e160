"""The server: uvicorn's, with an orderly end.

The first SIGTERM or SIGINT starts the drain; a second ends the process at once, cutting everybody off; a third does
not even run what is left of the shutdown. Exit code: 0 after a drain (or when asked to end before it had started),
1 when it was ended at once, or when the application could not start, could not stop, or did not in its time.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import random
import signal
import socket as _socket
import sys
import threading
import time
from email.utils import formatdate
from typing import TYPE_CHECKING, cast

import uvicorn

from tidings_gateway.server.drain import Drain, LoopClock
from tidings_gateway.server.draining import Draining, Phase
from tidings_gateway.server.http import HttpProtocol
from tidings_gateway.server.lifespan import Lifespan
from tidings_gateway.server.settings import ServerSettings
from tidings_gateway.server.state import GatewayState

if TYPE_CHECKING:
    import socket
    from collections import Counter
    from collections.abc import Callable
    from types import FrameType

    from uvicorn._types import ASGIApplication

    from tidings_gateway.server.handshake import Application

log = logging.getLogger("tidings.server")

FORCED_S = 2.0
"""After a second signal: the longest the process still takes."""
WATCHDOG_S = 0.5
"""Past its time, a process that does not end by itself is ended: an application may hang in its own shutdown."""


class GatewayServer(uvicorn.Server):
    """Serves one application. `draining` is made by the caller, who shows it to the application too; so is `refused`,
    which counts the upgrades that were not taken."""

    def __init__(
        self, app: Application, settings: ServerSettings, draining: Draining, refused: Counter[str] | None = None
    ) -> None:
        config = configure(app, settings)
        config.load()
        config.lifespan_class = Lifespan
        super().__init__(config)
        self.settings = settings
        self.draining = draining
        self.refused = refused
        self.exit_code = 0
        self.port = 0
        """The port in use, once `started`."""
        self.state: GatewayState
        """Once the loop runs."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        self._forced = asyncio.Event()
        self._ticking: asyncio.TimerHandle | None = None
        self._served = False
        self._signals = 0
        self._starting: asyncio.Timeout | None = None
        self._own_process = False

    # Signals

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - both signals mean the same
        """uvicorn's name for its signal handler. What it captures it raises again, and exits with -15: so nothing is
        captured here."""
        self._signals += 1
        if self._signals == 1:
            self.stop()
        elif self._signals == 2:
            self.stop_now()
        else:
            os._exit(1)

    def stop(self) -> None:
        """Start the drain. From any thread, and from a signal handler."""
        self.should_exit = True
        self._end_within(self.settings.drain_total_ms / 1000 + WATCHDOG_S)
        self._wake()

    def stop_now(self) -> None:
        """End as fast as possible, without goodbyes."""
        self.should_exit = True
        self.force_exit = True
        self.exit_code = 1
        self._end_within(FORCED_S)
        self._wake()

    def _wake(self) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # closed already: then it has ended anyway
                self._loop.call_soon_threadsafe(self._on_stop)

    def _on_stop(self) -> None:
        self._woken.set()
        if self.force_exit:
            self._forced.set()
        if self._starting is not None:
            limit_s = FORCED_S / 2 if self.force_exit else self.settings.drain_stop_ms / 1000
            self._starting.reschedule(asyncio.get_running_loop().time() + limit_s)

    def _end_within(self, limit_s: float) -> None:
        if self._own_process:
            watchdog = threading.Timer(limit_s, _end_process, (limit_s,))
            watchdog.daemon = True
            watchdog.start()

    def _asked_to_end(self) -> bool:
        return self.should_exit

    # From start to end, in the order uvicorn calls them

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self.state = GatewayState(self.settings, self.draining, self._loop, self.refused)
        self.server_state = self.state
        if self._asked_to_end():
            return
        self._tick()
        try:
            async with asyncio.timeout(None) as self._starting:
                await super().startup(sockets)
        except TimeoutError:
            log.warning("asked to end while the application was starting, which takes too long; giving up on it")
            return
        finally:
            self._starting = None
        if self._asked_to_end():
            return
        self._prepare_listeners()
        if self._own_process:
            # What is there now stays: the collector need not look at it again, nor touch its pages.
            gc.collect()
            gc.freeze()
        self._served = True
        self._announce()

    async def main_loop(self) -> None:
        while not self.should_exit:  # `should_exit` may also be set by hand, without a wake
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._woken.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain, then stop. uvicorn's own way closes every socket in the same moment and waits for the rest without
        a bound."""
        if self._served and not self.force_exit:
            await self._drain()
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        await self._stop_connections()
        await self._stop_application()
        if self._ticking is not None:
            self._ticking.cancel()

    async def _drain(self) -> None:
        drain = Drain(self.state, self.draining, self.settings, clock=LoopClock(), rng=random.SystemRandom())
        draining = asyncio.create_task(drain.run())
        forced = asyncio.create_task(self._forced.wait())
        await asyncio.wait({draining, forced}, return_when=asyncio.FIRST_COMPLETED)
        for task in (draining, forced):
            task.cancel()
        for result in await asyncio.gather(draining, forced, return_exceptions=True):
            if isinstance(result, Exception):
                log.error("the drain failed; everybody is cut off", exc_info=result)

    async def _stop_connections(self) -> None:
        state = self.state
        self.draining.enter(Phase.STOPPING)
        limit_s = 0.1 if self.force_exit else self.settings.drain_stop_ms / 4000
        for connection in list(state.connections):
            connection.shutdown()
        if not self.force_exit:
            await _until(lambda: not state.tasks and not state.connections, limit_s)
        if tasks := list(state.tasks):
            log.warning("%d requests did not end in time and are cut off", len(tasks))
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=limit_s)
        for socket in state.open:
            socket.abort()
        for connection in list(state.connections):
            connection.transport.abort()
        await _until(lambda: not state.open and not state.connections, limit_s)
        state.close()

    async def _stop_application(self) -> None:
        limit_s = FORCED_S / 2 if self.force_exit else self.settings.drain_stop_ms / 2000
        try:
            async with asyncio.timeout(limit_s):
                await self.lifespan.shutdown()
        except TimeoutError:
            log.error("the application's shutdown takes longer than %g s; going without it", limit_s)
            self.exit_code = 1
        if self.lifespan.should_exit:
            self.exit_code = 1

    def _prepare_listeners(self) -> None:
        for server in self.servers:
            for listener in server.sockets:
                if self.settings.send_buffer_bytes:
                    # Every connection inherits it from the listener (tcp(7)), so it costs nothing per connection.
                    listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDBUF, self.settings.send_buffer_bytes)
                self.port = listener.getsockname()[1]

    def _announce(self) -> None:
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        sys.stdout.write(f"listening on http://{host}:{self.port}\n")
        sys.stdout.flush()

    def _tick(self) -> None:
        self.state.default_headers = [(b"date", formatdate(time.time(), usegmt=True).encode())]
        self._ticking = asyncio.get_running_loop().call_later(1.0, self._tick)

    # A process of its own

    def run_process(self) -> int:
        """Serve until a signal ends it. Returns the exit code. Call it in the main thread, once per process."""
        self._own_process = True
        # Before there is a loop, and still after it is gone: no signal finds the default action, which would end the
        # process with -15.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.handle_exit)
        try:
            self.run()
        except SystemExit as start_failed:  # uvicorn's way to say so, with a code of its own
            return 1 if start_failed.code else 0
        return self.exit_code


def serve(app: Application, settings: ServerSettings, draining: Draining, refused: Counter[str] | None = None) -> int:
    """`GatewayServer.run_process` in one call."""
    return GatewayServer(app, settings, draining, refused).run_process()


def configure(app: Application, settings: ServerSettings) -> uvicorn.Config:
    """Everything uvicorn would take from the environment or from its defaults, said outright."""
    return uvicorn.Config(
        cast("ASGIApplication", app),
        host=settings.host,
        port=settings.port,
        http=HttpProtocol,
        ws="none",  # upgrades are `HttpProtocol`'s; no deflate, no 16 MiB messages
        lifespan="on",
        interface="asgi3",
        log_config=None,
        access_log=False,  # it would hold tickets
        workers=1,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies,
        server_header=False,
        root_path=settings.base_path.rstrip("/"),
        backlog=settings.backlog,
    )


async def _until(predicate: Callable[[], bool], limit_s: float) -> None:
    loop = asyncio.get_running_loop()
    ends = loop.time() + limit_s
    while not predicate() and loop.time() < ends:  # noqa: ASYNC110 - uvicorn's sets announce nothing
        await asyncio.sleep(0.01)


def _end_process(limit_s: float) -> None:
    log.critical("the process did not end within %g s and is ended now", limit_s)
    logging.shutdown()
    os._exit(1)
