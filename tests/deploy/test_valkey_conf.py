"""valkey.conf: a real server takes it, and is what it promises."""

from __future__ import annotations

import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.children import spawn
from tests.support.ports import free_port
from tests.support.sources import ROOT
from tests.support.valkey import server_binary
from tests.support.waiting import until_sync
from tidings import Publisher

CONF = ROOT / "deploy" / "valkey.conf"

PROMISED = {
    "maxmemory-policy": "noeviction",
    "maxmemory": str(1024**3),
    "appendonly": "yes",
    "appendfsync": "everysec",
    "save": "",
    "stream-node-max-bytes": "1024",
}


def test_a_real_server_takes_it(tmp_path: Path) -> None:
    """Started from the file alone, with other places and port: each line counts, the address in redis_url opens it, no
    other does, and an event published to it is there after a restart."""
    secrets, port = tmp_path / "secrets", free_port()
    subprocess.run([ROOT / "deploy" / "secrets.sh", secrets], check=True, capture_output=True)
    text = CONF.read_text()
    for theirs, ours in (
        ("bind 0.0.0.0", "bind 127.0.0.1"),
        ("port 6379", f"port {port}"),
        ("/run/secrets", str(secrets)),
        ("dir /data", f"dir {tmp_path}"),
    ):
        assert text.count(theirs) == 1
        text = text.replace(theirs, ours)
    conf = tmp_path / "valkey.conf"
    conf.write_text(text)
    given = urlsplit((secrets / "redis_url").read_text().strip())
    url = f"redis://:{given.password}@127.0.0.1:{port}"
    for start in (1, 2):
        with (tmp_path / "log").open("ab") as log:
            process = spawn([server_binary(), str(conf)], log=log, cwd=tmp_path)
        try:
            with redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0)) as client:
                until_sync(lambda client=client: _answers(client), 10, "valkey answers")
                assert {name: client.config_get(name)[name] for name in PROMISED} == PROMISED
            with (
                redis.Redis(port=port, retry=Retry(NoBackoff(), 0)) as stranger,
                pytest.raises(redis.AuthenticationError),
            ):
                stranger.ping()
            with Publisher(url) as publisher:
                receipt = publisher.publish("anna", "n", start)
                assert receipt.position is not None
                assert f".{start}-" in receipt.position
        finally:
            process.terminate()
            process.wait(10)


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def test_every_promised_line_is_there() -> None:
    """The file says it, rather than a default of today's server."""
    lines = dict(line.partition(" ")[::2] for line in CONF.read_text().splitlines() if line and line[0] != "#")
    written = {name: lines.get(name, "").strip('"') for name in PROMISED}
    assert written == PROMISED | {"maxmemory": "1gb"}
