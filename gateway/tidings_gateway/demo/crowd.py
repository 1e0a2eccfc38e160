"""The demo's other tabs. One tab that leaves a gateway shows little; two dozen that leave one by one show a drain.

Each is a real connection through the front, by the rules for clients: it resumes from its position, answers heartbeats
and comes back after a random part of the time it was told to wait. They only look on: nothing is published to them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException
from websockets.typing import Subprotocol

log = logging.getLogger("tidings.demo")

TABS = 24
ARRIVE_WITHIN_S = 1.5
RETRY_S = 1.0
"""Until a gateway said something else; the real wait is a random part of it."""
MAX_RETRY_S = 10.0
OPEN_TIMEOUT_S = 10.0


@dataclass(slots=True)
class Tab:
    """One onlooker. `position` is what it resumes from; `retry_s` the window of its next attempt."""

    user: str
    position: str | None = None
    retry_s: float = RETRY_S

    def answer(self, frame: dict[str, Any]) -> dict[str, Any] | None:
        """Takes one frame of the gateway in; returns what is to be said to it."""
        position = frame.get("position")
        if isinstance(position, str):
            self.position = position
        if frame["type"] == "goodbye":
            self.retry_s = min(frame.get("retry_ms", RETRY_S * 1000) / 1000, MAX_RETRY_S)
        if frame["type"] == "heartbeat":
            return {"type": "heartbeat", "position": self.position}
        return None


class Crowd:
    """`start` lets them come, spread over `ARRIVE_WITHIN_S`; `close` ends them."""

    def __init__(
        self, url: str, mint: Callable[[str], str], size: int = TABS, rng: random.Random | None = None
    ) -> None:
        self._url = url
        self._mint = mint
        self._rng = rng or random.SystemRandom()
        self._tabs = [Tab(f"onlooker-{number}") for number in range(1, size + 1)]
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        for tab in self._tabs:
            task = asyncio.create_task(self._live(tab))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("an onlooker of the demo ended with an error", exc_info=error)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _live(self, tab: Tab) -> None:
        await asyncio.sleep(self._rng.random() * ARRIVE_WITHIN_S)
        while True:
            # Refused, cut or told to leave: for an onlooker there is one answer, to come back.
            with contextlib.suppress(OSError, TimeoutError, WebSocketException):
                tab.retry_s = RETRY_S
                await self._look_on(tab)
            await asyncio.sleep(self._rng.random() * tab.retry_s)

    async def _look_on(self, tab: Tab) -> None:
        async with connect(
            self._url,
            subprotocols=[Subprotocol("tidings.v1")],
            compression=None,
            ping_interval=None,  # the contract has heartbeats of its own
            open_timeout=OPEN_TIMEOUT_S,
            close_timeout=1,
            proxy=None,
        ) as socket:
            await _say(socket, {"type": "hello", "token": self._mint(tab.user), "position": tab.position})
            async for text in socket:
                if (answer := tab.answer(orjson.loads(text))) is not None:
                    await _say(socket, answer)


async def _say(socket: ClientConnection, frame: dict[str, Any]) -> None:
    told = {name: value for name, value in frame.items() if value is not None}
    await socket.send(orjson.dumps(told).decode())
