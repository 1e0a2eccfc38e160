"""The server itself: its version, and whether it is the kind of server that the URL takes it for."""

from __future__ import annotations

from collections.abc import Iterator

from tidings_gateway.check.facts import Facts
from tidings_gateway.check.finding import Finding, fail, note, ok, warn

Version = tuple[int, ...]

FIXED: dict[str, dict[Version, Version | None]] = {
    "redis": {
        (6, 2): (6, 2, 20),
        (7, 0): None,
        (7, 2): (7, 2, 11),
        (7, 4): (7, 4, 6),
        (8, 0): (8, 0, 4),
        (8, 2): (8, 2, 2),
    },
    "valkey": {(7, 2): (7, 2, 11), (8, 0): (8, 0, 6), (8, 1): (8, 1, 4)},
}
"""Per branch, the release that fixed the last hole through which a script could take over the server (CVE-2025-49844,
Lua; Tidings needs scripts). None: its makers fixed no such branch. Later branches began with it."""

OLDEST: dict[str, Version] = {"redis": (6, 2), "valkey": (7, 2)}


def product(info: dict[str, str]) -> tuple[str, str]:
    """Name and version. Valkey also calls itself a Redis 7.2, for the sake of old clients."""
    if "valkey_version" in info:
        return "valkey", info["valkey_version"]
    return "redis", info.get("redis_version", "")


def judge(facts: Facts, *, sharded: bool = False) -> Iterator[Finding]:
    """`sharded`: a node of a Cluster is what it should be."""
    if facts.info:
        yield from _version(*product(dict(facts.info)))
        yield from _mode(facts, sharded=sharded)


def _version(name: str, text: str) -> Iterator[Finding]:
    try:
        version = tuple(int(part) for part in text.split("."))
    except ValueError:
        return
    told = f"{name.capitalize()} {text}"
    branch = version[:2]
    fixed = FIXED[name].get(branch, (0,))
    latest = ", ".join(".".join(map(str, release)) for release in FIXED[name].values() if release)
    if branch < OLDEST[name] or fixed is None:
        words = (
            f"{told} gets no security fixes any more; a known one lets a script take the server over (CVE-2025-49844)."
        )
        yield warn("version", words, f"upgrade to a branch that does: at least {latest}")
    elif version < fixed:
        words = f"{told} can be taken over by a script of whoever may run one (CVE-2025-49844)."
        yield warn("version", words, f"upgrade to at least {'.'.join(map(str, fixed))}")
    else:
        yield ok("version", f"{told}; no hole in it is known to this check.")


def _mode(facts: Facts, *, sharded: bool) -> Iterator[Finding]:
    mode = facts.info.get("server_mode") or facts.info.get("redis_mode")
    if mode == "sentinel":
        words = "This is a Sentinel: it knows where a Redis is, and is none."
        yield fail("mode", words, "redis+sentinel://HOST,HOST/SERVICE in TIDINGS_REDIS_URL")
    elif sharded:
        if facts.info.get("cluster_enabled") == "0":
            words = "This is no node of a Cluster, and TIDINGS_REDIS_URL calls it one."
            yield fail("mode", words, "redis:// in TIDINGS_REDIS_URL")
    elif mode == "cluster" or facts.info.get("cluster_enabled") == "1":
        state = facts.cluster.get("cluster_state", "unknown")
        words = f"This is a node of a Redis Cluster (state: {state}), and the URL names a single server."
        yield fail("mode", words, "redis+cluster:// in TIDINGS_REDIS_URL, or a Redis without cluster-enabled")
    elif facts.info.get("master_link_status") == "down":
        yield note("mode", "This replica has lost its primary.")
