"""Memory: what is thrown away when it is full, how full it is, and what a user costs."""

from __future__ import annotations

from collections.abc import Iterator

from tidings_gateway.check.facts import Facts
from tidings_gateway.check.finding import Finding, config, fail, megabytes, note, ok, warn

NODE_BYTES = 1024
USER_BYTES, USER_BYTES_DEFAULT = 1_400, 4_500
"""What a user's first event costs with streams in nodes of `NODE_BYTES`, and of 4 KiB as Redis has it. Measured."""

NEARLY_FULL, FULL = 0.75, 0.9


def judge(facts: Facts, users: int) -> Iterator[Finding]:
    if not facts.info:
        return
    limit = facts.number("maxmemory")
    yield from _eviction(facts, limit)
    yield from _room(facts, limit, users)
    yield from _nodes(facts, users)


def _eviction(facts: Facts, limit: int | None) -> Iterator[Finding]:
    policy = facts.info.get("maxmemory_policy") or facts.setting("maxmemory-policy")
    if policy is None:
        return
    remedy = config("maxmemory-policy", "noeviction")
    if policy == "noeviction":
        yield ok("eviction", "noeviction: when Redis is full, publishers are told, and no log is thrown away.")
    elif limit == 0:
        yield warn(
            "eviction",
            f"{policy} would throw whole logs away as soon as a maxmemory is set; there is none now.",
            remedy,
        )
    else:
        words = f"{policy} throws away whole logs when Redis is full; every page of theirs must fetch its state again."
        yield fail("eviction", words, remedy)
    evicted = facts.number("evicted_keys")
    if evicted:
        words = f"Keys thrown away since Redis started: {evicted:,}, logs perhaps among them."
        yield warn("eviction", words, f"{remedy}; CONFIG RESETSTAT, and look again in a while")


def _room(facts: Facts, limit: int | None, users: int) -> Iterator[Finding]:
    used = facts.number("used_memory")
    if limit is None or used is None:
        return
    if not limit:
        words = "There is no maxmemory: a full machine kills Redis, where a limit would tell publishers."
        yield note("memory", words, config("maxmemory", "<half of what the machine can spare>"))
        return
    told = f"{megabytes(used)} of {megabytes(limit)} are used"
    more = config("maxmemory", str(2 * limit))
    remedy = f"{more}; or keep less: TIDINGS_LOG_MAX_EVENTS, TIDINGS_LOG_TTL_S"
    if used >= FULL * limit:
        yield fail("memory", f"{told}: publishing is about to be refused, or is already.", remedy)
    elif used >= NEARLY_FULL * limit:
        yield warn("memory", f"{told}.", remedy)
    elif limit < users * USER_BYTES:
        words = f"{told}, but {users:,} users with an event each take {megabytes(users * USER_BYTES)}."
        yield warn("memory", words, remedy)
    else:
        yield ok("memory", f"{told}.")


def _nodes(facts: Facts, users: int) -> Iterator[Finding]:
    size = facts.setting("stream-node-max-bytes")
    if size is None:
        return
    if 0 < int(size) <= NODE_BYTES:
        yield ok("stream nodes", f"stream-node-max-bytes {size}: a user with one event takes about 1.4 KB.")
    else:
        saved = megabytes(users * (USER_BYTES_DEFAULT - USER_BYTES))
        words = f"stream-node-max-bytes {size}: a user with one event takes about 4.5 KB; 1024 saves 3 KB, {saved} for "
        yield note("stream nodes", f"{words}{users:,} users.", config("stream-node-max-bytes", str(NODE_BYTES)))
