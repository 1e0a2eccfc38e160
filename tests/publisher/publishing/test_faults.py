"""What errors of Redis mean for an event, in the words of several versions."""

from __future__ import annotations

import pytest

from tidings.publishing.faults import ServerError, fault_of, is_doubtful, is_replica, is_stale


@pytest.mark.parametrize(
    ("text", "code", "retryable", "known"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", "storage_full", True, True),
        (
            "OOM command not allowed when used memory > 'maxmemory'. script: 1f2e, on @user_script:38.",
            "storage_full",
            True,
            True,
        ),
        (
            "ERR Error running script (call to f_1f2e): @user_script:38: @user_script: 38: -OOM command not allowed",
            "storage_full",
            True,
            True,
        ),
        ("READONLY You can't write against a read only replica.", "read_only", True, True),
        ("NOREPLICAS Not enough good replicas to write.", "no_replicas", True, True),
        ("LOADING Redis is loading the dataset in memory", "loading", True, True),
        ("MASTERDOWN Link with MASTER is down", "read_only", True, True),
        ("MISCONF Redis is configured to save RDB snapshots", "misconfigured", True, True),
        ("BUSY Redis is busy running a script.", "busy", True, True),
        ("CLUSTERDOWN The cluster is down", "unavailable", True, True),
        ("TRYAGAIN Multiple keys request during rehashing of slot", "unavailable", True, True),
        ("NOAUTH Authentication required.", "unauthorized", False, True),
        ("ERR Protocol error: unauthenticated multibulk length", "unauthorized", False, True),
        ("WRONGPASS invalid username-password pair", "unauthorized", False, True),
        ("NOPERM User app has no permissions to run the 'evalsha' command", "forbidden", False, False),
        (
            "ERR ACL failure in script: The user executing the script can't access this channel",
            "forbidden",
            False,
            False,
        ),
        ("The user executing the script can't run this command or subcommand script: 1f", "forbidden", False, False),
        ("ERR Script attempted to access a non local key in a cluster node script: 1f", "unavailable", True, True),
        (
            "Attempted to access a non local key in a cluster node script: on @user_script:40.",
            "unavailable",
            True,
            True,
        ),
        ("MOVED 3999 127.0.0.1:6381", "cluster", False, True),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", "foreign_data", False, True),
        ("ERR unknown command 'EVALSHA'", "store_error", False, False),
        ("BUSYKEY Target key name already exists.", "store_error", False, False),
        ("", "store_error", False, False),
    ],
)
def test_a_fault_in_words(text: str, code: str, retryable: bool, known: bool) -> None:
    """Each refusal has its word, whether to try again, and whether it is sure that nothing happened."""
    fault = fault_of(ServerError(text))
    assert (fault.code, fault.retryable, fault.known) == (code, retryable, known)
    assert fault.words
    assert "\n" not in fault.words


def test_words_of_others_are_cut() -> None:
    """A long answer of Redis does not become a long line in a log."""
    assert len(fault_of(ServerError("ERR " + "x" * 5000)).words) < 250


def test_the_code_of_an_error() -> None:
    """The first word, or the code that an older Redis wraps."""
    assert ServerError("NOSCRIPT No matching script.").code == "NOSCRIPT"
    assert ServerError("ERR Error running script: @user_script: 3: -READONLY You can't write").code == "READONLY"
    assert ServerError("ODD thing").code == "ODD"


def test_which_answers_make_connections_stale() -> None:
    """After a demotion, all open connections lead to the wrong server."""
    assert is_stale([b"x", ServerError("READONLY You can't write")])
    assert is_stale([ServerError("LOADING x")])
    assert is_stale([[b"slave", b"10.0.0.1", 6379, b"connected", 7]])
    assert not is_stale([b"x", ServerError("OOM x"), 1, [], [b"master", 7, []]])


def test_which_answers_ask_for_the_servers_anew() -> None:
    """Those of a wrong server, those of a Cluster that is about to change, and those of a primary that was cut off."""
    assert is_doubtful([ServerError("READONLY x")])
    assert is_doubtful([ServerError("CLUSTERDOWN Hash slot not served")])
    assert is_doubtful([ServerError("NOREPLICAS Not enough good replicas to write.")])
    assert not is_doubtful([ServerError("TRYAGAIN x"), ServerError("OOM x"), b"x"])


def test_a_role_that_cannot_be_asked_is_no_role() -> None:
    """Where ROLE is forbidden or unknown, the server is taken at its word."""
    assert is_replica([[b"slave", b"h", 1, b"connected", 7]])
    assert not is_replica([[b"master", 7, []]])
    assert not is_replica([ServerError("NOPERM no permissions to run the 'role' command")])
