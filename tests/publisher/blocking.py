"""An `AsyncPublisher` that can be called like a `Publisher`, so that one test is a test of both."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from tidings import AsyncPublisher, Message


class Blocking:
    """Runs an event loop of its own for each publisher."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._runner = asyncio.Runner()
        self._publisher = AsyncPublisher(*arguments, **named)

    def publish(self, *arguments: Any, **named: Any) -> Any:
        return self._runner.run(self._publisher.publish(*arguments, **named))

    def publish_many(self, messages: Iterable[Message]) -> Any:
        return self._runner.run(self._publisher.publish_many(messages))

    def position(self, user: str) -> str:
        return self._runner.run(self._publisher.position(user))

    def close(self) -> None:
        self._runner.run(self._publisher.close())

    def __enter__(self) -> Blocking:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()
        self._runner.close()
