"""Where Redis is: one grammar of URLs, for publishers and gateways. Pure: nothing is looked up, opened or read.

::

    redis://[user:password@]host[:port]                                one server
    unix://[user:password@]/run/valkey.sock                            one server, on this machine
    redis+sentinel://[user:password@]host[:port],host[:port]/service   whichever server the Sentinels call primary
    redis+cluster://[user:password@]host[:port],host[:port]            a Cluster, found through any of these nodes

``rediss…`` instead of ``redis…`` is TLS, to Sentinels too. Reserved characters in a user name or a password are
percent-encoded, and only so: a plus sign is a plus sign. The database is 0, named or not.

Options, after ``?``: ``ssl_ca_certs``, ``ssl_certfile``, ``ssl_keyfile`` (paths), ``ssl_cert_reqs`` (none, optional,
required) and ``ssl_check_hostname`` with TLS, spelled as redis-py spells them; ``sentinel_username`` and
``sentinel_password`` for the Sentinels, which have a password of their own or none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple
from urllib.parse import unquote

from tidings.errors import InvalidSetting

REDIS_PORT = 6379
SENTINEL_PORT = 26379

Kind = Literal["single", "sentinel", "cluster"]
CertReqs = Literal["none", "optional", "required"]

_SCHEMES: dict[str, tuple[Kind, bool]] = {
    "redis": ("single", False),
    "rediss": ("single", True),
    "unix": ("single", False),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
}
_CERT_REQS: dict[str, CertReqs] = {"none": "none", "optional": "optional", "required": "required"}

_URL = re.compile(r"([A-Za-z+]+)://([^/?#]*)([^?#]*)(?:\?([^#]*))?")
_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+(?:%\w+)?)\]|([^\[\]:@\s]+))(?::([0-9]{1,5}))?", re.ASCII)
_SERVICE = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Credentials:
    """`username` None: the user called ``default``, as every Redis knows it."""

    password: str = field(repr=False)
    username: str | None = None


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Paths are not opened here. The name is checked only where the certificate is."""

    ca_certs: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    cert_reqs: CertReqs = "required"
    check_hostname: bool = True


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """`addresses`: of the server, of the Sentinels, or of nodes of the Cluster; none for a unix socket, which has a
    `path`. `service`: what the Sentinels call the primary. `tls` None: in the clear."""

    kind: Kind
    addresses: tuple[Address, ...] = ()
    path: str | None = None
    service: str | None = None
    credentials: Credentials | None = None
    sentinel_credentials: Credentials | None = None
    tls: TlsOptions | None = None

    def __str__(self) -> str:
        """For people; never holds a password."""
        where = self.path or ",".join(map(str, self.addresses))
        return f"{where} ({self.service})" if self.service else where


def parse_redis_url(text: str) -> RedisUrl:
    """Raises `InvalidSetting`, which never holds the URL: it may carry a password."""
    match = _URL.fullmatch(text.strip())
    if match is None:
        if "#" in text:
            raise _bad("holds a '#', which a URL ends at; in a password write it as %23")
        raise _bad("is not a URL such as redis://127.0.0.1:6379")
    scheme = match[1].lower()
    if scheme not in _SCHEMES:
        raise _bad(
            "must start with redis://, rediss:// (TLS), unix://, redis+sentinel:// or redis+cluster:// "
            "(with TLS rediss+…)"
        )
    kind, secure = _SCHEMES[scheme]
    options = _options(match[4] or "")
    user_info, _, hosts = match[2].rpartition("@")
    credentials = _credentials(user_info)
    tls = _tls(options) if secure else None
    if scheme == "unix":
        _check_database(options.pop("db", "0"))
        _check_no_more(options)
        if hosts or not match[3].strip("/"):
            raise _bad("must name the socket, such as unix:///run/valkey.sock")
        return RedisUrl(kind, path=unquote(match[3]), credentials=credentials)
    service, sentinel_credentials = None, None
    segments = match[3].strip("/").split("/") if match[3].strip("/") else []
    if kind == "sentinel":
        service = _service(unquote(segments.pop(0)) if segments else "")
        sentinel_credentials = _pair(options.pop("sentinel_username", None), options.pop("sentinel_password", None))
    _check_database(options.pop("db", "/".join(segments) or "0"))
    _check_no_more(options)
    addresses = _addresses(hosts, SENTINEL_PORT if kind == "sentinel" else REDIS_PORT)
    if kind == "single" and len(addresses) > 1:
        raise _bad("names several hosts, which only redis+sentinel:// and redis+cluster:// may")
    return RedisUrl(kind, addresses, None, service, credentials, sentinel_credentials, tls)


def _addresses(hosts: str, default_port: int) -> tuple[Address, ...]:
    if not hosts:
        raise _bad("must name a host, such as redis://127.0.0.1:6379")
    found: list[Address] = []
    for text in hosts.split(","):
        match = _ADDRESS.fullmatch(text)
        if match is None:
            raise _bad("is not a URL such as redis://127.0.0.1:6379: hosts are HOST, HOST:PORT or [IPv6]:PORT")
        port = int(match[3] or default_port)
        if not 0 < port < 65_536:
            raise _bad("is not a URL such as redis://127.0.0.1:6379: ports are 1 to 65535")
        found.append(Address((match[1] or match[2]).lower(), port))
    return tuple(found)


def _credentials(user_info: str) -> Credentials | None:
    username, colon, password = user_info.partition(":")
    return _pair(unquote(username) or None, unquote(password) if colon else None)


def _pair(username: str | None, password: str | None) -> Credentials | None:
    if password is None:
        if username:
            raise _bad("has a user name but no password")
        return None
    return Credentials(password, username or None)


def _service(name: str) -> str:
    if _SERVICE.fullmatch(name) is None:
        raise _bad("must name the service, as redis+sentinel://HOST:26379/SERVICE (of A-Z a-z 0-9 . _ -)")
    return name


def _options(query: str) -> dict[str, str]:
    # Not as forms are encoded: there, '+' is a space, and many a password holds one.
    options: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        options[unquote(name)] = unquote(value)
    return options


def _tls(options: dict[str, str]) -> TlsOptions:
    verify = _CERT_REQS.get(options.pop("ssl_cert_reqs", "required"))
    if verify is None:
        raise _bad("has an ssl_cert_reqs that is not none, optional or required")
    named = options.pop("ssl_check_hostname", "true").lower() not in ("false", "no", "0")
    return TlsOptions(
        options.pop("ssl_ca_certs", None),
        options.pop("ssl_certfile", None),
        options.pop("ssl_keyfile", None),
        verify,
        named and verify == "required",
    )


def _check_database(name: str) -> None:
    if name != "0":
        raise _bad(
            "names a database other than 0; pub/sub ignores database numbers, so two gateways with different "
            "databases would hear each other: use TIDINGS_PREFIX to keep them apart"
        )


def _check_no_more(options: dict[str, str]) -> None:
    if options:
        names = ", ".join(sorted(name if name.isidentifier() else "(not shown)" for name in options))
        raise _bad(f"has options that Tidings does not know: {names[:160]}")


def _bad(why: str) -> InvalidSetting:
    return InvalidSetting("TIDINGS_REDIS_URL", "(not shown)", why)
