"""The file descriptors of this process: a page is one."""

from __future__ import annotations

import resource

SPARE = 200
"""For publishers, the logs, locust's own."""
MOST = 20_000
"""Beyond it one process is too slow to measure anything, whatever the machine allows."""


def make_room_for(pages: int) -> None:
    """Raise the limit as far as this process may. Raises `ValueError` when that is not enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unbounded = resource.RLIM_INFINITY
    most = MOST if hard == unbounded else min(hard, MOST)
    if pages + SPARE > most:
        raise ValueError(
            f"{pages} pages need {pages + SPARE} file descriptors, one process has at most {most}: fewer --users, a "
            "higher `ulimit -Hn`, or more locust workers"
        )
    # As far as it goes, needed or not: a locust worker learns only later how many pages are its share.
    if soft != unbounded and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
