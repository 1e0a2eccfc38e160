"""The names of everything a log keeps in Redis, and the grammar of what they are built from.

A user id stands in braces, so that all keys of one user share a cluster slot. Neither a prefix nor a user id can hold a
brace, so a name can be read in one way only: no two (prefix, user) share a key, whatever their characters. Nothing is
normalised: two ids that look alike are two users.
"""

from __future__ import annotations

import re
from binascii import crc_hqx

from tidings.errors import InvalidEvent, InvalidSetting, InvalidTopic, InvalidUser

_USER = re.compile(r"[A-Za-z0-9._~@:+=-]{1,128}", re.ASCII)
_TOPIC = re.compile(r"[A-Za-z0-9._:-]{1,64}", re.ASCII)
_PREFIX = re.compile(r"[A-Za-z0-9_.:-]{1,32}", re.ASCII)
_IDEMPOTENCY_KEY = re.compile(r"[\x20-\x7e]{1,128}", re.ASCII)


def check_user(user: object) -> str:
    """Return `user` if it is a user id; raises `InvalidUser` otherwise."""
    if not isinstance(user, str) or _USER.fullmatch(user) is None:
        raise InvalidUser(user)
    return user


def check_topic(topic: object) -> str:
    """Return `topic` if it is a topic name; raises `InvalidTopic` otherwise."""
    if not isinstance(topic, str) or _TOPIC.fullmatch(topic) is None:
        raise InvalidTopic(topic)
    return topic


def check_prefix(prefix: object) -> str:
    """Return `prefix` if it can start Redis names; raises `InvalidSetting` otherwise."""
    if not isinstance(prefix, str) or _PREFIX.fullmatch(prefix) is None:
        raise InvalidSetting("prefix", prefix, "must be 1 to 32 of A-Z a-z 0-9 _ . : -")
    if prefix.endswith(":t"):
        # The user `all` of prefix `app:t` would share every key with the topic `all` of prefix `app`.
        raise InvalidSetting("prefix", prefix, "must not end in ':t', which names the topics of the prefix before it")
    return prefix


def check_idempotency_key(key: object) -> str:
    """Return `key` if it is an idempotency key; raises `InvalidEvent` otherwise."""
    if not isinstance(key, str) or _IDEMPOTENCY_KEY.fullmatch(key) is None:
        raise InvalidEvent("idempotency_key", key, "must be 1 to 128 printable ASCII characters")
    return key


SLOTS = 16_384
"""Of every Redis Cluster."""


def slot_of(user: str) -> int:
    """The cluster slot of all keys and channels of a user: the CRC16 (XMODEM) of what stands in braces."""
    return crc_hqx(user.encode("ascii"), 0) % SLOTS


class Names:
    """Redis names under one prefix, as bytes. Every method checks what it is given: no name is ever built from an
    unchecked id. Raises `InvalidSetting`, `InvalidUser`."""

    __slots__ = ("_head", "prefix")

    def __init__(self, prefix: str = "tidings") -> None:
        self.prefix = check_prefix(prefix)
        self._head = f"{prefix}:{{"

    def channel(self, user: str) -> bytes:
        """The pub/sub channel of the user's records."""
        return f"{self._head}{check_user(user)}}}".encode("ascii")

    def log(self, user: str) -> bytes:
        """The stream of the user's events."""
        return self.channel(user) + b":log"

    def meta(self, user: str) -> bytes:
        """The hash that holds the log's epoch and top."""
        return self.channel(user) + b":meta"

    def idem(self, user: str, key: str) -> bytes:
        """The string that holds the position given to the first publish with this idempotency key."""
        return b"%b:idem:%b" % (self.channel(user), check_idempotency_key(key).encode("ascii"))

    def user_of_channel(self, channel: bytes) -> str:
        """The inverse of `channel`. Raises `InvalidUser` for a name that `channel` never gives."""
        name = channel.decode("latin-1")
        if not (name.startswith(self._head) and name.endswith("}")):
            raise InvalidUser(name)
        return check_user(name[len(self._head) : -1])
