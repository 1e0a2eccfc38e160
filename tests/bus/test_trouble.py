"""Each way in which Redis can be away has its own words."""

from __future__ import annotations

import errno
import socket
import ssl

import hiredis
import pytest

from tidings_gateway.bus.endpoint import Endpoint
from tidings_gateway.bus.resp import ConnectionLost, Unexpected
from tidings_gateway.bus.trouble import FATAL, Kind, Trouble, kind_of, trouble

AT = Endpoint("cache", 7000, username="gw", password="secret")


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), Kind.REFUSED, "nothing listens"),
        (OSError("Multiple exceptions: [Errno 111] Connection refused, …"), Kind.REFUSED, "nothing listens"),
        (FileNotFoundError(errno.ENOENT, "no such file"), Kind.REFUSED, "nothing listens"),
        (socket.gaierror(-2, "Name or service not known"), Kind.UNREACHABLE, "looked up: Name or service not known"),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), Kind.UNREACHABLE, "Network is unreachable"),
        (TimeoutError(), Kind.SILENT, "does not answer"),
        (ssl.SSLCertVerificationError(1, "self-signed certificate"), Kind.TLS, "not trusted"),
        (ssl.SSLError(1, "[SSL] wrong version number"), Kind.TLS, "no TLS"),
        (ConnectionLost(None), Kind.CLOSED, "closed the connection"),
        (ConnectionLost(ConnectionResetError()), Kind.CLOSED, "closed the connection"),
        (ConnectionLost(TimeoutError()), Kind.SILENT, "does not answer"),
        (hiredis.ProtocolError("bad byte"), Kind.ANSWERED, "does not speak the Redis protocol"),
        (Unexpected(b"?"), Kind.ANSWERED, "does not speak the Redis protocol"),
        (hiredis.ReplyError("WRONGPASS invalid username-password pair"), Kind.CREDENTIALS, "refused the user name"),
        (hiredis.ReplyError("ERR invalid password"), Kind.CREDENTIALS, "refused the password"),
        (hiredis.ReplyError("ERR AUTH <password> called without any"), Kind.CREDENTIALS, "has no password set"),
        (hiredis.ReplyError("NOAUTH Authentication required."), Kind.CREDENTIALS, "wants a password"),
        (hiredis.ReplyError("NOPERM no permission to run 'subscribe'"), Kind.PERMISSION, "'subscribe'"),
        (hiredis.ReplyError("READONLY You can't write"), Kind.REPLICA, "read-only replica"),
        (hiredis.ReplyError("MASTERDOWN Link with MASTER is down"), Kind.REPLICA, "lost its primary"),
        (hiredis.ReplyError("LOADING Redis is loading"), Kind.LOADING, "loading its data"),
        (hiredis.ReplyError("BUSY Redis is busy running a script"), Kind.BUSY, "slow script"),
        (hiredis.ReplyError("ERR max number of clients reached"), Kind.FULL, "no more clients"),
        (hiredis.ReplyError("DENIED Redis is running in protected mode"), Kind.PERMISSION, "protected mode"),
        (hiredis.ReplyError("ERR something else"), Kind.ANSWERED, "ERR something else"),
        (RuntimeError("ours"), Kind.FAULT, "RuntimeError"),
    ],
)
def test_words(error: BaseException, kind: Kind, words: str) -> None:
    """The kind for code, a sentence with the address for people, and never a credential."""
    found = trouble(error, AT)
    assert found.kind is kind
    assert words in found.words
    assert "secret" not in found.words
    if kind is not Kind.FAULT:
        assert "cache:7000" in found.words


def test_words_are_put_once() -> None:
    """What is in words already stays as it is, also as the cause of a lost connection."""
    first = Trouble(Kind.DEAF, "said before")
    assert trouble(first, AT) is first
    assert trouble(ConnectionLost(first), AT) is first


def test_a_long_answer_is_cut() -> None:
    """Redis may quote what it was sent; a log line stays a line."""
    assert len(trouble(hiredis.ReplyError("ERR " + "x" * 10_000), AT).words) < 300


@pytest.mark.parametrize(
    ("text", "fatal"),
    [("READONLY x", True), ("LOADING x", True), ("NOAUTH x", True), ("WRONGTYPE x", False), ("OOM x", False)],
)
def test_which_answers_end_the_link(text: str, fatal: bool) -> None:
    """One user's broken key must not cost everybody else the link."""
    assert (kind_of(hiredis.ReplyError(text)) in FATAL) is fatal
