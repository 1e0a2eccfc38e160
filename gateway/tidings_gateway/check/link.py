"""The way between Redis and a gateway: buffers, latency, the canary, clocks."""

from __future__ import annotations

from collections.abc import Iterator

from tidings_gateway.check.facts import Facts
from tidings_gateway.check.finding import Finding, config, fail, megabytes, note, ok, warn

RECORD_BYTES = 200
"""Of a record beside its body, in the buffer of a subscriber: positions, channel, protocol."""
STEP_BYTES = 32 * 1_048_576
"""What a recommended buffer is rounded up to; Redis' own default."""

SLOW_MEDIAN_MS, SLOW_P99_MS = 5.0, 50.0
CLOCK_NOTE_MS, CLOCK_WARN_MS = 250.0, 5_000.0


def judge(facts: Facts, users: int, event_bytes: int, redis_timeout_ms: int) -> Iterator[Finding]:
    yield from _buffers(facts, users, event_bytes)
    yield from _clients(facts)
    yield from _latency(facts, redis_timeout_ms)
    yield from _canary(facts)
    yield from _clock(facts)


def burst_bytes(users: int, event_bytes: int) -> int:
    """One event to every user of a gateway at once: what Redis must hold until the gateway has read it."""
    return users * (event_bytes + RECORD_BYTES)


def recommended(users: int, event_bytes: int) -> str:
    """The pubsub limit for that, twice over: hard, soft, seconds."""
    hard = max(STEP_BYTES, -(-2 * burst_bytes(users, event_bytes) // STEP_BYTES) * STEP_BYTES)
    return f"pubsub {hard // 1_048_576}mb {hard // 4_194_304}mb 60"


def _buffers(facts: Facts, users: int, event_bytes: int) -> Iterator[Finding]:
    text = facts.setting("client-output-buffer-limit")
    words = text.split() if text else []
    if "pubsub" not in words:
        return
    hard = int(words[words.index("pubsub") + 1])
    burst = burst_bytes(users, event_bytes)
    remedy = config("client-output-buffer-limit", recommended(users, event_bytes))
    told = f"{users:,} users of one gateway with an event of {event_bytes:,} bytes each at once are {megabytes(burst)}"
    if not hard:
        words_ = f"No limit for subscribers: a gateway that hangs fills Redis' memory. {told}."
        yield note("pubsub buffer", words_, remedy)
    elif hard < burst:
        words_ = (
            f"{told}, and Redis cuts a subscriber at {megabytes(hard)}: all its pages would read their logs at once."
        )
        yield warn("pubsub buffer", words_, remedy)
    else:
        yield ok("pubsub buffer", f"{megabytes(hard)}; {told}.")


def _clients(facts: Facts) -> Iterator[Finding]:
    connected, most = facts.number("connected_clients"), facts.number("maxclients")
    if connected and most and connected > 0.8 * most:
        words = f"{connected:,} of {most:,} connections are taken; a gateway needs two, a publisher up to 16."
        yield warn("connections", words, config("maxclients", str(2 * most)))


def _latency(facts: Facts, redis_timeout_ms: int) -> Iterator[Finding]:
    if not facts.pings_ms:
        return
    median = facts.pings_ms[len(facts.pings_ms) // 2]
    p99 = facts.pings_ms[int(0.99 * (len(facts.pings_ms) - 1))]
    told = f"PING takes {median:.2g} ms, 99 of 100 at most {p99:.2g} ms"
    if p99 > redis_timeout_ms / 4:
        words = f"{told}; at TIDINGS_REDIS_TIMEOUT_MS ({redis_timeout_ms}) the link is given up."
        yield warn("latency", words, "see SLOWLOG GET and LATENCY DOCTOR on Redis, and the network between")
    elif median > SLOW_MEDIAN_MS or p99 > SLOW_P99_MS:
        yield note("latency", f"{told}: far for a Redis. Every event waits for it.", "bring gateways and Redis closer")
    else:
        yield ok("latency", f"{told}.")


def _canary(facts: Facts) -> Iterator[Finding]:
    if facts.canary_ms is not None:
        yield ok("canary", f"Written, published and heard again in {facts.canary_ms:.1f} ms.")
    elif facts.canary_trouble:
        words = f"What is published is not heard, so no gateway would work: {facts.canary_trouble}."
        yield fail("canary", words, "the other findings say why; else look at proxies between here and Redis")


def _clock(facts: Facts) -> Iterator[Finding]:
    if facts.clock_ahead_ms is None:
        return
    away = abs(facts.clock_ahead_ms)
    if away <= CLOCK_NOTE_MS + facts.clock_doubt_ms:
        yield ok("clock", f"Redis' clock and ours agree within {max(away, facts.clock_doubt_ms):.0f} ms.")
        return
    side = "ahead of" if facts.clock_ahead_ms > 0 else "behind"
    words = f"Redis' clock is {away / 1000:,.1f} s {side} ours"
    if away > CLOCK_WARN_MS:
        yield warn("clock", f"{words}: one of them is wrong. Tokens end by ours.", "synchronise both with NTP (chrony)")
    else:
        yield note("clock", f"{words}. Nothing relies on it but people who compare log lines.", "NTP on both")
