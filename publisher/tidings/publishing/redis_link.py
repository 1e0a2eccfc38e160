"""What the blocking and the asynchronous transport share: how a connection is made, and what its errors mean."""

from __future__ import annotations

import inspect
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, parse_url
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

from tidings.errors import InvalidSetting
from tidings.publishing.faults import STALE, ServerError, fault_of
from tidings.publishing.plan import Failure

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


def is_stale(answers: list[Any]) -> bool:
    """Whether an answer says that this server is not, or no longer, the one to ask."""
    return any(isinstance(answer, ServerError) and answer.code in STALE for answer in answers)


def connection_class_and_arguments(url: str, connections: Any) -> tuple[Any, dict[str, Any]]:
    """Everything explicit that redis-py has a default for: the defaults have changed under their users before. It must
    not retry: it does not know that an append without idempotency is not to be repeated.

    `connections` is `redis.connection` or `redis.asyncio.connection`, which name their classes alike.
    Raises `InvalidSetting`, which never holds the URL.
    """
    try:
        arguments = dict(parse_url(url))  # type: ignore[no-untyped-call]
        kind = getattr(connections, arguments.pop("connection_class", redis.Connection).__name__)
        if int(arguments.pop("db", 0)) != 0:
            raise ValueError("names a database other than 0; pub/sub ignores database numbers")
        arguments.update(
            decode_responses=False,
            protocol=2,
            retry=redis.retry.Retry(NoBackoff(), 0),
            retry_on_timeout=False,
            health_check_interval=0,
            socket_timeout=None,
            socket_connect_timeout=None,
        )
        # CLIENT SETINFO is two more round trips before the first publish.
        if "driver_info" in inspect.signature(AbstractConnection).parameters:
            arguments["driver_info"] = None
        else:
            arguments.update(lib_name=None, lib_version=None)
        kind(**arguments)
    except TypeError:
        raise InvalidSetting("redis_url", "(not shown)", "has an option that redis-py does not know") from None
    except ValueError as error:
        raise InvalidSetting("redis_url", "(not shown)", str(error)) from None
    return kind, arguments
