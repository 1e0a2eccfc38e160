"""Things that each process has of its own."""

from __future__ import annotations

import os
import threading

import pytest

from tidings.publishing.per_process import PerProcess


def test_one_for_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same while the process is; after a fork a new one, and the parent's is handed over once."""
    inherited: list[list[int]] = []
    own: PerProcess[list[int]] = PerProcess(list, inherited.append)
    first = own.get()
    first.append(1)
    assert own.get() is first
    monkeypatch.setattr(os, "getpid", lambda: 99_999_999)
    second = own.get()
    assert second == []
    assert own.get() is second
    assert inherited == [[1]]


def test_threads_that_come_first_at_once_get_the_same() -> None:
    """However many threads make the first call, there is one."""
    for _ in range(200):
        own: PerProcess[list[int]] = PerProcess(list, lambda _: None)
        start = threading.Barrier(8)
        got: list[list[int]] = []

        def work(
            own: PerProcess[list[int]] = own, start: threading.Barrier = start, got: list[list[int]] = got
        ) -> None:
            start.wait()
            got.append(own.get())

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({id(one) for one in got}) == 1
