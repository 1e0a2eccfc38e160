"""Where a primary is and how to get in: the parts of a Redis URL, and a connection made from them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tidings.errors import InvalidSetting
from tidings.redis_url import REDIS_PORT, Address, RedisUrl, TlsOptions
from tidings_gateway.bus.resp import RespConnection


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One Redis server. `path` is a unix socket, and then host and port mean nothing."""

    host: str = "127.0.0.1"
    port: int = REDIS_PORT
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


def endpoint_of(url: RedisUrl, address: Address | None = None) -> Endpoint:
    """The server at `address`, by default the first the URL names, entered with the URL's credentials and TLS options.

    Raises `InvalidSetting` for certificate files that cannot be read.
    """
    username = url.credentials.username if url.credentials else None
    password = url.credentials.password if url.credentials else None
    if url.path is not None:
        return Endpoint(path=url.path, username=username, password=password)
    host, port = address or url.addresses[0]
    return Endpoint(host, port, None, username, password, _context(url.tls) if url.tls else None)


def sentinels_of(url: RedisUrl) -> list[Endpoint]:
    """The Sentinels the URL names; they have credentials of their own, or none. Raises as `endpoint_of`."""
    secret = url.sentinel_credentials
    door = replace(
        endpoint_of(url), username=secret.username if secret else None, password=secret.password if secret else None
    )
    return [replace(door, host=host, port=port) for host, port in url.addresses]


def _context(options: TlsOptions) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.ca_certs)
        if options.certfile is not None:
            context.load_cert_chain(options.certfile, options.keyfile)
    except OSError as error:
        raise _bad(f"names a certificate that cannot be read: {error}") from None
    context.check_hostname = options.check_hostname
    context.verify_mode = ssl.VerifyMode[f"CERT_{options.cert_reqs.upper()}"]
    return context


def _bad(why: str) -> InvalidSetting:
    return InvalidSetting("TIDINGS_REDIS_URL", "(not shown)", why)
