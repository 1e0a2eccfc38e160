"""Durability: what a restart, a crash or a failover loses."""

from __future__ import annotations

from collections.abc import Iterator

from tidings_gateway.check.facts import Facts
from tidings_gateway.check.finding import Finding, config, fail, note, ok, warn


def judge(facts: Facts, failover: str) -> Iterator[Finding]:
    """`failover`: trust or resync, as it is in force."""
    if not facts.info:
        return
    yield from _disk(facts)
    if facts.info.get("role") in ("slave", "replica"):
        words = "This server is a replica: it takes no events. Tidings works with the primary only."
        yield fail("role", words, "let TIDINGS_REDIS_URL name the primary")
    else:
        yield from _replicas(facts, failover)


def _disk(facts: Facts) -> Iterator[Finding]:
    aof = facts.info.get("aof_enabled")
    save = facts.setting("save")
    on = f"{config('appendonly', 'yes')}; appendfsync everysec"
    if aof == "0":
        if save:
            lost = facts.number("rdb_changes_since_last_save")
            now = f" ({lost:,} changes now)" if lost else ""
            words = f"Snapshots only: a crash loses all since the last one{now}, and pages of those users must refetch."
        elif save is None:
            words = "There is no append-only file; what a restart loses depends on snapshots, which could not be seen."
        else:
            words = "Nothing is on disk: a restart loses every log, and every page must fetch its state again."
        yield warn("persistence", words, on)
    elif aof == "1":
        yield from _append_only(facts, save)
    for name, what, setting in (
        ("aof_last_write_status", "the append-only file", "appendonly"),
        ("rdb_last_bgsave_status", "the last snapshot", "save"),
    ):
        if facts.info.get(name, "ok") != "ok":
            words = f"Redis could not write {what}; it refuses writes, or will."
            yield fail("disk", words, f"free space on its disk, and see its log ({setting})")
    if facts.info.get("loading") == "1":
        yield note("loading", "Redis is still loading its data from disk, and answers nobody until it has.")


def _append_only(facts: Facts, save: str | None) -> Iterator[Finding]:
    sync = facts.setting("appendfsync")
    if sync == "no":
        words = "appendfsync no: a crash of the machine loses up to half a minute."
        yield warn("persistence", words, config("appendfsync", "everysec"))
    elif sync == "always":
        yield ok("persistence", "Append-only file, synced at every write: nothing acknowledged is lost.")
    elif sync == "everysec":
        yield ok("persistence", "Append-only file, synced every second: a crash of the machine may lose the last one.")
    else:
        yield ok("persistence", "There is an append-only file; how often it is synced could not be seen.")
    if save:
        words = "Snapshots beside the append-only file are a second copy, and each forks."
        yield note("snapshots", words, config("save", ""))


def _replicas(facts: Facts, failover: str) -> Iterator[Finding]:
    replicas = facts.number("connected_slaves") or 0
    text = facts.setting("min-replicas-to-write", "min-slaves-to-write")
    wanted = int(text) if text is not None else None
    if wanted and wanted > replicas:
        words = f"min-replicas-to-write is {wanted}, and {replicas} are connected: every event is refused."
        yield fail("replicas", words, "bring the replicas back, or CONFIG SET min-replicas-to-write 0")
    elif not replicas:
        yield note("replicas", "There is none: while this server is away, nothing can be published.")
    elif wanted:
        yield ok("replicas", f"{replicas} connected, and writes need {wanted} of them.")
    elif failover == "resync":
        yield ok(
            "replicas", f"{replicas} connected; TIDINGS_FAILOVER=resync makes every page refetch after a failover."
        )
    else:
        words = (
            f"{replicas} connected, but writes do not wait for them: a failover may lose acknowledged events that no "
            "page saw, and with TIDINGS_FAILOVER=trust nobody would know."
        )
        if wanted is None:
            words += " (min-replicas-to-write could not be seen.)"
        yield warn("replicas", words, f"{config('min-replicas-to-write', '1')}; or set TIDINGS_FAILOVER=resync")
