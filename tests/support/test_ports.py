from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.support.ports import free_port

SHOW = "import json; from tests.support.ports import free_port; print(json.dumps([free_port() for _ in range(300)]))"


def test_no_port_is_given_twice() -> None:
    """A test that asks for two ports gets two."""
    ports = [free_port() for _ in range(500)]
    assert len(set(ports)) == len(ports)


def test_workers_never_get_the_same_port() -> None:
    """Two workers that ask at the same moment get different ports, wherever they began."""
    seen: list[set[int]] = []
    for worker in ("gw0", "gw1", "gw2"):
        environment = os.environ | {"PYTEST_XDIST_WORKER": worker}
        answer = subprocess.run(
            [sys.executable, "-c", SHOW], env=environment, check=True, capture_output=True, timeout=60
        )
        seen.append(set(json.loads(answer.stdout)))
    assert not seen[0] & seen[1]
    assert not seen[1] & seen[2]
    assert not seen[0] & seen[2]
