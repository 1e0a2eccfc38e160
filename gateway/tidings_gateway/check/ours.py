"""Our own settings, where they are allowed and still do not fit the world around them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidings_gateway.check.finding import Finding, fail, note, ok, warn
from tidings_gateway.settings.limits import RESERVED_DESCRIPTORS, descriptor_limit

if TYPE_CHECKING:
    from tidings_gateway.settings import Settings

PROXY_IDLE_MS = 60_000
"""What the usual proxies and balancers cut a silent connection at."""
KUBERNETES_GRACE_MS = 30_000
STOP_MS = 4_000
"""What a drain takes beside grace and window."""
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - compared, not listened on


def judge(settings: Settings) -> Iterator[Finding]:
    found = list(_found(settings))
    yield from found or [ok("settings", "They fit each other.")]


def _found(settings: Settings) -> Iterator[Finding]:
    if not settings.jwt_secret and not settings.jwt_public_key:
        words = "Neither TIDINGS_JWT_SECRET nor TIDINGS_JWT_PUBLIC_KEY is set here: `tidings serve` would not start."
        yield note("settings", words, "run this check with the environment of the gateway")
    elif not settings.api_key:
        words = "TIDINGS_API_KEY is not set here: `tidings serve` would not start."
        yield note("settings", words, "run this check with the environment of the gateway")
    if settings.jwt_secret and not settings.allowed_origins:
        yield note("settings", "TIDINGS_ALLOWED_ORIGINS is empty: no web page can connect, only programs.")
    if settings.heartbeat_ms >= PROXY_IDLE_MS:
        words = f"TIDINGS_HEARTBEAT_MS is {settings.heartbeat_ms}: proxies cut connections that are silent for 60 s."
        yield warn("settings", words, "TIDINGS_HEARTBEAT_MS=20000")
    if settings.canary_timeout_ms < settings.redis_timeout_ms:
        words = (
            f"TIDINGS_CANARY_TIMEOUT_MS ({settings.canary_timeout_ms}) is below TIDINGS_REDIS_TIMEOUT_MS "
            f"({settings.redis_timeout_ms}): a slow answer is taken for a deaf link."
        )
        yield warn("settings", words, f"TIDINGS_CANARY_TIMEOUT_MS={2 * settings.redis_timeout_ms}")
    drain_ms = settings.drain_grace_ms + settings.drain_window_ms + STOP_MS
    if drain_ms >= KUBERNETES_GRACE_MS:
        words = f"A drain takes up to {drain_ms / 1000:g} s; Kubernetes and Compose files kill after 30 s unless told."
        yield note("settings", words, f"terminationGracePeriodSeconds: {drain_ms // 1000 + 1}")
    soft = descriptor_limit()
    if soft is not None and settings.max_connections > soft - RESERVED_DESCRIPTORS:
        words = f"TIDINGS_MAX_CONNECTIONS is {settings.max_connections:,}, and a process here has {soft:,} descriptors."
        yield fail("settings", words, f"ulimit -n {settings.max_connections + RESERVED_DESCRIPTORS}")
    if settings.admin_listen is not None and settings.admin_listen.host in EVERYWHERE:
        words = f"TIDINGS_ADMIN_LISTEN is {settings.admin_listen}: metrics for whoever reaches that port."
        yield note("settings", words, "right in a container; elsewhere 127.0.0.1")
