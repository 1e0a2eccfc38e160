"""Every metric: its name, what it counts, and what to do when it looks bad. `docs/metrics.md` is made from this table.

A label has a fixed set of values, listed here or taken from a table of the code; a value outside it becomes `other`.
Nothing that a stranger chooses (a user, an origin, a path, a close code of his own) can make a time series.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from tidings.log.page import ResyncReason
from tidings.publishing.faults import FAULTS
from tidings_gateway.core.closing import CLOSES

OTHER: Final = "other"
TRANSPORTS: Final = ("websocket",)
KINDS: Final = ("durable", "ephemeral")
_TROUBLES: Final = (
    "refused unreachable tls silent deaf closed credentials permission replica moved sentinel cluster loading busy "
    "full answered"
)
TROUBLES: Final = (*_TROUBLES.split(), "fault", "stopped", OTHER)
"""The kinds of `bus.trouble`, which is a storey above; a test holds them equal."""
PUBLISH_ERRORS: Final = tuple(dict.fromkeys(("deadline", "store_error", *(fault.code for fault in FAULTS.values()))))
RESYNC_REASONS: Final = tuple(reason.value for reason in ResyncReason)

LAG_BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""From what a healthy process shows to the moment when clients give up on it."""
DELIVERY_BOUNDS_S: Final = (0.0001, 0.00025, 0.0005, *LAG_BOUNDS_S)


@dataclass(frozen=True, slots=True)
class Metric:
    """One row. `labels` gives each label's values, an empty tuple where the code's own version is the only one. Values
    listed for a single label are shown from the start, as 0: what never happened yet can be asked for, too.
    `watch`: what to do when it looks bad, in one sentence or two; empty where it explains others."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    watch: str = ""


CONNECTIONS = Metric(
    "tidings_connections",
    "gauge",
    "Client connections open now.",
    {"transport": TRANSPORTS},
    "Near tidings_connections_max, newcomers are closed with 4429: add gateways. Falling everywhere at once: look at "
    "the balancer, then at closes by code.",
)
CONNECTIONS_MAX = Metric("tidings_connections_max", "gauge", "TIDINGS_MAX_CONNECTIONS as it is in force.")
OPENED = Metric(
    "tidings_connections_opened_total", "counter", "Connections opened.", {"transport": TRANSPORTS}, "See closes."
)
CLOSED = Metric(
    "tidings_connections_closed_total",
    "counter",
    "Connections ended, by the code of the Close frame that came first, ours or the client's; 1006: there was none. "
    "Opened less closed is open. `reason` is ours, empty where the code has several and the client sent it.",
    {
        "transport": TRANSPORTS,
        "code": (*dict.fromkeys(str(row.code) for row in CLOSES), OTHER),
        "reason": ("", *dict.fromkeys(row.reason for row in CLOSES if row.reason)),
    },
    "4401 rising: the app's tokens are refused (secret rolled? clock?). 1013 `too slow`: clients or the network; "
    "`store away`: Redis. 1011: our fault, the log has it. 4429: full. 4408: a proxy that swallows bytes.",
)
REFUSED = Metric(
    "tidings_upgrades_refused_total",
    "counter",
    "WebSocket handshakes answered with an HTTP status: draining, too many handshakes or connections (503), or a page "
    "of an origin that is not allowed (403).",
    {"reason": ("draining", "handshakes", "connections", "origin")},
    "`origin` after a release of the app: TIDINGS_ALLOWED_ORIGINS lacks one. `connections` and `handshakes`: add "
    "gateways.",
)
RECEIVED = Metric(
    "tidings_events_received_total",
    "counter",
    "Events heard from Redis, once each however many sessions they go to.",
    {"kind": KINDS},
    "Zero while publishers publish: see tidings_redis_up and tidings_bus_last_heard_seconds.",
)
SENT = Metric(
    "tidings_events_sent_total",
    "counter",
    "Events handed to the transport of a session, those read from the log included.",
    {"kind": KINDS},
)
COALESCED = Metric(
    "tidings_events_coalesced_total", "counter", "Ephemeral events that a newer one of their key replaced in a queue."
)
DROPPED = Metric(
    "tidings_events_dropped_total",
    "counter",
    "Events that were not handed on: an ephemeral one whose session's queue was full, or a record on a channel that is "
    "none of ours (`unreadable`). Durable events are never dropped.",
    {"reason": ("queue_full", "unreadable")},
    "`unreadable`: somebody else publishes under TIDINGS_PREFIX.",
)
SKIPPED = Metric(
    "tidings_events_skipped_total",
    "counter",
    "Entries of a log that could not be delivered; a skip frame stood in their place.",
    watch="Any: something writes to the logs that is not Tidings, or TIDINGS_MAX_EVENT_BYTES was lowered. The log line "
    "has the position.",
)
FELL_BEHIND = Metric(
    "tidings_sessions_fell_behind_total",
    "counter",
    "Times a durable event did not fit into a session's queue and was left to the log.",
    watch="Steadily rising: clients too slow for what they are sent, or TIDINGS_QUEUE_EVENTS is small for your bursts.",
)
OUTBOX_BYTES = Metric(
    "tidings_outbox_bytes",
    "gauge",
    "Bytes waiting in the queues of all sessions, what the transports hold not included.",
    watch="Much, for long: many slow clients, or this process does not get to write (tidings_event_loop_lag_seconds).",
)
RESUMES = Metric(
    "tidings_resumes_total",
    "counter",
    "Sessions opened, by what became of the position they came with: resumed, start (they had none), or why they must "
    "fetch their state anew.",
    {"outcome": ("resumed", "start", *RESYNC_REASONS)},
    "`trimmed`: away longer than the log reaches (TIDINGS_LOG_MAX_EVENTS, TIDINGS_LOG_TTL_S). `epoch` or `ahead` for "
    "many at once: Redis lost data; see `tidings check`.",
)
RESYNCS = Metric(
    "tidings_resyncs_total",
    "counter",
    "Resync frames sent, at the start of a session or later: each makes a page fetch its state from your backend.",
    {"reason": RESYNC_REASONS},
    "A jump of `epoch` or `ahead` after a failover or a restart of Redis is the truth being told; without one, find "
    "out who deletes keys.",
)
PAGES = Metric("tidings_catchup_pages_total", "counter", "Pages read from logs, for sessions that start or catch up.")
PAGES_FAILED = Metric(
    "tidings_catchup_failures_total",
    "counter",
    "Reads of a log that failed; the session tries again, with jitter.",
    watch="Rising while tidings_redis_up is 1: Redis is overloaded, or busy with a slow script.",
)
READS = Metric(
    "tidings_catchup_reads",
    "gauge",
    "Reads of logs sent to Redis and not answered, and those waiting in line behind them.",
    {"state": ("outstanding", "queued")},
    "`queued` for minutes: Redis cannot keep up with what reconnects; give clients more retry window, or Redis more "
    "CPU.",
)
BUS_LAG = Metric(
    "tidings_bus_lag_seconds",
    "gauge",
    "The last canary's way: written and published by this gateway, heard by it again, on its own monotonic clock. NaN "
    "while there is no link. With tidings_delivery_seconds it is the honest publish-to-socket latency: one clock.",
    watch="Above 0.1: Redis, the network or this process is slow. Compare gateways: all means Redis, one means itself.",
)
DELIVERY = Metric(
    "tidings_delivery_seconds",
    "histogram",
    "From the arrival of a durable record's bytes from Redis to its hand-over to the transport or queue of the last "
    "session of its user, one observation per record, on this gateway's monotonic clock. Bytes that still wait in the "
    "kernel are not seen here but in tidings_bus_lag_seconds.",
    watch="p99 above 0.05: this process has more to do than one core can.",
)
EVENT_AGE = Metric(
    "tidings_event_age_seconds",
    "histogram",
    "From a durable event's `time` to its hand-over as in tidings_delivery_seconds. `time` is the wall clock of the "
    "PUBLISHER, so this is wrong by the difference of two clocks, and holds what a publisher takes to get it stored; "
    "where it is right, it is the whole way. Live events only, not those read from the log.",
    watch="High while tidings_bus_lag_seconds is low: the publishers are late, or a clock is wrong.",
)
FROM_THE_FUTURE = Metric(
    "tidings_events_from_the_future_total",
    "counter",
    "Live durable events whose `time` had not yet come here; tidings_event_age_seconds counts them as 0.",
    watch="Rising: a publisher's clock is ahead of this gateway's; do not believe tidings_event_age_seconds.",
)
LOOP_LAG = Metric(
    "tidings_event_loop_lag_seconds",
    "histogram",
    "How late a timer of the event loop came, ten times a second. Nothing is read, sent or answered meanwhile.",
    watch="p99 above 0.1: too little CPU (throttling?), or too much to do. Above TIDINGS_LOOP_LAG_MS the log says so.",
)
REDIS_UP = Metric(
    "tidings_redis_up",
    "gauge",
    "1 while there is a proved link to Redis (in a Cluster to every primary): written to, published on, heard.",
    watch="0: the log says why in words; so does `tidings check`. Connected pages (in a Cluster those of users whose "
    "slots are there) hear nothing until it is back.",
)
WRITES_REFUSED = Metric(
    "tidings_redis_writes_refused",
    "gauge",
    "1 while Redis can be read and heard but takes no writes: full, too few replicas, a disk error.",
    watch="1: publishers get errors now. `tidings check` names the cause and the remedy.",
)
LAST_HEARD = Metric(
    "tidings_bus_last_heard_seconds",
    "gauge",
    "Time since the last byte came over the subscribed connection, in a Cluster the one that is silent for longest. A "
    "canary comes every TIDINGS_CANARY_INTERVAL_MS.",
    watch="Above 10: this gateway is deaf, whatever else looks well. It replaces its link by itself; if that does not "
    "help, the log says why.",
)
GENERATION = Metric(
    "tidings_bus_generation", "gauge", "Of the link in use: rises with every link, and whenever one channel was lost."
)
RESUBSCRIBES = Metric(
    "tidings_bus_resubscribes_total",
    "counter",
    "Links opened after the first one (in a Cluster, of each primary): each subscribes all its channels anew, and "
    "their sessions read the log.",
    watch="More than a few an hour: see tidings_bus_lost_total for why.",
)
LOST = Metric(
    "tidings_bus_lost_total",
    "counter",
    "Links to Redis that ended or could not be opened, by kind of trouble.",
    {"kind": TROUBLES},
    "`closed`, again and again, under load: Redis cuts the subscribed connection; see client-output-buffer-limit in "
    "`tidings check`. `silent`: Redis froze. `deaf`: something between swallows messages. `moved`, `replica`: a "
    "failover.",
)
CHANNELS = Metric("tidings_bus_channels", "gauge", "Channels in the table of subscriptions: users, and some linger.")
PUBLISH_REQUESTS = Metric(
    "tidings_publish_requests_total",
    "counter",
    "Requests to POST /v1/publish: all stored, partly, refused as invalid, without a valid key, too many under way "
    "(busy), or failed for the store's sake.",
    {"outcome": ("stored", "partly", "invalid", "unauthorized", "busy", "failed")},
    "`failed`: see tidings_publish_events_total. `unauthorized`: a publisher has an old key, or somebody is guessing.",
)
PUBLISH_EVENTS = Metric(
    "tidings_publish_events_total",
    "counter",
    "Events in those requests: stored, duplicate (their idempotency key was known), ephemeral, invalid, or the error "
    "code the publisher was told.",
    {"outcome": ("stored", "duplicate", "ephemeral", "invalid", *PUBLISH_ERRORS, OTHER)},
    "`storage_full`: Redis is at maxmemory. `deadline`, `unavailable`: Redis is slow or away. `foreign_data`: the "
    "prefix is used twice.",
)
PHASE = Metric(
    "tidings_drain_phase", "gauge", "0 serving, 1 grace, 2 window (sockets are let go), 3 stopping. Above 0: not ready."
)
READY = Metric("tidings_ready", "gauge", "What /readyz says: 1 for 200.")
BUILD_INFO = Metric("tidings_build_info", "gauge", "Always 1; the version is the label.", {"version": ()})

METRICS: Final = (
    CONNECTIONS,
    CONNECTIONS_MAX,
    OPENED,
    CLOSED,
    REFUSED,
    RECEIVED,
    SENT,
    COALESCED,
    DROPPED,
    SKIPPED,
    FELL_BEHIND,
    OUTBOX_BYTES,
    RESUMES,
    RESYNCS,
    PAGES,
    PAGES_FAILED,
    READS,
    BUS_LAG,
    DELIVERY,
    EVENT_AGE,
    FROM_THE_FUTURE,
    LOOP_LAG,
    REDIS_UP,
    WRITES_REFUSED,
    LAST_HEARD,
    GENERATION,
    RESUBSCRIBES,
    LOST,
    CHANNELS,
    PUBLISH_REQUESTS,
    PUBLISH_EVENTS,
    PHASE,
    READY,
    BUILD_INFO,
)
"""All of them, in the order they are shown."""

ALERTS: Final = (
    ("deaf", "tidings_bus_last_heard_seconds > 15", "1m", "A gateway hears nothing: pages wait for events in vain."),
    ("no store", "tidings_redis_up == 0", "1m", "No link to Redis. New sessions are told to come back later."),
    ("writes refused", "tidings_redis_writes_refused == 1", "1m", "Redis takes no events: full, or without replicas."),
    (
        "publishing fails",
        'sum(rate(tidings_publish_requests_total{outcome="failed"}[5m])) > 0',
        "5m",
        "Workers get errors over HTTP. (Those that write to Redis directly see theirs themselves.)",
    ),
    (
        "mass refetch",
        'sum(rate(tidings_resyncs_total{reason=~"epoch|ahead"}[5m])) > 10',
        "0m",
        "Redis lost data: pages fetch their state from your backend. Look at its load first.",
    ),
    ("nearly full", "tidings_connections / tidings_connections_max > 0.8", "10m", "Add gateways before 4429 begins."),
    (
        "our fault",
        'increase(tidings_connections_closed_total{code="1011"}[15m]) > 0',
        "0m",
        "A session failed by a fault of the gateway. The traceback is in the log; please report it.",
    ),
    (
        "starved",
        "histogram_quantile(0.99, rate(tidings_event_loop_lag_seconds_bucket[5m])) > 0.25",
        "10m",
        "The event loop is held up: too little CPU, or too many connections for one core.",
    ),
    (
        "tokens refused",
        'sum(rate(tidings_connections_closed_total{code="4401"}[5m])) > '
        "0.5 * sum(rate(tidings_connections_opened_total[5m]))",
        "5m",
        "More than half of all newcomers: a secret was rolled on one side only, or a clock is wrong.",
    ),
)
"""Recommended alerts: name, PromQL, how long, and what it means."""
