"""Keys of publishers: compared by digest, in constant time, all of them every time."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from tidings_gateway.auth.credentials import bearer_token
from tidings_gateway.auth.tokens import Unauthorized

DIGEST_PREFIX = "sha256:"


class ApiKeys:
    """Accepts any of the given keys; an entry may be the key itself or `sha256:` and its hexadecimal digest.

    Only digests are kept, so neither a core dump nor a repr gives the keys away, and comparing takes the same time
    whatever was presented.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest_of_entry(key) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def accepts(self, presented: str) -> bool:
        digest = hashlib.sha256(presented.encode("utf-8", "surrogatepass")).digest()
        accepted = False
        for known in self._digests:
            accepted |= hmac.compare_digest(digest, known)
        return accepted

    def authorize(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether `Authorization: Bearer <key>` of an ASGI scope's headers holds one of the keys."""
        try:
            token = bearer_token(headers)
        except Unauthorized:
            return False
        return token is not None and self.accepts(token)


def _digest_of_entry(entry: str) -> bytes:
    if entry.startswith(DIGEST_PREFIX):
        return bytes.fromhex(entry.removeprefix(DIGEST_PREFIX))
    return hashlib.sha256(entry.encode()).digest()
