"""The application's start and end, as the server waits for them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn

from tidings_gateway.server.lifespan import Lifespan


def lifespan(app: Any) -> Lifespan:
    return Lifespan(uvicorn.Config(app, lifespan="on", interface="asgi3", log_config=None, proxy_headers=False))


async def test_start_and_end() -> None:
    """The application runs from before the first request until after the last, and shares a state with them."""
    order: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        order.append((await receive())["type"])
        scope["state"]["shared"] = True
        await send({"type": "lifespan.startup.complete"})
        order.append((await receive())["type"])
        await send({"type": "lifespan.shutdown.complete"})

    running = lifespan(app)
    await running.startup()
    order.append("serving")
    await running.shutdown()
    assert order == ["lifespan.startup", "serving", "lifespan.shutdown"]
    assert running.state == {"shared": True}
    assert not running.should_exit


@pytest.mark.parametrize("completes", [False, True])
async def test_failure(caplog: pytest.LogCaptureFixture, completes: bool) -> None:
    """A failure in the start or the end is logged once with its traceback, and the server is told to end."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        if completes:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        raise ValueError("as told")

    running = lifespan(app)
    await running.startup()
    assert running.should_exit is not completes
    if completes:
        await running.shutdown()
    assert running.should_exit
    assert len([record for record in caplog.records if record.exc_info]) == 1


async def test_given_up(caplog: pytest.LogCaptureFixture) -> None:
    """When the server no longer waits for it, the cancelled application is no error worth a traceback."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.Event().wait()

    running = lifespan(app)
    before = asyncio.all_tasks()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await running.startup()
    (task,) = asyncio.all_tasks() - before
    task.cancel()
    await task
    assert not [record for record in caplog.records if record.exc_info]
