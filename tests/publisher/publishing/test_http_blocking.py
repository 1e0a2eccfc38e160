"""Exchanges over HTTP, one at a time."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from tests.publisher.stub import StubGateway
from tests.support.proxy import FaultProxy, ThreadedProxy
from tests.support.tls import TlsRelay
from tests.support.tokens import API_KEY
from tests.support.waiting import BUSY_S
from tidings.errors import InvalidSetting
from tidings.publishing.http_blocking import MAX_ANSWER_BYTES, BlockingHttp
from tidings.publishing.http_wire import HttpRequest

ASK = HttpRequest("GET", "/v1/position?user=a", None, {"authorization": f"Bearer {API_KEY}"})


def test_a_connection_is_used_again() -> None:
    """Kept alive, unless the gateway says it closes."""
    with StubGateway() as stub:
        transport = BlockingHttp(stub.url, 5)
        for _ in range(5):
            assert transport.run(ASK, 5).answers[0].status == 200
        assert stub.connections == 1
        stub.canned.append((200, {"connection": "close"}, b"{}"))
        transport.run(ASK, 5)
        transport.run(ASK, 5)
        assert stub.connections == 2
        transport.close()


def test_an_answer_that_drips(valkey: object) -> None:
    """Head or body, byte by byte: the deadline is for all of it."""
    with StubGateway() as stub, ThreadedProxy(stub.port) as proxy:
        transport = BlockingHttp(f"http://127.0.0.1:{proxy.port}", 1)
        proxy.call(lambda faults: faults.throttle(5, "down"))
        start = time.monotonic()
        outcome = transport.run(ASK, 0.4)
        assert time.monotonic() - start < 0.4 + BUSY_S
        assert outcome.failure is not None
        assert (outcome.failure.code, outcome.failure.sent) == ("timeout", True)
        transport.close()


def test_an_answer_without_end() -> None:
    """What answers may be anything: more than any gateway says is not kept."""
    with StubGateway() as stub:
        stub.canned.append((200, {}, b"x" * (MAX_ANSWER_BYTES + 200_000)))
        transport = BlockingHttp(stub.url, 1)
        outcome = transport.run(ASK, 10)
        assert outcome.failure is not None
        assert (outcome.failure.code, outcome.failure.final) == ("bad_answer", True)
        transport.close()


@pytest.mark.parametrize(
    "reply", [b"", b"+PONG\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"]
)
def test_what_is_no_http(reply: bytes) -> None:
    """Nonsense, and half an answer, are failures after sending; they do not raise."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(10_000)
                connection.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        transport = BlockingHttp(f"http://127.0.0.1:{listener.getsockname()[1]}", 1)
        outcome = transport.run(ASK, 5)
        thread.join()
        assert outcome.failure is not None
        assert outcome.failure.sent
        transport.close()


def test_waiting_for_a_connection_is_not_having_sent() -> None:
    """When all connections are in use until time is up, nothing was sent."""
    with StubGateway() as stub:
        stub.hangs = True
        transport = BlockingHttp(stub.url, 1)
        busy = threading.Thread(target=transport.run, args=(ASK, 5))
        busy.start()
        while not stub.requests:
            time.sleep(0)
        outcome = transport.run(ASK, 0.1)
        assert outcome.failure is not None
        assert (outcome.failure.code, outcome.failure.sent) == ("busy", False)
        stub.hangs = False
        stub.released.set()
        busy.join()
        transport.close()


def test_a_connection_that_ended_meanwhile_is_not_used() -> None:
    """It would look like a request whose outcome is unknown."""
    with StubGateway() as stub, ThreadedProxy(stub.port) as proxy:
        transport = BlockingHttp(f"http://127.0.0.1:{proxy.port}", 1)
        transport.run(ASK, 5)
        proxy.call(FaultProxy.reset)
        proxy.call(FaultProxy.reset)  # answered in a later round of the proxy's loop, when the sockets are closed
        assert transport.run(ASK, 5).answers[0].status == 200
        transport.close()


def test_https(tls: TlsRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate is checked against those the system trusts: one that is not is final, and nothing was sent."""
    with StubGateway() as stub:
        url = f"https://127.0.0.1:{tls.relay_to(stub.port)}"
        transport = BlockingHttp(url, 1)
        outcome = transport.run(ASK, 5)
        assert outcome.failure is not None
        assert (outcome.failure.code, outcome.failure.sent, outcome.failure.final) == ("tls", False, True)
        assert stub.requests == []
        transport.close()
        monkeypatch.setenv("SSL_CERT_FILE", str(tls.certificate))
        transport = BlockingHttp(url, 1)
        for _ in range(3):
            assert transport.run(ASK, 5).answers[0].status == 200
        assert stub.connections == 1
        transport.close()


@pytest.mark.parametrize("url", ["ftp://h", "http:///x", "https://user:geheim@h", "http://h:99999", "http://[::1"])
def test_bad_urls(url: str) -> None:
    """They are refused at once; a password in one is not shown."""
    with pytest.raises(InvalidSetting) as caught:
        BlockingHttp(url, 1)
    assert "geheim" not in str(caught.value)
