"""What is said first on every connection: who we are, what we are called, which scripts we use."""

from __future__ import annotations

from collections.abc import Sequence

import hiredis

from tidings.log.script import Script
from tidings_gateway.bus.endpoint import Endpoint
from tidings_gateway.bus.resp import RespConnection, Words
from tidings_gateway.bus.scripts import load_commands
from tidings_gateway.bus.trouble import Kind, Trouble, trouble


async def greet(
    connection: RespConnection, endpoint: Endpoint, *, name: str, scripts: Sequence[Script] = (), sharded: bool = False
) -> bytes | None:
    """Log in, set the name that CLIENT LIST shows, load `scripts`; one round trip. Returns which run of which server
    this is, or None where INFO is not permitted. Raises `Trouble` when refused, when this is not a primary, or a node
    of a Cluster and not `sharded`, and `ConnectionLost`.
    """
    commands: list[Words] = [("CLIENT", "SETNAME", name), ("INFO", "server"), ("INFO", "replication")]
    if endpoint.auth is not None:
        commands.insert(0, endpoint.auth)
    optional = len(commands)
    commands += load_commands(scripts)
    replies: list[object] = []
    for index, future in enumerate(connection.send_many(commands)):
        try:
            replies.append(await future)
        except hiredis.ReplyError as error:
            # Names and INFO are for people and for better words: a user without these permissions still works.
            if index < optional and str(error).startswith(("NOPERM", "ERR unknown")):
                replies.append(b"")
            else:
                raise trouble(error, endpoint, doing=str(commands[index][0])) from error
    server, replication = replies[optional - 2 : optional]
    if _field(replication, b"role") == b"slave":
        raise Trouble(Kind.REPLICA, f"Redis at {endpoint} is a replica; Tidings works with the primary only")
    mode = _field(server, b"redis_mode") or _field(server, b"server_mode")
    if mode == b"cluster" and not sharded:
        raise Trouble(
            Kind.CLUSTER, f"Redis at {endpoint} is a node of a Cluster: its URL is redis+cluster://{endpoint}"
        )
    return _field(server, b"run_id")


def _field(info: object, name: bytes) -> bytes | None:
    lines = info.split(b"\r\n") if isinstance(info, bytes) else []
    return next((line[len(name) + 1 :] for line in lines if line.startswith(name + b":")), None)
