"""Where a primary is and how to get in: the parts of a Redis URL, and a connection made from them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tidings.errors import InvalidSetting
from tidings_gateway.bus.resp import RespConnection

DEFAULT_PORT = 6379

_TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One Redis server. `path` is a unix socket, and then host and port mean nothing."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    path: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    server_name: str | None = None
    """The name its certificate must carry; set when `host` is an address that was looked up."""

    def __str__(self) -> str:
        """For people; never holds the password."""
        if self.path is not None:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def auth(self) -> tuple[str, ...] | None:
        """The AUTH command, or None when the URL has no credentials."""
        if self.password is None:
            return None
        return ("AUTH", self.username, self.password) if self.username else ("AUTH", self.password)

    def at(self, peer: Any) -> Endpoint:
        """The same server by the address that a connection to it has: a host name may stand for several servers, and
        all connections of a link must reach one."""
        if self.path is not None or not isinstance(peer, tuple) or len(peer) < 2:
            return self
        return replace(self, host=peer[0], port=peer[1], server_name=self.server_name or self.host)

    async def connect(self, factory: Callable[[], RespConnection]) -> RespConnection:
        """Open one connection. Raises `OSError`, also for a name or a certificate that is wrong."""
        loop = asyncio.get_running_loop()
        if self.path is not None:
            return (await loop.create_unix_connection(factory, self.path))[1]
        server_name = (self.server_name or self.host) if self.tls is not None else None
        return (await loop.create_connection(factory, self.host, self.port, ssl=self.tls, server_hostname=server_name))[
            1
        ]


def parse_url(url: str) -> Endpoint:
    """``redis://``, ``rediss://`` (TLS) or ``unix://``, with user, password and database 0 or none. TLS options as
    redis-py spells them: ``ssl_ca_certs``, ``ssl_certfile``, ``ssl_keyfile``, ``ssl_cert_reqs`` (none, optional,
    required), ``ssl_check_hostname``. Reads the named certificate files.

    Raises `InvalidSetting`, which never holds the URL: it may carry a password.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _bad("is not a URL such as redis://127.0.0.1:6379") from None
    if parts.scheme not in ("redis", "rediss", "unix"):
        raise _bad("must start with redis://, rediss:// (TLS) or unix://")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    database = options.pop("db", "0" if parts.scheme == "unix" else parts.path.strip("/") or "0")
    if database != "0":
        raise _bad("names a database other than 0; pub/sub ignores database numbers")
    username = unquote(parts.username) if parts.username else None
    password = unquote(parts.password) if parts.password is not None else None
    if username and password is None:
        raise _bad("has a user name but no password")
    tls = _tls(options) if parts.scheme == "rediss" else None
    if options:
        raise _bad(f"has options that Tidings does not know: {', '.join(sorted(options))}")
    if parts.scheme == "unix":
        if not parts.path:
            raise _bad("must name the socket, such as unix:///run/valkey.sock")
        return Endpoint(path=unquote(parts.path), username=username, password=password)
    return Endpoint(parts.hostname or "127.0.0.1", port or DEFAULT_PORT, None, username, password, tls)


def _tls(options: dict[str, str]) -> ssl.SSLContext:
    given = {name: options.pop(name) for name in _TLS_OPTIONS if name in options}
    verify = given.get("ssl_cert_reqs", "required")
    if verify not in ("none", "optional", "required"):
        raise _bad("has an ssl_cert_reqs that is not none, optional or required")
    try:
        context = ssl.create_default_context(cafile=given.get("ssl_ca_certs"))
        if "ssl_certfile" in given:
            context.load_cert_chain(given["ssl_certfile"], given.get("ssl_keyfile"))
    except OSError as error:
        raise _bad(f"names a certificate that cannot be read: {error}") from None
    checked = given.get("ssl_check_hostname", "true").lower() not in ("false", "no", "0")
    context.check_hostname = checked and verify == "required"
    context.verify_mode = ssl.VerifyMode[f"CERT_{verify.upper()}"]
    return context


def _bad(why: str) -> InvalidSetting:
    return InvalidSetting("TIDINGS_REDIS_URL", "(not shown)", why)
