"""The test Sentinels themselves."""

from __future__ import annotations

import pytest

from tests.support.replicated import is_primary
from tests.support.sentinels import Sentinels


@pytest.mark.full
def test_a_failover_on_command_and_one_because_of_a_death() -> None:
    """The Sentinels agree on the new primary, and it has what was written before, when that had reached it."""
    with Sentinels(count=3) as sentinels:
        first = sentinels.primary
        first.cli("SET", "a", "1")
        assert first.cli("WAIT", 1, 5000) == 1
        second = sentinels.failover()
        assert second is sentinels.primary is not first
        assert is_primary(second)
        assert second.cli("GET", "a") == b"1"
        sentinels.wait_replicating()
        second.kill()
        assert sentinels.wait_moved(second) is first
