"""`tidings check` against real servers that are set up wrongly, and one that is right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.client import Client
from tests.support.cluster import Cluster
from tests.support.gateway import FAST_DRAIN, GatewayProcess
from tests.support.ports import free_port
from tests.support.sentinels import Sentinels
from tests.support.sources import ROOT
from tests.support.tokens import API_KEY, SECRET, mint
from tests.support.valkey import ValkeyProcess
from tidings import Publisher
from tidings_gateway.check.permissions import acl_line

RIGHT = ("--maxmemory", "64mb", "--appendonly", "yes", "--stream-node-max-bytes", "1024")


def check(url: str, *arguments: str, **environ: str) -> tuple[int, str]:
    clean = {name: text for name, text in os.environ.items() if not name.startswith("TIDINGS_")}
    path = os.pathsep.join(str(ROOT / name) for name in ("publisher", "gateway"))
    done = subprocess.run(
        [sys.executable, "-m", "tidings", "check", *arguments],
        env={**clean, "PYTHONPATH": path, "TIDINGS_REDIS_URL": url, **environ},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


def levels(url: str, *arguments: str, **environ: str) -> dict[str, tuple[str, str]]:
    """Topic to level and words; of several the worst."""
    _, text = check(url, "--json", *arguments, **environ)
    told: list[dict[str, Any]] = json.loads(text)["findings"]
    return {each["topic"]: (each["level"], f"{each['words']} → {each['remedy']}") for each in reversed(told)}


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyProcess]:
    with ValkeyProcess(*RIGHT) as server:
        yield server


def test_a_server_that_is_right(server: ValkeyProcess) -> None:
    """Exit code 0, only OK and NOTE, and nothing is left behind in it."""
    environ = {
        "TIDINGS_JWT_SECRET": SECRET,
        "TIDINGS_API_KEY": API_KEY,
        "TIDINGS_ALLOWED_ORIGINS": "https://a.example",
    }
    code, text = check(server.url, "--users", "1000", **environ)
    assert code == 0, text
    for topic in ("version", "eviction", "persistence", "pubsub buffer", "latency", "canary", "clock", "permissions"):
        assert f"OK    {topic}" in text
    assert "WARN" not in text
    assert "FAIL" not in text
    assert text.endswith("Nothing has to be changed; 2 notes.\n")
    assert SECRET not in text
    assert [key for key in server.cli("KEYS", "*") if b":gw:" not in key] == []


def test_a_server_that_is_wrong_in_every_way(prefix: str) -> None:
    """Evicts, keeps nothing, cuts subscribers early; exit code 1, and each remedy, typed as it stands, mends it."""
    wrong = (
        "--maxmemory-policy",
        "allkeys-lru",
        "--maxmemory",
        "64mb",
        "--client-output-buffer-limit",
        "pubsub 1mb 0 0",
    )
    with ValkeyProcess(*wrong) as server:
        code, text = check(server.url, TIDINGS_PREFIX=prefix)
        assert code == 1, text
        told = levels(server.url, "--users", "20000")
        assert {topic for topic, (level, _) in told.items() if level in ("WARN", "FAIL")} == {
            "eviction",
            "persistence",
            "pubsub buffer",
        }
        for topic in ("eviction", "persistence", "pubsub buffer", "stream nodes"):
            command = told[topic][1].partition("CONFIG SET ")[2].partition(";")[0]
            name, _, value = command.partition(" ")
            server.cli("CONFIG", "SET", name, value.strip('"'))
        told = levels(server.url, "--users", "20000")
        assert {level for level, _ in told.values()} <= {"OK", "NOTE"}, told
        assert told["stream nodes"][0] == "OK"


@pytest.mark.may_block(reason="subprocess and redis-py in a test of the command line")
async def test_a_user_with_too_little_and_one_with_just_enough(server: ValkeyProcess, prefix: str) -> None:
    """What is missing is named, all of it. The line that is recommended makes a user with whom the check finds no
    fault, and a gateway and a publisher work: with TIDINGS_FAILOVER=resync, which needs the most."""
    server.cli("ACL", "SETUSER", "little", "on", ">pw", f"~{prefix}:*", f"&{prefix}:*", "-@all", "+ping", "+subscribe")
    told = levels(f"redis://little:pw@127.0.0.1:{server.port}", TIDINGS_PREFIX=prefix)
    level, words = told["permissions"]
    assert level == "FAIL"
    for missing in ("XADD", "SCRIPT LOAD", "EVALSHA", "UNSUBSCRIBE", "PUBLISH", "INFO", "TIME"):
        assert missing in words
    assert "The Redis user little may not: " in words
    assert told["canary"][0] == "FAIL"
    assert "INFO, CONFIG GET" in told["not seen"][1]

    server.cli("ACL", "SETUSER", "stranger", "on", ">pw", "~elsewhere:*", "&elsewhere:*", "+@all")
    told = levels(f"redis://stranger:pw@127.0.0.1:{server.port}", TIDINGS_PREFIX=prefix)
    assert told["permissions"][0] == "FAIL"
    assert "XADD" in told["permissions"][1]

    server.cli(*acl_line(prefix, "enough").replace("PASSWORD", "pw").split())
    url = f"redis://enough:pw@127.0.0.1:{server.port}"
    told = levels(url, TIDINGS_PREFIX=prefix)
    assert (told["permissions"][0], told["canary"][0]) == ("OK", "OK")
    assert "privileges" not in told
    env = {**FAST_DRAIN, "TIDINGS_FAILOVER": "resync"}
    async with GatewayProcess(url, prefix=prefix, env=env) as gateway, Client(gateway.ws_url, mint("ann")) as client:
        await client.until_synced()
        with Publisher(url, prefix=prefix) as publisher:
            publisher.publish("ann", "n", 1, idempotency_key="once")
        await client.until_events(1)
        client.check()


def test_too_much_is_named(server: ValkeyProcess) -> None:
    """A user who may do everything: a NOTE, and the line for one who may not."""
    level, words = levels(server.url)["privileges"]
    assert level == "NOTE"
    for right in ("FLUSHALL", "KEYS", "SHUTDOWN", "EVAL", "keys outside the prefix"):
        assert right in words
    assert "ACL SETUSER tidings on >PASSWORD resetkeys ~tidings:*" in words


def test_a_replica_and_a_node_of_a_cluster_and_nobody(server: ValkeyProcess) -> None:
    """In words, not as the error that a command happened to meet."""
    with ValkeyProcess("--replicaof", "127.0.0.1", str(server.port)) as replica:
        told = levels(replica.url)
        assert told["role"][0] == "FAIL"
        assert told["canary"][0] == "FAIL"
    with ValkeyProcess("--cluster-enabled", "yes") as node:
        level, words = levels(node.url)["mode"]
        assert level == "FAIL"
        assert "node of a Redis Cluster (state: fail)" in words
    code, text = check(f"redis://127.0.0.1:{free_port()}")
    assert code == 1
    assert "nothing listens at 127.0.0.1" in " ".join(text.split())
    code, text = check("redis://127.0.0.1:1/3")
    assert code == 2
    assert "TIDINGS_REDIS_URL" in text
    code, text = check("redis://127.0.0.1:1", TIDINGS_QUEUE_EVENTS="1")
    assert code == 2
    assert "a page of the log must fit" in text


def test_behind_sentinels() -> None:
    """The primary is found and asked, the Sentinels are too; the gateway's canary is tried on what they name."""
    with Sentinels(*RIGHT) as sentinels:
        told = levels(sentinels.url)
        assert told["sentinels"][0] == "WARN"
        assert "fewer than three" in told["sentinels"][1]
        assert (told["canary"][0], told["eviction"][0], told["persistence"][0]) == ("OK", "OK", "OK")
        assert "TIDINGS_FAILOVER=resync" in told["replicas"][1]
        level, words = levels(sentinels.url.replace("/orders", "/nobody"))["connection"]
        assert level == "FAIL"
        assert "No Sentinel says where nobody is" in words


def test_a_cluster() -> None:
    """Each primary is asked; what all share is one line; rights that only a Cluster needs are tried, too."""
    with Cluster(*RIGHT) as cluster:
        told = levels(cluster.url)
        assert told["cluster"][0] == "WARN"
        assert told["cluster"][1].count("127.0.0.1:") == 3
        assert (told["permissions"][0], told["eviction"][0]) == ("OK", "OK")
        assert "mode" not in told
        for node in cluster.primaries:
            node.cli(*acl_line("tidings", "single").replace("PASSWORD", "pw").split())
            node.cli(*acl_line("tidings", "sharded", sharded=True).replace("PASSWORD", "pw").split())
            node.cli(*acl_line("tidings", "deaf", sharded=True).replace("PASSWORD", "pw").split(), "-ssubscribe")
        url = cluster.url.replace("//", "//{}:pw@")
        level, words = levels(url.format("single"))["connection"]
        assert level == "FAIL"
        assert "cluster|slots" in words
        assert levels(url.format("sharded"))["permissions"][0] == "OK"
        assert "deaf may not: SSUBSCRIBE" in levels(url.format("deaf"))["permissions"][1]
