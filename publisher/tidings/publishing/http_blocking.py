"""Exchanges with a gateway over HTTP/1.1, blocking, with the standard library only; safe from many threads and after a
fork. Connections are kept alive. Proxies named in the environment are not used."""

from __future__ import annotations

import http.client
import ssl
import time
from typing import Any
from urllib.parse import urlsplit

from tidings.errors import InvalidSetting
from tidings.publishing.deadline import DeadlineSocket, is_readable, left
from tidings.publishing.http_wire import HttpAnswer, HttpRequest
from tidings.publishing.per_process import PerProcess
from tidings.publishing.plan import Failure, Outcome
from tidings.publishing.pool import Pool

MAX_ANSWER_BYTES = 4_194_304
_CHUNK_BYTES = 65_536
_SHOWN_CHARS = 160


class BlockingHttp:
    """At most `max_connections` exchanges at a time. Raises `InvalidSetting` for a URL that is none."""

    def __init__(self, url: str, max_connections: int) -> None:
        self._at = _parse(url)
        self._max_connections = max_connections
        self._tls = ssl.create_default_context() if self._at.secure else None
        self._pools = PerProcess(lambda: _new_pool(max_connections), Pool.drain)

    def run(self, request: HttpRequest, timeout_s: float) -> Outcome:
        """Never raises for what happens on the way: the outcome says it."""
        end = time.monotonic() + timeout_s
        pool = self._pools.get()
        if not pool.slots.acquire(timeout=timeout_s):
            return Outcome(failure=Failure(f"all {self._max_connections} connections to the gateway were busy", "busy"))
        try:
            return self._exchange(pool, request, end)
        finally:
            pool.slots.release()

    def _exchange(self, pool: Pool[Any], request: HttpRequest, end: float) -> Outcome:
        sent, reusable = False, False
        connection: Any = pool.take()
        try:
            if connection is None:
                connection = self._connect(end)
            connection.sock.end = end
            sent = True
            path = self._at.path + request.path
            connection.request(request.method, path, body=request.body, headers=dict(request.headers))
            response = connection.getresponse()
            body = _read(response)
            if len(body) > MAX_ANSWER_BYTES:
                return Outcome(failure=Failure("the answer has no end", "bad_answer", sent=True, final=True))
            reusable = not response.will_close
            headers = {name.lower(): value for name, value in response.getheaders()}
            return Outcome([HttpAnswer(response.status, headers, body)])
        except TimeoutError:
            doing = "waiting for the answer" if sent else "connecting"
            return Outcome(failure=Failure(f"the gateway took too long: time ran out {doing}", "timeout", sent=sent))
        except ssl.SSLCertVerificationError as error:
            why = f"the TLS certificate of {self._at.host} is not trusted: {error.verify_message}"
            return Outcome(failure=Failure(why, "tls", final=True))
        except (OSError, http.client.HTTPException) as error:
            text = str(error)[:_SHOWN_CHARS] or type(error).__name__
            if sent:
                return Outcome(failure=Failure(f"the connection broke before the answer came: {text}", sent=True))
            return Outcome(failure=Failure(f"the gateway cannot be reached at {self._at.host}: {text}"))
        finally:
            if connection is not None and not (reusable and pool.give(connection)):
                connection.close()

    def _connect(self, end: float) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection
        if self._tls is not None:
            connection = http.client.HTTPSConnection(self._at.host, self._at.port, timeout=left(end), context=self._tls)
        else:
            connection = http.client.HTTPConnection(self._at.host, self._at.port, timeout=left(end))
        connection.connect()
        # request() would open a new connection in silence when this one is gone.
        connection.auto_open = 0
        connection.sock = DeadlineSocket(connection.sock, end)
        return connection

    def close(self) -> None:
        """Closes the idle connections; those in use close when their exchange ends."""
        pool = self._pools.get()
        pool.closed = True
        pool.drain()


class _Address:
    def __init__(self, secure: bool, host: str, port: int, path: str) -> None:
        self.secure, self.host, self.port, self.path = secure, host, port, path


def _parse(url: str) -> _Address:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidSetting("url", url, "is not a URL such as https://push.example.com") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidSetting("url", url, "must be http://HOST or https://HOST, perhaps with a port and a base path")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise InvalidSetting(
            "url", "(not shown)", "must not hold a user, a query or a fragment; the key goes in api_key"
        )
    secure = parts.scheme == "https"
    return _Address(secure, parts.hostname, port or (443 if secure else 80), parts.path.rstrip("/"))


def _read(response: http.client.HTTPResponse) -> bytes:
    body = bytearray()
    while len(body) <= MAX_ANSWER_BYTES and (chunk := response.read(_CHUNK_BYTES)):
        body += chunk
    if response.length and len(body) <= MAX_ANSWER_BYTES:
        # read(size) takes the end of the connection for the end of the body.
        raise http.client.IncompleteRead(bytes(body), response.length)
    return bytes(body)


def _is_good(connection: Any) -> bool:
    # Nothing was asked, so anything to read is the end of the connection, or worse.
    return connection.sock is not None and not is_readable(connection.sock)


def _new_pool(size: int) -> Pool[Any]:
    return Pool(size, _is_good, lambda connection: connection.close())
