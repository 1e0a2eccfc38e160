"""`tidings check`, the judging half: facts in, findings out."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest

from tidings.log.names import Names
from tidings_gateway.check.facts import Facts
from tidings_gateway.check.finding import Finding, Level
from tidings_gateway.check.judging import judge
from tidings_gateway.check.permissions import FOR_PUBLISHERS, IN_A_CLUSTER, NEEDED, acl_line, trials
from tidings_gateway.check.report import as_data, as_text, changed, exit_code
from tidings_gateway.check.topology import SentinelFacts, Topology
from tidings_gateway.settings import load_settings

MB = 1_048_576
INFO = {
    "redis_version": "7.2.4",
    "valkey_version": "9.1.2",
    "server_mode": "standalone",
    "role": "master",
    "maxmemory": str(1024 * MB),
    "maxmemory_policy": "noeviction",
    "used_memory": str(100 * MB),
    "evicted_keys": "0",
    "aof_enabled": "1",
    "aof_last_write_status": "ok",
    "rdb_last_bgsave_status": "ok",
    "loading": "0",
    "connected_slaves": "1",
    "connected_clients": "10",
    "maxclients": "10000",
    "cluster_enabled": "0",
}
CONFIG = {
    "maxmemory-policy": "noeviction",
    "save": "",
    "appendfsync": "everysec",
    "client-output-buffer-limit": "normal 0 0 0 slave 268435456 67108864 60 pubsub 67108864 16777216 60",
    "stream-node-max-bytes": "1024",
    "min-replicas-to-write": "1",
}
GOOD = Facts(
    at="127.0.0.1:6379",
    info=INFO,
    config=CONFIG,
    clock_ahead_ms=3.0,
    clock_doubt_ms=0.5,
    pings_ms=(0.1, 0.2, 0.3),
    canary_ms=0.4,
)
ENVIRON = {
    "TIDINGS_JWT_SECRET": "s" * 40,
    "TIDINGS_API_KEY": "k" * 40,
    "TIDINGS_ALLOWED_ORIGINS": "https://a.example",
    "TIDINGS_MAX_CONNECTIONS": "500",
}


def found(facts: Facts = GOOD, *, users: int = 20_000, event_bytes: int = 1024, **environ: str) -> list[Finding]:
    return judge([facts], load_settings({**ENVIRON, **environ}), users=users, event_bytes=event_bytes)


def with_info(**fields: str) -> Facts:
    return replace(GOOD, info={**INFO, **fields})


def with_config(**fields: str) -> Facts:
    return replace(GOOD, config={**CONFIG, **{name.replace("_", "-"): value for name, value in fields.items()}})


def test_a_redis_that_is_right_is_all_ok() -> None:
    """Every topic has its line, so that what was looked at can be seen; exit code 0."""
    findings = found()
    assert {finding.level for finding in findings} == {Level.OK}, findings
    assert exit_code(findings) == 0
    topics = {finding.topic for finding in findings}
    assert topics >= {"version", "eviction", "memory", "stream nodes", "persistence", "replicas", "pubsub buffer"}
    assert topics >= {"latency", "canary", "clock", "permissions", "settings"}


@pytest.mark.parametrize(
    ("facts", "level", "topic", "words", "remedy"),
    [
        (
            with_info(maxmemory_policy="allkeys-lru"),
            "FAIL",
            "eviction",
            "throws away whole logs",
            "maxmemory-policy noev",
        ),
        (with_info(maxmemory_policy="volatile-ttl", maxmemory="0"), "WARN", "eviction", "as soon as", "noeviction"),
        (with_info(evicted_keys="7"), "WARN", "eviction", "since Redis started: 7", "noeviction"),
        (with_info(maxmemory="0"), "NOTE", "memory", "no maxmemory", "CONFIG SET maxmemory"),
        (with_info(used_memory=str(1000 * MB)), "FAIL", "memory", "1,000 MB of 1,024 MB", f"maxmemory {2048 * MB}"),
        (with_info(used_memory=str(800 * MB)), "WARN", "memory", "800 MB of 1,024 MB", "TIDINGS_LOG_TTL_S"),
        (
            with_info(maxmemory=str(20 * MB), used_memory="1"),
            "WARN",
            "memory",
            "20,000 users with an event",
            "maxmemory",
        ),
        (with_config(stream_node_max_bytes="4096"), "NOTE", "stream nodes", "3 KB", "stream-node-max-bytes 1024"),
        (with_config(stream_node_max_bytes="0"), "NOTE", "stream nodes", "4.5 KB", "stream-node-max-bytes 1024"),
        (with_info(aof_enabled="0"), "WARN", "persistence", "Nothing is on disk", "appendonly yes"),
        (
            replace(with_info(aof_enabled="0", rdb_changes_since_last_save="12"), config={**CONFIG, "save": "3600 1"}),
            "WARN",
            "persistence",
            "12 changes now",
            "appendonly yes",
        ),
        (with_config(appendfsync="no"), "WARN", "persistence", "half a minute", "appendfsync everysec"),
        (with_config(save="3600 1"), "NOTE", "snapshots", "second copy", 'CONFIG SET save ""'),
        (with_info(aof_last_write_status="err"), "FAIL", "disk", "could not write", "free space"),
        (with_info(role="slave"), "FAIL", "role", "is a replica", "name the primary"),
        (
            with_config(min_replicas_to_write="2"),
            "FAIL",
            "replicas",
            "every event is refused",
            "min-replicas-to-write 0",
        ),
        (with_config(min_replicas_to_write="0"), "WARN", "replicas", "that no page saw", "TIDINGS_FAILOVER=resync"),
        (with_info(connected_slaves="0", x="0"), "FAIL", "replicas", "0 are connected", "bring the replicas back"),
        (
            with_config(client_output_buffer_limit="pubsub 1048576 0 0"),
            "WARN",
            "pubsub buffer",
            "20,000 users of one gateway with an event of 1,024 bytes each at once are 23 MB",
            '"pubsub 64mb 16mb 60"',
        ),
        (with_config(client_output_buffer_limit="pubsub 0 0 0"), "NOTE", "pubsub buffer", "hangs", "pubsub 64mb"),
        (with_info(connected_clients="9000"), "WARN", "connections", "9,000 of 10,000", "maxclients 20000"),
        (replace(GOOD, pings_ms=(1.0, 2.0, 900.0, 900.0)), "WARN", "latency", "given up", "SLOWLOG"),
        (replace(GOOD, pings_ms=(6.0, 7.0, 8.0)), "NOTE", "latency", "far for a Redis", "closer"),
        (
            replace(GOOD, canary_ms=None, canary_trouble="why"),
            "FAIL",
            "canary",
            "no gateway would work: why",
            "proxies",
        ),
        (replace(GOOD, clock_ahead_ms=-7000.0), "WARN", "clock", "7.0 s behind", "NTP"),
        (replace(GOOD, clock_ahead_ms=700.0), "NOTE", "clock", "0.7 s ahead of", "NTP"),
        (replace(GOOD, refused={"xadd": "NOPERM x"}, user="u"), "FAIL", "permissions", "u may not: XADD", "+xadd"),
        (replace(GOOD, refused={"wait": "NOPERM x"}), "NOTE", "permissions", "for min_replicas", "+wait"),
        (replace(GOOD, too_much=("FLUSHALL",)), "NOTE", "privileges", "FLUSHALL", "ACL SETUSER tidings on >PASSWORD"),
        (replace(GOOD, unseen={"CONFIG GET": "ERR"}), "NOTE", "not seen", "CONFIG GET", "as a user who may"),
        (replace(GOOD, local=False, password=True), "WARN", "encryption", "Plain text", "rediss://"),
        (replace(GOOD, local=False, tls=True, verified=False), "WARN", "encryption", "without looking", "ssl_ca_certs"),
        (replace(GOOD, local=False, tls=True), "WARN", "password", "no password", "ACL SETUSER"),
        (with_info(server_mode="sentinel"), "FAIL", "mode", "is a Sentinel", "TIDINGS_REDIS_URL"),
        (
            replace(with_info(cluster_enabled="1"), cluster={"cluster_state": "fail"}),
            "FAIL",
            "mode",
            "state: fail",
            "without cluster-enabled",
        ),
        (Facts(at="r:1", trouble="nothing listens"), "FAIL", "connection", "nothing listens", "TIDINGS_REDIS_URL"),
    ],
)
def test_what_is_wrong_is_said_with_its_remedy(facts: Facts, level: str, topic: str, words: str, remedy: str) -> None:
    """One line, as bad as it is, and what to type; a WARN or FAIL makes the exit code 1, a NOTE does not."""
    findings = found(facts)
    told = [finding for finding in findings if finding.topic == topic and words in finding.words]
    assert told, findings
    assert told[0].level.name == level
    assert remedy in told[0].remedy
    assert exit_code([told[0]]) == (told[0].level >= Level.WARN)
    levels = [finding.level for finding in findings]
    assert levels == sorted(levels, reverse=True), "the worst first"


@pytest.mark.parametrize(
    ("versions", "level"),
    [
        ({"redis_version": "6.0.20"}, Level.WARN),
        ({"redis_version": "6.2.19"}, Level.WARN),
        ({"redis_version": "6.2.20"}, Level.OK),
        ({"redis_version": "7.0.15"}, Level.WARN),
        ({"redis_version": "7.2.10"}, Level.WARN),
        ({"redis_version": "7.4.6"}, Level.OK),
        ({"redis_version": "8.0.3"}, Level.WARN),
        ({"redis_version": "8.2.2"}, Level.OK),
        ({"redis_version": "8.4.0"}, Level.OK),
        ({"redis_version": "7.2.4", "valkey_version": "8.0.5"}, Level.WARN),
        ({"redis_version": "7.2.4", "valkey_version": "8.1.4"}, Level.OK),
        ({"redis_version": "7.2.4", "valkey_version": "9.1.2"}, Level.OK),
    ],
)
def test_versions_with_known_holes(versions: dict[str, str], level: Level) -> None:
    """CVE-2025-49844: a script takes the server over. 7.0 never got a fix; a Valkey is not the Redis 7.2 it calls
    itself."""
    info = {name: text for name, text in INFO.items() if "version" not in name} | versions
    [told] = [finding for finding in found(replace(GOOD, info=info)) if finding.topic == "version"]
    assert told.level is level


@pytest.mark.parametrize(
    ("environ", "level", "words"),
    [
        ({"TIDINGS_JWT_SECRET": ""}, Level.NOTE, "would not start"),
        ({"TIDINGS_API_KEY": ""}, Level.NOTE, "would not start"),
        ({"TIDINGS_ALLOWED_ORIGINS": ""}, Level.NOTE, "no web page"),
        ({"TIDINGS_HEARTBEAT_MS": "90000"}, Level.WARN, "silent for 60 s"),
        ({"TIDINGS_CANARY_TIMEOUT_MS": "1000"}, Level.WARN, "deaf link"),
        ({"TIDINGS_DRAIN_WINDOW_MS": "60000"}, Level.NOTE, "69 s"),
        ({"TIDINGS_MAX_CONNECTIONS": "9999999"}, Level.FAIL, "9,999,999"),
        ({"TIDINGS_ADMIN_LISTEN": "0.0.0.0:8081"}, Level.NOTE, "whoever reaches"),
    ],
)
def test_settings_that_do_not_fit_the_world(environ: dict[str, str], level: Level, words: str) -> None:
    """Each allowed by itself, and none contradicts another; still worth a line."""
    [told] = [finding for finding in found(**environ) if finding.topic == "settings"]  # type: ignore[arg-type]
    assert told.level is level
    assert words in told.words


SENTINEL = SentinelFacts("s:1", primary="r:1", flags=("master",), quorum=2, sentinels=3, replicas=2)
SLOTS_OK = {"cluster_state": "ok", "cluster_slots_assigned": "16384"}


@pytest.mark.parametrize(
    ("among", "level", "words"),
    [
        (Topology("sentinel", "t", (SENTINEL,) * 3), "OK", "3 agree that t is at r:1"),
        (Topology("sentinel", "t", (SENTINEL,)), "NOTE", "3 there are, and TIDINGS_REDIS_URL names 1"),
        (Topology("sentinel", "t", (replace(SENTINEL, sentinels=2),) * 2), "WARN", "fewer than three"),
        (Topology("sentinel", "t", (SENTINEL, SENTINEL, replace(SENTINEL, primary="r:2"))), "WARN", "r:1, r:2"),
        (Topology("sentinel", "t", (SENTINEL, SENTINEL, SentinelFacts("s:9", "It is gone"))), "WARN", "It is gone"),
        (Topology("sentinel", "t", (replace(SENTINEL, flags=("master", "o_down")),) * 3), "FAIL", "is down, says s:1"),
        (Topology("sentinel", "t", (replace(SENTINEL, quorum=4),) * 3), "FAIL", "needs 4 Sentinels"),
        (Topology("sentinel", "t", (replace(SENTINEL, replicas=0),) * 3), "FAIL", "nothing to fail over to"),
        (Topology("sentinel", "t", trouble="No Sentinel says it"), "FAIL", "No Sentinel says it"),
        (Topology("cluster", cluster=SLOTS_OK, shards={"a:1": 1, "b:1": 2}), "OK", "2 primaries serve all slots"),
        (Topology("cluster", cluster=SLOTS_OK, shards={"a:1": 0, "b:1": 2}), "WARN", "Without a replica: a:1"),
        (Topology("cluster", cluster={**SLOTS_OK, "cluster_state": "fail"}), "FAIL", "state is fail"),
        (Topology("cluster", cluster={"cluster_slots_assigned": "16000"}), "FAIL", "384 of 16,384 slots"),
    ],
)
def test_who_is_there(among: Topology, level: str, words: str) -> None:
    """Sentinels that are too few, disagree or are gone; a Cluster with holes."""
    findings = judge([], load_settings(ENVIRON), users=1, event_bytes=1, among=among)
    told = [finding for finding in findings if words in finding.words]
    assert [finding.level.name for finding in told] == [level], findings
    topics = [finding.topic for finding in findings if finding.topic != "settings"]
    assert set(topics) <= {told[0].topic}


def test_what_is_true_of_all_servers_is_said_once() -> None:
    """And what is true of one only, with its name: twelve primaries with the same fault are one line."""
    among = Topology("cluster", cluster=SLOTS_OK, shards={"a:1": 1, "b:1": 1})
    bad = {**INFO, "cluster_enabled": "1", "aof_enabled": "0"}
    servers = [
        replace(GOOD, at="a:1", info=bad),
        replace(GOOD, at="b:1", info={**bad, "maxmemory_policy": "allkeys-lru"}),
    ]
    findings = judge(servers, load_settings(ENVIRON), users=1, event_bytes=1, among=among)
    told = [(finding.topic, finding.words[:5]) for finding in findings]
    assert told.count(("persistence", "Nothi")) == 1
    assert ("eviction", "b:1: ") in told
    assert ("eviction", "a:1: ") in told
    assert not [finding for finding in findings if finding.topic == "mode"]


def test_what_could_not_be_seen_is_not_judged() -> None:
    """A managed Redis without CONFIG, a user without INFO: no guess, no crash."""
    topics = {finding.topic for finding in found(replace(GOOD, config={}))}
    assert not topics & {"pubsub buffer", "stream nodes", "snapshots"}
    bare = Facts(at="r:1", unseen={"INFO": "x", "CONFIG GET": "x"}, canary_ms=1.0)
    assert {finding.topic for finding in found(bare)} == {"not seen", "canary", "settings"}


def test_the_commands_are_those_of_the_scripts() -> None:
    """What a script of ours calls is tried, and is in the ACL line; and every trial is of a command that is in it."""
    scripts = [files("tidings.log") / "append.lua", files("tidings.log") / "read.lua"]
    scripts.append(files("tidings_gateway.bus") / "canary.lua")
    called = {name.lower() for script in scripts for name in re.findall(r"redis\.p?call\('(\w+)'", script.read_text())}
    assert called <= set(NEEDED)
    tried = {name for name, _ in trials(Names(), "check-x")}
    assert tried == {*NEEDED, *FOR_PUBLISHERS} - {"subscribe", "unsubscribe"}
    sharded = {name for name, _ in trials(Names(), "check-x", sharded=True)}
    assert sharded - tried == set(IN_A_CLUSTER) - {"ssubscribe", "sunsubscribe"}
    for command in (*NEEDED, *FOR_PUBLISHERS):
        assert f"+{command}" in acl_line("tidings").split()
    assert "+spublish" not in acl_line("tidings")
    assert "+spublish" in acl_line("tidings", sharded=True)


def test_the_report_is_aligned_and_tells_no_secret() -> None:
    """Level, topic, words, the remedy below; of a secret only that it is set; the password of the URL neither."""
    settings = load_settings({**ENVIRON, "TIDINGS_REDIS_URL": "redis://u:hush-hush@r.example:6379"})
    facts = with_info(maxmemory_policy="allkeys-lru", aof_enabled="0")
    findings = judge([facts], settings, users=10, event_bytes=10)
    text = as_text([facts], findings, settings, width=100, users=10)
    lines = text.splitlines()
    assert lines[0] == "Redis at 127.0.0.1:6379 (valkey 9.1.2), prefix tidings, 10 users for one gateway"
    assert max(map(len, lines)) <= 100
    assert lines[2].startswith("FAIL  eviction")
    column = lines[2].index("allkeys-lru")
    assert all(line[column - 1] == " " != line[column] for line in lines[3:10])
    assert any(line.strip().startswith("→ CONFIG SET maxmemory-policy noeviction") for line in lines)
    assert lines[-1] == "2 to be changed; 0 notes."
    data: dict[str, Any] = as_data([facts], findings, settings)
    assert data["ok"] is False
    assert data["findings"][0]["level"] == "FAIL"
    assert data["settings"]["TIDINGS_JWT_SECRET"] == "(set)"
    assert data["settings"]["TIDINGS_HEARTBEAT_MS"] == "20000"
    assert changed(settings)["TIDINGS_REDIS_URL"] == "redis://u:<password>@r.example:6379"
    assert "TIDINGS_HEARTBEAT_MS" not in changed(settings)
    for secret in ("s" * 40, "k" * 40, "hush-hush"):
        assert secret not in text + repr(data)
