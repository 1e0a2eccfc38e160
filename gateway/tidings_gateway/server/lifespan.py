"""The application's start and end: uvicorn's, except that giving up on it is no error of the application."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from uvicorn.lifespan.on import LifespanOn

log = logging.getLogger("tidings.server")


class Lifespan(LifespanOn):
    async def main(self) -> None:
        scope: dict[str, Any] = {
            "type": "lifespan",
            "asgi": {"version": self.config.asgi_version, "spec_version": "2.0"},
            "state": self.state,
        }
        try:
            await self.config.loaded_app(scope, self.receive, self.send)
        except asyncio.CancelledError:
            # The server did not wait for it any longer, and has said so. Not raised on: nobody awaits this task.
            self.error_occurred = True
        except Exception:
            self.error_occurred = True
            if not (self.startup_failed or self.shutdown_failed):  # else it has said so itself
                log.exception("the application failed in its start or end")
        finally:
            self.startup_event.set()
            self.shutdown_event.set()
