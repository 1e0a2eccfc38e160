"""A load test's socket, against a WebSocket server of the same library."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator

import pytest
from websockets.sync.server import Server, ServerConnection, serve

from loadtest.wire import Closed, Refused, Wire

pytestmark = pytest.mark.timeout(30)


def _serve(connection: ServerConnection) -> None:
    """Answers each frame with itself; asked to, closes, or sends what is no JSON."""
    for message in connection:
        asked = json.loads(message)
        if "close" in asked:
            connection.close(asked["close"], "as asked")
            return
        connection.send("{" if "nonsense" in asked else message)


@pytest.fixture
def url() -> Iterator[str]:
    server: Server = serve(_serve, "127.0.0.1", 0, subprotocols=None)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}/v1/ws"
    server.shutdown()
    thread.join(10)


def heard(wire: Wire, deadline_s: float = 5) -> list[object]:
    return wire.receive(deadline_s)


def test_frames_go_out_and_come_in(url: str) -> None:
    """Each frame is one JSON object; what is no JSON is given as None; and silence is an empty list."""
    wire = Wire.open(url, 5)
    wire.send({"type": "hello"})
    assert heard(wire) == [{"type": "hello"}]
    wire.send({"nonsense": 1})
    assert heard(wire) == [None]
    assert wire.receive(0.01) == []
    wire.close(1000, "")


def test_the_close_code_is_told(url: str) -> None:
    """The server's code and reason."""
    wire = Wire.open(url, 5)
    wire.send({"close": 4409})
    with pytest.raises(Closed) as closed:
        heard(wire)
    assert (closed.value.code, closed.value.reason) == (4409, "as asked")


def test_a_cut_is_1006(url: str) -> None:
    """Without a close frame, as a network that is gone; sending into it harms nobody."""
    wire = Wire.open(url, 5)
    wire.cut()
    wire.send({"type": "hello"})
    with pytest.raises(Closed) as closed:
        heard(wire)
    assert closed.value.code == 1006
    wire.cut()


def test_no_connection_says_why() -> None:
    """Nobody there, and an answer that is no upgrade: `Refused`, with the status where there is one."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer() -> None:
            connection, _ = server.accept()
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
            connection.close()

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with pytest.raises(Refused) as refused:
            Wire.open(f"ws://127.0.0.1:{port}/v1/ws", 5)
        thread.join(5)
    assert refused.value.status == 503
    with pytest.raises(Refused) as nobody:
        Wire.open(f"ws://127.0.0.1:{port}/v1/ws", 5)
    assert nobody.value.status is None
