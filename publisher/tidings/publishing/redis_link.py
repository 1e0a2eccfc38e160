"""What the blocking and the asynchronous transport share: how a connection is made, and what its errors mean."""

from __future__ import annotations

import inspect
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    TryAgainError,
)

from tidings.publishing.faults import ServerError, fault_of
from tidings.publishing.plan import Failure
from tidings.publishing.routes import Server
from tidings.redis_url import Credentials, RedisUrl

# redis-py takes the code off the text of the errors it has a class for.
_CODES: tuple[tuple[type[Exception], str], ...] = (
    (OutOfMemoryError, "OOM"),
    (ReadOnlyError, "READONLY"),
    (NoScriptError, "NOSCRIPT"),
    (BusyLoadingError, "LOADING"),
    (NoPermissionError, "NOPERM"),
    (MasterDownError, "MASTERDOWN"),
    (ClusterDownError, "CLUSTERDOWN"),
    (TryAgainError, "TRYAGAIN"),
    (AskError, "ASK"),
    (MovedError, "MOVED"),
)

ANSWERED = (redis.ResponseError, BusyLoadingError, AuthenticationError)
"""Errors that are answers of the server; the connection is whole. The last two claim to be connection errors."""

BROKEN = (redis.RedisError, OSError)
"""Errors after which the connection cannot be used, when they are not `ANSWERED`."""

_SHOWN_CHARS = 160


def server_error(error: Exception) -> ServerError:
    text = str(error)
    if isinstance(error, AuthenticationError):
        return ServerError(text if text.startswith(("NOAUTH", "WRONGPASS")) else f"{_auth_code(text)} {text}")
    for kind, code in _CODES:
        if isinstance(error, kind):
            return ServerError(text if text.startswith(code) else f"{code} {text}")
    return ServerError(text)


def _auth_code(text: str) -> str:
    return "NOAUTH" if "required" in text.lower() else "WRONGPASS"


def failure_of(error: BaseException, *, sent: bool, doing: str) -> Failure:
    """`doing`: the words for what was under way when time ran out."""
    if isinstance(error, ANSWERED):  # while connecting
        fault = fault_of(server_error(error))
        return Failure(fault.words, fault.code, final=not fault.retryable)
    if isinstance(error, TimeoutError | redis.TimeoutError):
        return Failure(f"Redis took too long: time ran out {doing}", "timeout", sent=sent)
    text = str(error)[:_SHOWN_CHARS] or type(error).__name__
    if sent:
        return Failure(f"the connection to Redis broke before the answer came: {text}", sent=True)
    return Failure(f"Redis cannot be reached: {text}")


class Dialer:
    """How connections to the servers of `url` are made: `kind` with `arguments`.

    Everything is explicit that redis-py has a default for: the defaults have changed under their users before. And it
    is redis-py's connections that are used, never its clients for Sentinel or Cluster: those repeat by themselves,
    have pools and deadlines of their own, and do not know that an append without idempotency is not to be repeated.

    `connections` is `redis.connection` or `redis.asyncio.connection`, which name their classes alike.
    """

    def __init__(self, url: RedisUrl, connections: Any) -> None:
        self._url = url
        self._common: dict[str, Any] = dict(_EXPLICIT)
        if url.path is not None:
            self.kind = connections.UnixDomainSocketConnection
        elif url.tls is not None:
            self.kind = connections.SSLConnection
            self._common.update(
                ssl_ca_certs=url.tls.ca_certs,
                ssl_certfile=url.tls.certfile,
                ssl_keyfile=url.tls.keyfile,
                ssl_cert_reqs=url.tls.cert_reqs,
                ssl_check_hostname=url.tls.check_hostname,
            )
        else:
            self.kind = connections.Connection

    def arguments(self, server: Server | None) -> dict[str, Any]:
        """`server` None: the one the URL names."""
        url = self._url
        of_sentinel = server is not None and server.sentinel
        credentials = (url.sentinel_credentials if of_sentinel else url.credentials) or _NOBODY
        arguments = {**self._common, "username": credentials.username, "password": credentials.password or None}
        if url.path is not None:
            return {**arguments, "path": url.path}
        host, port = url.addresses[0] if server is None else server.address
        return {**arguments, "host": host, "port": port}


_NOBODY = Credentials("")
_EXPLICIT: dict[str, Any] = {
    "decode_responses": False,
    "protocol": 2,
    "retry": redis.retry.Retry(NoBackoff(), 0),
    "retry_on_timeout": False,
    "health_check_interval": 0,
    "socket_timeout": None,
    "socket_connect_timeout": None,
    # CLIENT SETINFO is two more round trips before the first publish.
    **(
        {"driver_info": None}
        if "driver_info" in inspect.signature(AbstractConnection).parameters
        else {"lib_name": None, "lib_version": None}
    ),
}
