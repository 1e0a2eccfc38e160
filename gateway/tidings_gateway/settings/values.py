"""What a setting's text may look like, and what it becomes. Every refusal says what would have been right.

No message here repeats the text of a secret: the caller decides whether a value may be shown.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tidings import settings as shared
from tidings.settings import MIN_SECRET_BYTES

LOCALHOST = "localhost"
"""In the list of allowed origins: any http or https origin on this machine, whatever its port."""

_BASE_PATH = re.compile(r"(/[A-Za-z0-9_.~-]+)*", re.ASCII)
_GATEWAY_NAME = re.compile(r"[A-Za-z0-9_.-]{0,32}", re.ASCII)
_COOKIE = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{0,64}", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9_.-]{1,253}", re.ASCII)
_IPV6 = re.compile(r"[0-9A-Fa-f:.]{2,45}(%[A-Za-z0-9_.-]{1,16})?", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_PEM = re.compile(r"-----BEGIN ([A-Z ]+)-----.*?-----END \1-----", re.DOTALL)
_ORIGIN = re.compile(r"(https?)://([a-z0-9_.-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::([1-9][0-9]{0,4}))?", re.ASCII)


class Listen(NamedTuple):
    """An address to listen on. `port` 0 lets the kernel choose."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_listen(text: object) -> Listen:
    """`HOST:PORT`, or `[IPv6]:PORT`. Raises `ValueError`."""
    if isinstance(text, Listen):
        return text
    wanted = "expected HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080"
    if not isinstance(text, str):
        raise ValueError(wanted)
    host, colon, port = text.strip().rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{wanted}; the port is a number from 0 to 65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if ":" not in host or not _IPV6.fullmatch(host):
            raise ValueError(f"{wanted}; what stands in brackets is not an IPv6 address")
    elif ":" in host:
        raise ValueError("an IPv6 address must stand in brackets, such as [::1]:8080")
    elif not _HOST.fullmatch(host):
        raise ValueError(f"{wanted}; use 0.0.0.0 or [::] for every interface")
    return Listen(host, int(port))


def parse_optional_listen(text: object) -> Listen | None:
    """As `parse_listen`; empty text is None."""
    if text is None or (isinstance(text, str) and not text.strip()):
        return None
    return parse_listen(text)


def split_list(value: object) -> object:
    """A list from text: comma or line separated, or one JSON list when it starts with `[`. Anything else passes."""
    return shared.split_list(value) if isinstance(value, str) else value


def split_keys(value: object) -> object:
    """Public keys from text: PEM blocks one after the other, one JSON Web Key (or set), or a JSON list of either."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.startswith("["):
        return shared.split_list(text)
    if text.startswith("{") or not text:
        return [text] if text else []
    # A variable set in a one-line file often holds the two characters \n where a line should end.
    text = text.replace("\\n", "\n")
    blocks = [match.group(0) for match in _PEM.finditer(text)]
    if not blocks:
        raise ValueError("holds neither a PEM block (-----BEGIN PUBLIC KEY-----) nor a JSON Web Key")
    return blocks


def check_secret(text: str) -> str:
    """Raises `ValueError` for a secret that is short enough to be guessed, or that is really a key pair's half."""
    if len(text.encode()) < MIN_SECRET_BYTES:
        raise ValueError(
            f"is {len(text.encode())} bytes long; at least {MIN_SECRET_BYTES} are needed "
            '(make one with: python -c "import secrets; print(secrets.token_urlsafe(32))")'
        )
    return text


def check_api_key(text: str) -> str:
    """A key, or `sha256:` and the 64 hexadecimal digits of its digest, so that the key itself need not lie here."""
    scheme, colon, digest = text.partition(":")
    if scheme == "sha256" and colon:
        if not _SHA256.fullmatch(digest):
            raise ValueError("starts with sha256: but 64 hexadecimal digits in lower case do not follow")
        return text
    return check_secret(text)


def check_origin(text: str) -> str:
    """An origin exactly as a browser writes it (RFC 6454 section 6.2), or the word `localhost`. Raises `ValueError`."""
    if text == LOCALHOST:
        return text
    if text == "*":
        raise ValueError("* would let every site on the web connect as your users; name the origins of your pages")
    if text == "null":
        raise ValueError("null is the origin of sandboxed and local pages, anybody can send it; name an origin")
    match = _ORIGIN.fullmatch(text)
    if match is None:
        lowered = text.rstrip("/").lower()
        hint = f"; write {lowered}" if _ORIGIN.fullmatch(lowered) else ""
        raise ValueError(f"an origin is scheme://host[:port] in lower case, without a path or a slash at the end{hint}")
    scheme, _, port = match.groups()
    if port == {"http": "80", "https": "443"}[scheme]:
        raise ValueError(f"browsers leave the default port out of the origin; write {text.rpartition(':')[0]}")
    return text


def check_base_path(text: str) -> str:
    if not _BASE_PATH.fullmatch(text):
        raise ValueError("must be empty, or a path such as /push: a slash before each name and none at the end")
    return text


def check_gateway_name(text: str) -> str:
    if not _GATEWAY_NAME.fullmatch(text):
        raise ValueError("must be at most 32 of A-Z a-z 0-9 _ . -")
    return text


def check_cookie_name(text: str) -> str:
    if not _COOKIE.fullmatch(text):
        raise ValueError("is not a cookie name (RFC 6265: letters, digits and !#$%&'*+.^_`|~-)")
    return text
