"""Why there is no link, in words an operator can act on."""

from __future__ import annotations

import socket
import ssl
from enum import Enum

import hiredis

from tidings_gateway.bus.endpoint import Endpoint
from tidings_gateway.bus.resp import ConnectionLost, Unexpected


class Kind(Enum):
    """What kind of trouble it is; the words beside it may differ in detail."""

    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    TLS = "tls"
    SILENT = "silent"
    """Connections stand, answers do not come: frozen, overloaded, or half-open TCP."""
    DEAF = "deaf"
    """Commands are answered, but what is published is not heard."""
    CLOSED = "closed"
    CREDENTIALS = "credentials"
    PERMISSION = "permission"
    REPLICA = "replica"
    MOVED = "moved"
    """Another server is the primary now, say those who know."""
    SENTINEL = "sentinel"
    """The Sentinels do not say where the primary is."""
    CLUSTER = "cluster"
    """The Cluster is down, or this is one and should not be, or the other way round."""
    LOADING = "loading"
    BUSY = "busy"
    FULL = "full"
    ANSWERED = "answered"
    """Redis answered with an error that has no entry here."""
    FAULT = "fault"
    """Our own fault."""
    STOPPED = "stopped"


class Trouble(Exception):
    """There is no link, or no longer. `words` is one sentence without secrets and without numbers that change from one
    attempt to the next, so that the same trouble reads the same and is logged once."""

    def __init__(self, kind: Kind, words: str) -> None:
        super().__init__(words)
        self.kind = kind
        self.words = words


_SHOWN_CHARS = 160

_ANSWERS: tuple[tuple[str, Kind, str], ...] = (
    ("WRONGPASS", Kind.CREDENTIALS, "Redis at {at} refused the user name or password in TIDINGS_REDIS_URL"),
    ("ERR invalid password", Kind.CREDENTIALS, "Redis at {at} refused the password in TIDINGS_REDIS_URL"),
    ("ERR AUTH", Kind.CREDENTIALS, "Redis at {at} has no password set, but TIDINGS_REDIS_URL gives one"),
    ("NOAUTH", Kind.CREDENTIALS, "Redis at {at} wants a password, and TIDINGS_REDIS_URL gives none"),
    ("NOPERM", Kind.PERMISSION, "the Redis user lacks a permission at {at}: {text}"),
    (
        "READONLY",
        Kind.REPLICA,
        "Redis at {at} is a read-only replica (READONLY): it was demoted, or never was the primary",
    ),
    ("MASTERDOWN", Kind.REPLICA, "Redis at {at} is a replica that lost its primary (MASTERDOWN)"),
    ("MOVED", Kind.MOVED, "Redis at {at} does not serve the slot it was asked for (MOVED)"),
    ("ASK", Kind.MOVED, "Redis at {at} is moving a slot to another node (ASK)"),
    ("TRYAGAIN", Kind.MOVED, "Redis at {at} is moving a slot to another node (TRYAGAIN)"),
    ("CLUSTERDOWN", Kind.CLUSTER, "Redis at {at} says that the Cluster is down (CLUSTERDOWN)"),
    ("LOADING", Kind.LOADING, "Redis at {at} is loading its data from disk (LOADING)"),
    ("BUSY", Kind.BUSY, "Redis at {at} is busy with somebody's slow script (BUSY)"),
    ("ERR max number of clients", Kind.FULL, "Redis at {at} takes no more clients (maxclients)"),
    ("DENIED", Kind.PERMISSION, "Redis at {at} is in protected mode and takes local clients without a password only"),
)

FATAL = frozenset({Kind.CREDENTIALS, Kind.REPLICA, Kind.LOADING})
"""Answers to any command that mean the whole link is of no use, not only the command."""


def kind_of(error: hiredis.ReplyError) -> Kind:
    text = str(error)
    return next((kind for start, kind, _ in _ANSWERS if text.startswith(start)), Kind.ANSWERED)


def trouble(error: BaseException, endpoint: Endpoint, *, doing: str = "") -> Trouble:
    """Put `error` into words. `doing` is what was tried, for errors that need it to be understood."""
    at = str(endpoint)
    match error:
        case Trouble():
            return error
        case ConnectionLost():
            if isinstance(error.cause, Exception):
                return trouble(error.cause, endpoint, doing=doing)
            return Trouble(Kind.CLOSED, f"Redis at {at} closed the connection")
        case hiredis.ReplyError():
            text = str(error)[:_SHOWN_CHARS]
            for start, kind, words in _ANSWERS:
                if text.startswith(start):
                    return Trouble(kind, words.format(at=at, text=text))
            return Trouble(Kind.ANSWERED, f"Redis at {at} answered {doing or 'us'} with: {text}")
        case hiredis.ProtocolError() | Unexpected():
            return Trouble(Kind.ANSWERED, f"what listens at {at} does not speak the Redis protocol")
        case TimeoutError():
            return Trouble(Kind.SILENT, f"Redis at {at} does not answer: frozen, overloaded, or cut off by the network")
        case ssl.SSLCertVerificationError():
            return Trouble(
                Kind.TLS, f"the TLS certificate of {at} is not trusted: {getattr(error, 'verify_message', error)}"
            )
        case ssl.SSLError():
            return Trouble(Kind.TLS, f"no TLS with {at}: {getattr(error, 'reason', None) or 'the handshake failed'}")
        case socket.gaierror():
            return Trouble(Kind.UNREACHABLE, f"the name in {at} cannot be looked up: {error.strerror}")
        case ConnectionRefusedError() | FileNotFoundError():
            return Trouble(Kind.REFUSED, f"nothing listens at {at}: Redis is not running, or elsewhere")
        case ConnectionResetError() | BrokenPipeError():
            return Trouble(Kind.CLOSED, f"Redis at {at} closed the connection")
        case OSError() if error.errno is None and "refused" in str(error).lower():
            # What asyncio raises for a name with several addresses, all of which refused.
            return Trouble(Kind.REFUSED, f"nothing listens at {at}: Redis is not running, or elsewhere")
        case OSError():
            return Trouble(Kind.UNREACHABLE, f"{at} cannot be reached: {error.strerror or type(error).__name__}")
        case _:
            return Trouble(Kind.FAULT, f"a fault of the gateway itself: {type(error).__name__}")
