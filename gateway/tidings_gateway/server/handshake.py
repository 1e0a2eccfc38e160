"""A WebSocket between its request and its own life: the application decides, in ASGI's words.

    WAITING --accept--> ACCEPTED --attach--> ENDED      a `Socket` owns the transport
       |                    +------close----> ENDED      the same, and it is closed at once
       +--close, http.response, error, deadline, drain--> ENDED     an HTTP answer, and the connection closes

Besides ASGI's own messages there is the extension ``scope["extensions"]["tidings.attach"]["attach"](handler)``. Called
after accept, it makes the connection a `Socket` of that handler; then the application returns. A socket that is not
attached cannot send or receive.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HEADER_RE, HEADER_VALUE_RE
from uvicorn.protocols.utils import ClientDisconnected

from tidings_gateway.core.closing import SERVER_FAULT
from tidings_gateway.server.socket import SILENT
from tidings_gateway.server.upgrade import Refusal, Upgrade, response, switching

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping

    from tidings_gateway.server.socket import Socket, SocketHandler
    from tidings_gateway.server.state import GatewayState
    from tidings_gateway.server.upgrade import Header

    Message = MutableMapping[str, Any]
    Application = Callable[
        [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
        Awaitable[None],
    ]

log = logging.getLogger("tidings.server")

ATTACH = "tidings.attach"


class Stage(enum.IntEnum):
    WAITING = 0
    ACCEPTED = 1
    ENDED = 2


class Handshake(asyncio.Protocol):
    """The transport's protocol while the application decides. Reading is paused all the time."""

    __slots__ = (
        "_connected",
        "_denial",
        "_early",
        "_ended",
        "_key",
        "_lost",
        "_stage",
        "_state",
        "_task",
        "_transport",
    )

    def __init__(
        self,
        state: GatewayState,
        transport: asyncio.Transport,
        upgrade: Upgrade,
        early: bytes,
    ) -> None:
        """`early` came behind the request."""
        self._state = state
        self._transport = transport
        self._key = upgrade.key
        self._early = early
        self._stage = Stage.WAITING
        self._lost = False
        self._connected = False
        self._denial: tuple[int, list[Header], bytearray] | None = None
        self._ended: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, app: Application, scope: MutableMapping[str, Any], subprotocols: list[str]) -> None:
        """`scope` is the request's, parsed; it becomes a websocket scope here. It is not kept: it refers to us."""
        scope["type"] = "websocket"
        scope["scheme"] = "wss" if scope["scheme"] == "https" else "ws"
        scope["subprotocols"] = subprotocols
        scope["extensions"] = {"websocket.http.response": {}, ATTACH: {"attach": self.attach}}
        del scope["method"]
        state = self._state
        state.handshakes.add(self)
        state.handshake_deadlines.start(self)
        self._task = asyncio.get_running_loop().create_task(self._run(app, scope))
        state.tasks.add(self._task)
        self._task.add_done_callback(state.tasks.discard)

    async def _run(self, app: Application, scope: MutableMapping[str, Any]) -> None:
        try:
            await app(scope, self._receive, self._send)
        except ClientDisconnected:
            pass  # The answer came after the end. The application need not have known.
        except asyncio.CancelledError:
            self._give_up(Refusal(503, "The server gave up on this handshake."))
        except Exception:
            log.exception("the application failed in a WebSocket handshake")
            self._give_up(Refusal(500, "The handshake failed."))
        else:
            if self._stage is not Stage.ENDED:
                log.error("the application returned from a WebSocket handshake without attaching or closing it")
                self._give_up(Refusal(500, "The handshake failed."))
        finally:
            self._end()

    def _give_up(self, refusal: Refusal) -> None:
        if self._stage is Stage.ACCEPTED:
            self.attach(SILENT).close(SERVER_FAULT.code, SERVER_FAULT.reason)
        else:
            self.refuse(refusal)

    # ASGI

    async def _receive(self) -> Message:
        if not self._connected:
            self._connected = True
            return {"type": "websocket.connect"}
        if self._stage is not Stage.ENDED:
            self._ended = asyncio.Event()
            await self._ended.wait()
        return {"type": "websocket.disconnect", "code": 1006, "reason": ""}

    async def _send(self, message: Message) -> None:
        kind = message["type"]
        if self._stage is Stage.ENDED or self._lost:
            raise ClientDisconnected
        match kind:
            case "websocket.accept" if self._stage is Stage.WAITING and self._denial is None:
                self._accept(message)
            case "websocket.close" if self._stage is Stage.ACCEPTED:
                self.attach(SILENT).close(message.get("code") or 1000, message.get("reason") or "")
            case "websocket.close" if self._denial is None:
                self.refuse(Refusal(403, "The handshake was refused."))
            case "websocket.http.response.start" if self._stage is Stage.WAITING and self._denial is None:
                self._denial = (message["status"], _checked(message.get("headers", ())), bytearray())
            case "websocket.http.response.body" if self._denial is not None:
                status, headers, body = self._denial
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    self._answer(response(status, [*self._state.default_headers, *headers], bytes(body)))
            case _:
                raise RuntimeError(f"{kind!r} is not possible in a WebSocket handshake that is {self._stage.name}")

    def _accept(self, message: Message) -> None:
        headers = _checked(message.get("headers", ()))
        subprotocol = message.get("subprotocol")
        if subprotocol is not None:
            headers += _checked([(b"sec-websocket-protocol", subprotocol.encode("latin-1"))])
        self._stage = Stage.ACCEPTED
        self._transport.write(switching(self._key, headers))

    def attach(self, handler: SocketHandler) -> Socket:
        """The extension. Raises `RuntimeError` before accept, and when called twice."""
        if self._stage is not Stage.ACCEPTED:
            raise RuntimeError(f"cannot attach to a WebSocket handshake that is {self._stage.name}")
        self._end()
        early, self._early = self._early, b""
        return self._state.open.attach(self._transport, handler, early, lost=self._lost)

    # Endings

    def refuse(self, refusal: Refusal) -> None:
        """Answer instead of the application. Does nothing once there is an answer."""
        if self._stage is Stage.WAITING:
            self._answer(refusal.encode(self._state.default_headers))

    def answer_late(self) -> None:
        if self._stage is Stage.WAITING:
            log.error("the application did not answer a WebSocket handshake in time")
        # Cancelled only now: the answer of an application that catches this must find the handshake ended.
        self.refuse(Refusal(503, "The server did not decide in time."))
        if self._task is not None:
            self._task.cancel()

    def _answer(self, data: bytes) -> None:
        self._end()
        if not self._lost:
            self._transport.write(data)
            self._transport.close()

    def _end(self) -> None:
        self._stage = Stage.ENDED
        self._state.handshakes.discard(self)
        self._state.handshake_deadlines.stop(self)
        if self._ended is not None:
            self._ended.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - RST or FIN: the end is the same
        self._lost = True
        if self._ended is not None:
            self._ended.set()


def _checked(headers: Iterable[tuple[bytes, bytes]]) -> list[Header]:
    checked = [(bytes(name).lower(), bytes(value)) for name, value in headers]
    for name, value in checked:
        if HEADER_RE.search(name) or HEADER_VALUE_RE.search(value):
            raise RuntimeError(f"not a valid header: {name!r}")
    return checked
