"""A WebSocket connection by hand: for frames no library would send, and for peers that stop reading."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class Ended(Exception):
    """The other side ended the connection: `reset` tells RST from FIN."""

    def __init__(self, reset: bool) -> None:
        super().__init__("reset" if reset else "end of stream")
        self.reset = reset


@dataclass(frozen=True, slots=True)
class RawFrame:
    opcode: int
    payload: bytes
    fin: bool = True
    rsv1: bool = False

    @property
    def json(self) -> Any:
        assert self.opcode == TEXT, f"not a text frame: {self}"
        return json.loads(self.payload)

    @property
    def close(self) -> tuple[int, str]:
        """Code and reason of a close frame (1005 without one)."""
        assert self.opcode == CLOSE, f"not a close frame: {self}"
        if not self.payload:
            return 1005, ""
        return struct.unpack("!H", self.payload[:2])[0], self.payload[2:].decode()


class RawSocket:
    """Nothing is read unless a `recv…` method is running, so not calling one is a peer that has stopped reading.

    Every `recv…` has a deadline in seconds and raises `TimeoutError`; `Ended` when the connection is over.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.status = 0
        self.headers: dict[str, str] = {}
        self._buffer = bytearray()

    @classmethod
    async def tcp(cls, url: str, *, receive_buffer: int | None = None, deadline_s: float = 5) -> Self:
        """Only the TCP connection. `receive_buffer`: SO_RCVBUF, in bytes, set before connecting so that it counts."""
        parts = urlsplit(url)
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            async with asyncio.timeout(deadline_s):
                await asyncio.get_running_loop().sock_connect(sock, (parts.hostname, parts.port))
        except BaseException:
            sock.close()
            raise
        return cls(sock)

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        receive_buffer: int | None = None,
        deadline_s: float = 5,
        expect: int = 101,
    ) -> Self:
        """Connect and upgrade. With another `expect`ed status the answer's body can be read with `body()`."""
        raw = await cls.tcp(url, receive_buffer=receive_buffer, deadline_s=deadline_s)
        try:
            await raw.send_bytes(upgrade_request(url, headers))
            await raw.response(deadline_s)
            assert raw.status == expect, f"HTTP {raw.status}, not {expect}: {bytes(raw._buffer)[:500]!r}"
        except BaseException:
            raw.close()
            raise
        return raw

    async def response(self, deadline_s: float = 5) -> int:
        """Read the head of an HTTP answer into `status` and `headers` (names in lower case)."""
        end = time.monotonic() + deadline_s
        while b"\r\n\r\n" not in self._buffer:
            await self._more(end)
        head, _, rest = bytes(self._buffer).partition(b"\r\n\r\n")
        self._buffer[:] = rest
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split(" ", 2)[1])
        self.headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
        }
        return self.status

    async def body(self, deadline_s: float = 5) -> bytes:
        """The body of an HTTP answer, by its Content-Length."""
        end = time.monotonic() + deadline_s
        size = int(self.headers.get("content-length", "0"))
        while len(self._buffer) < size:
            await self._more(end)
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    # Sending

    async def send_bytes(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def send_frame(
        self, opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0, masked: bool = True
    ) -> None:
        await self.send_bytes(encode_frame(opcode, payload, fin=fin, rsv=rsv, masked=masked))

    async def send_text(self, text: str) -> None:
        await self.send_frame(TEXT, text.encode())

    async def send_json(self, frame: Any) -> None:
        await self.send_text(json.dumps(frame))

    async def hello(self, token: str | None = None, position: str | None = None, **members: Any) -> None:
        frame = {"type": "hello", "token": token, "position": position, **members}
        await self.send_json({name: value for name, value in frame.items() if value is not None})

    # Receiving

    async def recv_frame(self, deadline_s: float = 5) -> RawFrame:
        """The next frame as it is on the wire, control frames included; fragments are not joined."""
        end = time.monotonic() + deadline_s
        while (size := self._frame_size()) is None or len(self._buffer) < size[0] + size[1]:
            await self._more(end)
        head, length = size
        first = self._buffer[0]
        payload = bytes(self._buffer[head : head + length])
        assert not self._buffer[1] & 0x80, "a server must not mask"
        del self._buffer[: head + length]
        return RawFrame(first & 0x0F, payload, bool(first & 0x80), bool(first & 0x40))

    async def recv_json(self, deadline_s: float = 5) -> Any:
        """The next text frame, parsed. A close frame raises `AssertionError` with its code."""
        frame = await self.recv_frame(deadline_s)
        assert frame.opcode != CLOSE, f"closed: {frame.close}"
        return frame.json

    async def recv_until(self, kind: str, deadline_s: float = 5) -> list[Any]:
        """Text frames up to and including the first of this type."""
        end = time.monotonic() + deadline_s
        frames: list[Any] = []
        while not frames or frames[-1]["type"] != kind:
            frames.append(await self.recv_json(max(0.001, end - time.monotonic())))
        return frames

    async def recv_close(self, deadline_s: float = 5) -> tuple[int, str]:
        """Skip whatever comes before the close frame and return its code and reason."""
        end = time.monotonic() + deadline_s
        while (frame := await self.recv_frame(max(0.001, end - time.monotonic()))).opcode != CLOSE:
            pass
        return frame.close

    async def recv_end(self, deadline_s: float = 5) -> bool:
        """Skip everything until the connection is over; True when it was reset."""
        end = time.monotonic() + deadline_s
        try:
            while True:
                self._buffer.clear()
                await self._more(end)
        except Ended as ended:
            return ended.reset

    async def nothing(self, for_s: float = 0.2) -> None:
        """Nothing comes for so long."""
        try:
            frame = await self.recv_frame(for_s)
        except TimeoutError:
            return
        raise AssertionError(f"unexpected: {frame}")

    def _frame_size(self) -> tuple[int, int] | None:
        data = self._buffer
        if len(data) < 2:
            return None
        length = data[1] & 0x7F
        if length < 126:
            return 2, length
        head = 4 if length == 126 else 10
        if len(data) < head:
            return None
        return head, int.from_bytes(data[2:head], "big")

    async def _more(self, end: float) -> None:
        try:
            async with asyncio.timeout(end - time.monotonic()):
                data = await asyncio.get_running_loop().sock_recv(self.sock, 65536)
        except ConnectionError:
            raise Ended(reset=True) from None
        if not data:
            raise Ended(reset=False)
        self._buffer += data

    # Ending

    def reset(self) -> None:
        """RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self) -> None:
        """FIN, without a WebSocket close frame."""
        self.sock.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def upgrade_request(url: str, headers: Mapping[str, str] | None = None) -> bytes:
    """An upgrade request; `headers` are added or replace the usual ones (names compared as written)."""
    parts = urlsplit(url)
    lines = {
        "Host": f"{parts.hostname}:{parts.port}",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Protocol": "tidings.v1",
        **(headers or {}),
    }
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"GET {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1")


def encode_frame(opcode: int, payload: bytes, *, fin: bool = True, rsv: int = 0, masked: bool = True) -> bytes:
    """One frame as a client sends it, or with `masked=False` as it must not."""
    head = bytearray([(0x80 if fin else 0) | (rsv << 4) | opcode])
    flag = 0x80 if masked else 0
    if len(payload) < 126:
        head.append(flag | len(payload))
    elif len(payload) < 65536:
        head.append(flag | 126)
        head += len(payload).to_bytes(2, "big")
    else:
        head.append(flag | 127)
        head += len(payload).to_bytes(8, "big")
    if not masked:
        return bytes(head) + payload
    mask = os.urandom(4)
    repeated = mask * (len(payload) // 4 + 1)
    key = int.from_bytes(repeated[: len(payload)], "big")
    return bytes(head) + mask + (int.from_bytes(payload, "big") ^ key).to_bytes(len(payload), "big")
