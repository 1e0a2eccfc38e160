"""A socket whose operations must all be over by one moment."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.support.waiting import BUSY_S
from tidings.publishing.deadline import DeadlineSocket, is_readable, left


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_bytes_that_drip_end_with_the_deadline(pair: tuple[socket.socket, socket.socket]) -> None:
    """Each byte in time does not make the whole in time."""
    ours, theirs = pair
    stop = threading.Event()

    def drip() -> None:
        while not stop.wait(0.02):
            theirs.send(b"x")

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        start = time.monotonic()
        reader = DeadlineSocket(ours, start + 0.3).makefile("rb")
        with pytest.raises(TimeoutError):
            reader.read(1_000_000)
        assert 0.2 <= time.monotonic() - start <= 0.3 + BUSY_S
    finally:
        stop.set()
        thread.join()


def test_sending_to_nobody_ends_with_the_deadline(pair: tuple[socket.socket, socket.socket]) -> None:
    """A peer that does not read cannot hold a sender."""
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        DeadlineSocket(pair[0], start + 0.2).sendall(b"x" * 50_000_000)
    assert time.monotonic() - start <= 5, "it ended by the deadline, not by the size"


def test_without_a_deadline_the_socket_s_own_timeout_counts(pair: tuple[socket.socket, socket.socket]) -> None:
    """Between exchanges, others may look at the socket in their own way."""
    ours = DeadlineSocket(pair[0])
    ours.settimeout(0)
    with pytest.raises(BlockingIOError):
        ours.recv(1)
    buffer = bytearray(1)
    with pytest.raises(BlockingIOError):
        ours.recv_into(buffer)
    assert ours.fileno() == pair[0].fileno()


def test_a_deadline_that_has_passed() -> None:
    """Nothing is begun after it."""
    with pytest.raises(TimeoutError):
        left(time.monotonic() - 1)
    assert 4 < left(time.monotonic() + 5) <= 5


def test_readable(pair: tuple[socket.socket, socket.socket]) -> None:
    """Data is something to read, and so is the end."""
    ours, theirs = pair
    assert not is_readable(ours)
    theirs.send(b"x")
    assert is_readable(ours)
    ours.recv(1)
    assert not is_readable(ours)
    theirs.close()
    assert is_readable(DeadlineSocket(ours))
