"""The demo's gateways: real `tidings serve` processes, started again whenever one ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidings_gateway.embedded import die_with_parent

log = logging.getLogger("tidings.demo")

START_DEADLINE_S = 20.0
STOP_DEADLINE_S = 10.0
PROBE_EVERY_S = 0.2
PROBE_TIMEOUT_S = 1.0
RESTART_PAUSE_S = 0.5
"""A gateway that cannot start is tried again at this pace, not in a tight loop."""

_LISTENING = b"listening on http://"


@dataclass(slots=True)
class GatewayProcess:
    """One gateway and its fate. `state` is starting, ready, unready, draining or dead."""

    name: str
    environ: Mapping[str, str]
    state: str = "dead"
    port: int = 0
    starts: int = 0
    _process: asyncio.subprocess.Process | None = field(default=None, repr=False)
    _stopping: bool = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def run(self) -> None:
        """Keep one process going until `stop`."""
        while not self._stopping:
            await self._start()
            process = self._process
            assert process is not None
            probing = asyncio.create_task(self._probe())
            try:
                code = await process.wait()
            finally:
                probing.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await probing
            draining, self.state = self.state == "draining", "dead"
            if not self._stopping:
                if code != 0:
                    log.warning("gateway %s ended with %d and is started again", self.name, code)
                if not draining:
                    await asyncio.sleep(RESTART_PAUSE_S)

    async def _start(self) -> None:
        self.state = "starting"
        self.starts += 1
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tidings",
            "serve",
            env={**_without_tidings(os.environ), **self.environ, "TIDINGS_GATEWAY_NAME": self.name},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            # Ctrl-C must reach us first, so that the end is in order.
            start_new_session=True,
            preexec_fn=die_with_parent(),
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_DEADLINE_S):
                self.port = await self._port_from_output()

    async def _port_from_output(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if line.startswith(_LISTENING):
                return int(line.rsplit(b":", 1)[1])
        return 0

    async def _probe(self) -> None:
        """Follow /readyz. Only a gateway that says it is ready gets newcomers."""
        while True:
            ready = await self._ask_ready()
            if self.state != "draining":
                self.state = "ready" if ready else "starting" if self.state == "starting" else "unready"
            await asyncio.sleep(PROBE_EVERY_S)

    async def _ask_ready(self) -> bool:
        if not self.port:
            return False
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                try:
                    writer.write(b"GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
                    return (await reader.readline()).startswith(b"HTTP/1.1 200")
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return False

    def terminate(self) -> None:
        """SIGTERM: it drains, ends, and is started again."""
        if self._process is not None and self._process.returncode is None:
            self.state = "draining"
            self._process.send_signal(signal.SIGTERM)

    async def stop(self) -> None:
        """End it for good; without waiting for its drain."""
        self._stopping = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_DEADLINE_S / 4):
                    await process.wait()
                    return


def _without_tidings(environ: Mapping[str, str]) -> dict[str, str]:
    """The demo shows what the package does by itself, whatever is set for another gateway."""
    return {name: text for name, text in environ.items() if not name.startswith("TIDINGS_")}


async def rolling_restart(gateways: list[GatewayProcess]) -> None:
    """What a deploy does: one after the other, each only when the one before it takes newcomers again."""
    for gateway in gateways:
        starts = gateway.starts
        gateway.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_DEADLINE_S + STOP_DEADLINE_S):
                while gateway.starts == starts or gateway.state != "ready":  # noqa: ASYNC110 - two plain fields
                    await asyncio.sleep(PROBE_EVERY_S / 4)
