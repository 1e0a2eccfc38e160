"""`tidings demo`: puts the pieces on the stage and takes them down again, in order, whatever ends it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import signal
import socket
from collections.abc import AsyncIterator
from typing import Any

import click
import redis.asyncio
import uvicorn
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tidings import AsyncPublisher
from tidings.log.eventlog import EventLog
from tidings.log.names import Names
from tidings.log.script import Command
from tidings.tokens import mint_token
from tidings_gateway.assets import MissingAsset, load_directory
from tidings_gateway.demo.backend import TOKEN_TTL_S, Stage, create_backend
from tidings_gateway.demo.crowd import Crowd
from tidings_gateway.demo.front import Front
from tidings_gateway.demo.gateways import GatewayProcess
from tidings_gateway.demo.jobs import Worker
from tidings_gateway.embedded import EmbeddedValkey

log = logging.getLogger("tidings.demo")

GATEWAYS = ("A", "B")
READY_DEADLINE_S = 30.0
REDIS_TIMEOUT_S = 2.0


def run_demo(port: int) -> int:
    """Runs until Ctrl-C or SIGTERM; returns the exit code. In the main thread (see `embedded.die_with_parent`).

    Raises `MissingAsset` and `EmbeddedError`.
    """
    files = load_directory("demo")
    if "index.html" not in files:
        raise MissingAsset("demo/index.html")
    with EmbeddedValkey() as valkey:
        asyncio.run(_run(port, valkey, files))
    return 0


async def _run(port: int, valkey: EmbeddedValkey, files: dict[str, Any]) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    origins = (f"http://127.0.0.1:{port}", f"http://localhost:{port}")
    secret = secrets.token_urlsafe(32)
    gateways = [GatewayProcess(name, _environ(valkey, secret, origins)) for name in GATEWAYS]
    async with contextlib.AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(AsyncPublisher(valkey.url))
        event_log = await stack.enter_async_context(_event_log(valkey.url))
        worker = Worker(publisher)
        stack.push_async_callback(worker.close)
        stage = Stage(publisher, event_log, worker, gateways, valkey, secret, origins)
        stack.push_async_callback(stage.close)
        backend_port = await stack.enter_async_context(_serve(create_backend(stage, files)))
        front = Front(backend_port, lambda: [each.port for each in gateways if each.state == "ready"])
        stage.tabs = front.tabs
        await front.start(port)
        stack.push_async_callback(front.stop)
        crowd = Crowd(f"ws://127.0.0.1:{port}/v1/ws", lambda user: mint_token(user, ttl_s=TOKEN_TTL_S, secret=secret))
        stack.push_async_callback(crowd.close)
        await stack.enter_async_context(_kept_running(gateways, ended))
        if await _ready(gateways, ended):
            crowd.start()
            click.echo(f"The demo is at {origins[0]}/ (also under localhost). Ctrl-C ends it.")
            await ended.wait()
        click.echo("ending")


def _environ(valkey: EmbeddedValkey, secret: str, origins: tuple[str, ...]) -> dict[str, str]:
    return {
        "TIDINGS_REDIS_URL": valkey.url,
        "TIDINGS_LISTEN": "127.0.0.1:0",
        "TIDINGS_ADMIN_LISTEN": "",
        "TIDINGS_JWT_SECRET": secret,
        "TIDINGS_API_KEY": secrets.token_urlsafe(32),
        "TIDINGS_ALLOWED_ORIGINS": ",".join(origins),
        # A restart that can be watched: seconds, where a real one takes half a minute.
        "TIDINGS_DRAIN_GRACE_MS": "1000",
        "TIDINGS_DRAIN_WINDOW_MS": "3000",
        "TIDINGS_RETRY_MS": "1000",
        "TIDINGS_LOG_LEVEL": "error",
    }


@contextlib.asynccontextmanager
async def _event_log(url: str) -> AsyncIterator[EventLog]:
    client: Any = redis.asyncio.Redis.from_url(
        url,
        socket_timeout=REDIS_TIMEOUT_S,
        socket_connect_timeout=REDIS_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
        decode_responses=False,
    )

    async def run(command: Command) -> Any:
        try:
            return await client.execute_command(*command.evalsha())
        except redis.exceptions.NoScriptError:
            await client.script_load(command.script.text)
            return await client.execute_command(*command.evalsha())
        except redis.exceptions.TimeoutError as error:
            raise TimeoutError(str(error)) from error
        except redis.exceptions.ConnectionError as error:
            raise ConnectionError(str(error)) from error

    try:
        yield EventLog(run, Names(), rng=random.SystemRandom())
    finally:
        await client.aclose()


class _Backend(uvicorn.Server):
    """Without signal handlers: they are ours."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


@contextlib.asynccontextmanager
async def _serve(app: Any) -> AsyncIterator[int]:
    """Serve the application on a port of its own, which is what comes out."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", server_header=False, ws="none")
    server = _Backend(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield int(listener.getsockname()[1])
    finally:
        server.should_exit = True
        server.force_exit = True
        await serving
        listener.close()


@contextlib.asynccontextmanager
async def _kept_running(gateways: list[GatewayProcess], ended: asyncio.Event) -> AsyncIterator[None]:
    """A keeper per gateway. One that fails ends the demo: a gateway that nobody starts again would only look broken."""

    def keeper_ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a gateway can no longer be started", exc_info=error)
            ended.set()

    keepers = [asyncio.create_task(gateway.run()) for gateway in gateways]
    for keeper in keepers:
        keeper.add_done_callback(keeper_ended)
    try:
        yield
    finally:
        await asyncio.gather(*(gateway.stop() for gateway in gateways))
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)


async def _ready(gateways: list[GatewayProcess], ended: asyncio.Event) -> bool:
    """False when it was ended before. After the deadline the page shows what is missing."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(READY_DEADLINE_S):
            while not ended.is_set() and any(gateway.state != "ready" for gateway in gateways):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    return not ended.is_set()
