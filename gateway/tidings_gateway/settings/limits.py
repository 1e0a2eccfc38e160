"""How many connections the process can hold."""

from __future__ import annotations

RESERVED_DESCRIPTORS = 128
"""Kept back for Redis, listeners, log files and connections that are being refused."""

FALLBACK_MAX_CONNECTIONS = 10_000
"""Where the system states no limit."""


def descriptor_limit() -> int | None:
    """How many descriptors this process may have open; None where the system states no limit."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def default_max_connections() -> int:
    limit = descriptor_limit()
    return FALLBACK_MAX_CONNECTIONS if limit is None else max(1, limit - RESERVED_DESCRIPTORS)


def raise_descriptor_limit() -> None:
    """Raise the soft limit of descriptors to the hard one, which needs no right. Many systems start at 1,024."""
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            return
