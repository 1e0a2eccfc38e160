"""`python -m tests.server.program '{"settings": {…}, "startup": "hang", …}'`: a server of its own, for signals."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import MutableMapping
from typing import Any

from tests.server.serving import App, Handler, text_frame
from tidings_gateway.server.draining import Draining
from tidings_gateway.server.server import serve
from tidings_gateway.server.settings import ServerSettings
from tidings_gateway.server.socket import Socket


class Program(App):
    """`startup` and `shutdown`: "hang", "fail", "block" (the whole loop), or a number of seconds."""

    def __init__(self, startup: str | float, shutdown: str | float) -> None:
        super().__init__()
        self._startup = startup
        self._shutdown = shutdown
        self.new_handler = lambda: Handler(on_drain=say_goodbye)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            print("starting", flush=True)
            await _act(self._startup)
            await send({"type": "lifespan.startup.complete"})
            await receive()
            print("stopping", flush=True)
            await _act(self._shutdown)
            await send({"type": "lifespan.shutdown.complete"})
            print("stopped", flush=True)
        else:
            await super().__call__(scope, receive, send)


def say_goodbye(socket: Socket) -> None:
    """With the moment it was said: a client on a busy machine hears many at once, whenever they were sent."""
    socket.write(text_frame(f"goodbye {time.monotonic()}"))
    socket.close(1012, "draining")


async def _act(what: str | float) -> None:
    if what == "hang":
        await asyncio.Event().wait()
    elif what == "fail":
        raise RuntimeError("as told")
    elif what == "block":
        time.sleep(60)  # time: a loop that stands still for longer than its test lasts
    elif isinstance(what, (int, float)):
        await asyncio.sleep(what)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stdout)
    told = json.loads(sys.argv[1])
    app = Program(told.get("startup", 0), told.get("shutdown", 0))
    sys.exit(serve(app, ServerSettings(**told["settings"]), Draining()))
