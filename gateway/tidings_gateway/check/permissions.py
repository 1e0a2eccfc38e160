"""Which commands Tidings needs, and what a Redis user for it looks like.

Each is tried on names of no user, in the order given, so that nothing is left behind: only a trial answers the same
question as the gateway will ask, whatever the version and however the user's rights were put together.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidings.log.names import Names

NEEDED = (
    "ping",
    "client|setname",
    "info",
    "script|load",
    "evalsha",
    "subscribe",
    "unsubscribe",
    "publish",
    "time",
    "get",
    "set",
    "exists",
    "expire",
    "ttl",
    "del",
    "hmget",
    "hset",
    "xadd",
    "xrange",
)
"""As an ACL spells them; a test holds this to the scripts."""

FOR_PUBLISHERS = ("role", "wait")
"""For publishers that find their primary through Sentinels, and for `min_replicas`."""
IN_A_CLUSTER = ("cluster|slots", "asking", "spublish", "ssubscribe", "sunsubscribe")

Words = tuple[str, ...]


def trials(names: Names, user: str, *, sharded: bool = False) -> Iterator[tuple[str, Words]]:
    """What to send, with the name of what is tried. `user` is nobody's id. SUBSCRIBE and UNSUBSCRIBE are not among
    them: they need a connection of their own. `sharded`: to a node of a Cluster, where a right is
    looked at before the slot is."""
    meta, log, idem = (name.decode() for name in (names.meta(user), names.log(user), names.idem(user, "check")))
    yield "ping", ("PING",)
    yield "role", ("ROLE",)
    yield "wait", ("WAIT", "0", "1")
    yield "client|setname", ("CLIENT", "SETNAME", "tidings-check")
    yield "info", ("INFO", "replication")
    yield "time", ("TIME",)
    yield "script|load", ("SCRIPT", "LOAD", "return 1")
    yield "evalsha", ("EVALSHA", "0" * 40, "1", meta)
    yield "publish", ("PUBLISH", names.channel(user).decode(), "c\n{}")
    if sharded:
        yield "cluster|slots", ("CLUSTER", "SLOTS")
        yield "spublish", ("SPUBLISH", names.channel(user).decode(), "c\n{}")
        yield "asking", ("ASKING",)
    yield "set", ("SET", idem, "1", "PX", "1000")
    yield "get", ("GET", idem)
    yield "expire", ("EXPIRE", idem, "1")
    yield "exists", ("EXISTS", log)
    yield "hset", ("HSET", meta, "check", "1")
    yield "expire", ("EXPIRE", meta, "1")
    yield "hmget", ("HMGET", meta, "check")
    yield "ttl", ("TTL", meta)
    yield "xadd", ("XADD", log, "MAXLEN", "=", "1", "1-1", "b", "{}")
    yield "expire", ("EXPIRE", log, "1")
    yield "xrange", ("XRANGE", log, "-", "+", "COUNT", "1")
    yield "del", ("DEL", log)
    yield "del", ("DEL", meta)
    yield "del", ("DEL", idem)


TOO_MUCH: tuple[tuple[str, Words], ...] = (
    ("FLUSHALL", ("FLUSHALL",)),
    ("CONFIG SET", ("CONFIG", "SET", "maxmemory", "0")),
    ("KEYS", ("KEYS", "*")),
    ("SHUTDOWN", ("SHUTDOWN",)),
    ("EVAL", ("EVAL", "return 1", "0")),
    ("keys outside the prefix", ("GET", "no-tidings")),
    ("channels outside the prefix", ("PUBLISH", "no-tidings", "x")),
)
"""What nobody needs, asked with ACL DRYRUN, which runs none of it."""


def acl_line(prefix: str, name: str = "tidings", *, new: bool = True, sharded: bool = False) -> str:
    """A user that may do what Tidings needs, and nothing else. A user who is there keeps password and all."""
    commands = " ".join(f"+{command}" for command in (*NEEDED, *FOR_PUBLISHERS, *(IN_A_CLUSTER if sharded else ())))
    made = "on >PASSWORD " if new else ""
    return f"ACL SETUSER {name} {made}resetkeys ~{prefix}:* resetchannels &{prefix}:* -@all {commands}"
