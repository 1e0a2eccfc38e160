"""The table of settings. A row is: name (its unit at the end), default, reason. `--help`, the documentation and the
parser are all made from it, so a setting cannot exist in one of them alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from tidings import settings as shared
from tidings.errors import InvalidSetting
from tidings_gateway.keys import check_public_key, check_secret_key
from tidings_gateway.settings import values
from tidings_gateway.settings.limits import default_max_connections

ENV_PREFIX = "TIDINGS_"

GROUPS = {
    "redis_url": "Where",
    "jwt_secret": "Who",
    "hello_timeout_ms": "A session",
    "max_connections": "Limits",
    "drain_grace_ms": "Stopping",
    "redis_timeout_ms": "Redis",
    "log_max_events": "The log",
    "log_level": "Log lines",
}
"""The first row of each group, and the group's heading."""

_SHARED = {source.name: source for source in shared.SHARED}

_ALGORITHMS = Literal[
    "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]


def _secret(check: Any) -> Any:
    """A validator for one item of a list of secrets, which keeps it wrapped so that no repr can print it."""

    def checked(item: SecretStr) -> SecretStr:
        check(item.get_secret_value())
        return item

    return AfterValidator(checked)


Listen = Annotated[values.Listen, BeforeValidator(values.parse_listen)]
AdminListen = Annotated[values.Listen | None, BeforeValidator(values.parse_optional_listen)]
Origins = Annotated[tuple[Annotated[str, AfterValidator(values.check_origin)], ...], BeforeValidator(values.split_list)]
JwtSecret = Annotated[SecretStr, _secret(values.check_secret), _secret(check_secret_key)]
Secrets = Annotated[tuple[JwtSecret, ...], BeforeValidator(values.split_list)]
ApiKeys = Annotated[tuple[Annotated[SecretStr, _secret(values.check_api_key)], ...], BeforeValidator(values.split_list)]
PublicKeys = Annotated[tuple[Annotated[str, AfterValidator(check_public_key)], ...], BeforeValidator(values.split_keys)]
Algorithms = Annotated[tuple[_ALGORITHMS, ...], BeforeValidator(values.split_list)]
Names = Annotated[tuple[str, ...], BeforeValidator(values.split_list)]


def row(default: Any, reason: str, *, low: int | None = None, high: int | None = None, shown: str | None = None) -> Any:
    """One row. `low` and `high` are inclusive; `shown` replaces the default in the documentation."""
    extra: dict[str, Any] = {"shown": shown} if shown is not None else {}
    if callable(default):
        return Field(default_factory=default, description=reason, ge=low, le=high, json_schema_extra=extra)
    return Field(default, description=reason, ge=low, le=high, json_schema_extra=extra)


def secret_row(reason: str) -> Any:
    """A row whose value is never shown, and which may also be given as the path of a file (`…_FILE`)."""
    return Field((), description=reason, json_schema_extra={"secret": True, "file": True}, repr=False)


def shared_row(source: shared.Row[Any]) -> Any:
    """A row that publishers have too, with their default, bounds and reason."""
    extra: dict[str, Any] = {"secret": True, "file": True, "shown": source.default} if source.secret else {}
    return Field(
        source.default,
        description=source.reason,
        ge=source.low,
        le=source.high,
        json_schema_extra=extra,
        repr=not source.secret,
    )


class Settings(BaseModel):
    """Plain, checked values. Constructing one reads nothing but its arguments; `load_settings` reads the environment.

    Raises `pydantic.ValidationError` (which hides the values); `load_settings` turns that into `SettingsError`.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True, arbitrary_types_allowed=True
    )

    redis_url: str = shared_row(shared.REDIS_URL)
    prefix: str = shared_row(shared.PREFIX)
    listen: Listen = row("127.0.0.1:8080", "HOST:PORT for clients and publishers. Port 0 lets the kernel choose.")
    admin_listen: AdminListen = row(
        "127.0.0.1:8081",
        "HOST:PORT for the operator: /metrics, /livez, /readyz, until the very end of a drain. Empty: none. Taken "
        "already: the gateway does not start; where nobody set this, it warns and goes on without.",
    )
    base_path: Annotated[str, AfterValidator(values.check_base_path)] = row(
        "", "A path before every route, such as /push, for a proxy that does not strip it."
    )

    gateway_name: Annotated[str, AfterValidator(values.check_gateway_name)] = row(
        "", "Begins the ids of this gateway's sessions, so that a log line or a page can tell which one it was."
    )
    trusted_proxies: str = row(
        "127.0.0.1,::1",
        "Addresses or networks, comma separated, whose X-Forwarded-For and X-Forwarded-Proto are believed.",
    )

    jwt_secret: Secrets = secret_row(
        "HS256 secrets of at least 32 bytes, comma separated or a JSON list: the first signs, all verify, "
        "so that a secret can be replaced without logging anybody out."
    )
    jwt_public_key: PublicKeys = Field(
        default=(),
        description="Public keys that verify tokens: PEM blocks, a JSON Web Key or a key set. RSA, EC or Ed25519.",
        json_schema_extra={"file": True},
    )
    jwt_algorithms: Algorithms = row(
        ("HS256", "RS256", "ES256", "EdDSA"),
        "Signature algorithms accepted. Each key only ever verifies those of its own type.",
    )
    jwt_issuer: str = row("", "When set, a token's iss must be exactly this.")
    jwt_audience: Names = row(
        (), "When set, a token's aud must name one of these. When not, a token that has an aud is refused (RFC 7519)."
    )
    jwt_leeway_s: int = row(
        10, "How far the clocks of issuer and gateway may differ, for exp, nbf and iat.", high=60, low=0
    )
    cookie_name: Annotated[str, AfterValidator(values.check_cookie_name)] = row(
        "", "Cookie that may carry the token. Empty: none. With a cookie, an allowed Origin becomes required."
    )
    api_key: ApiKeys = secret_row(
        "Keys for publishing over HTTP, at least 32 bytes, comma separated or a JSON list; also as sha256:<hex digest>."
    )
    allowed_origins: Origins = row(
        (),
        "Origins of the pages that may connect, comma separated, exactly as a browser sends them "
        "(https://app.example.com). Empty: none. The word localhost stands for any port of this machine.",
    )

    hello_timeout_ms: int = row(5_000, "A client that has not said hello by then is closed with 4408.", low=10)
    heartbeat_ms: int = row(
        20_000, "How often a session is asked for a sign of life; below what proxies cut at.", low=10
    )
    heartbeat_timeout_ms: int = row(
        10_000, "How long the answer may take before the session is closed with 4408.", low=10
    )
    queue_events: int = row(256, "Frames one session may have waiting before it falls back to reading the log.", low=1)
    queue_bytes: int = row(
        262_144,
        "The same in bytes, counting what the transport still holds. What is held while catching up comes on top.",
        low=4_096,
    )
    slow_timeout_ms: int = row(
        10_000,
        "A client whose transport takes nothing for this long while data waits is closed (a WebSocket with 1013).",
        low=10,
    )
    page_events: int = row(128, "Entries read from the log at a time while a session catches up.", low=1, high=1_000)
    page_bytes: int = row(131_072, "The same in bytes; at least one entry is read.", low=1_024)
    held_events: int = row(512, "Live events kept aside while a session catches up; more are read from the log.", low=1)
    held_bytes: int = row(262_144, "The same in bytes.", low=1_024)
    retry_ms: int = row(5_000, "The window in which a client told to come back later spreads its return.", low=0)
    store_wait_ms: int = row(
        5_000,
        "How long Redis may be away, or silent, before a new session is told to come back later (1013).",
        low=0,
    )

    max_connections: int = row(
        default_max_connections,
        "Sessions this process takes; one more is closed with 4429. Each needs a file descriptor.",
        low=1,
        shown="the descriptor limit less 128",
    )
    max_frame_bytes: int = row(8_192, "A longer frame from a client closes it with 1009.", low=256, high=1_048_576)
    inbound_frames_per_s: int = row(50, "Frames a client may send per second, on average; above it 1008.", low=1)
    inbound_bytes_per_s: int = row(65_536, "Bytes a client may send per second, on average; above it 1008.", low=1_024)
    header_timeout_ms: int = row(5_000, "The headers of a request must be complete by then.", low=10)
    max_header_bytes: int = row(16_384, "Longer request headers are refused with 431.", low=1_024)
    send_buffer_bytes: int = row(
        0, "SO_SNDBUF of client connections; small makes slow clients visible sooner. 0: the kernel's choice.", low=0
    )
    write_high_water_bytes: int = row(
        65_536, "What the transport may hold for one client before frames wait in the session's queue.", low=1_024
    )
    close_timeout_ms: int = row(5_000, "How long a client may take to answer a Close frame before it is cut.", low=0)

    max_publish_bytes: int = row(
        4_194_304, "Longest body of a request to publish; a longer one is refused with 413 while it streams.", low=1_024
    )

    drain_grace_ms: int = row(
        5_000,
        "After SIGTERM: how long all goes on while /readyz already says 503, so that the load balancer notices first.",
        low=0,
    )
    drain_window_ms: int = row(20_000, "Then: the window in which sessions are closed, evenly spread.", low=0)

    redis_timeout_ms: int = row(2_000, "A Redis command without an answer by then: the link is replaced.", low=50)
    canary_interval_ms: int = row(
        2_000, "How often the link to Redis is tried: written, published and heard again.", low=50
    )
    canary_timeout_ms: int = row(
        4_000, "A canary not heard by then means a deaf link, however healthy it looks: it is replaced.", low=50
    )
    subscription_linger_ms: int = row(
        5_000, "A channel stays subscribed this long after its last session left: a reload does not pay for it.", low=0
    )
    subscribe_batch: int = row(512, "Channels in one SUBSCRIBE.", low=1, high=10_000)
    heal_reads: int = row(
        128,
        "Log reads under way at once for the sessions of a link that was lost; newcomers are read beside them.",
        low=1,
        high=10_000,
    )
    failover: Literal["auto", "trust", "resync"] = shared_row(shared.FAILOVER)
    failover_refetch_ms: int = row(
        30_000,
        "After a failover every page of a fleet has to fetch its state anew; each does so at a random moment within "
        "this. 100,000 pages then ask your backend 3,300 times a second, and one may show old state for 30 s.",
        low=0,
        high=3_600_000,
    )
    ready_redis: Literal["start", "always"] = row(
        "start", "Whether /readyz also fails while Redis is away (always), or only until it was first reached (start)."
    )

    log_max_events: int = shared_row(shared.LOG_MAX_EVENTS)
    log_ttl_s: int = shared_row(shared.LOG_TTL_S)
    meta_ttl_s: int = shared_row(shared.META_TTL_S)
    idempotency_ttl_s: int = shared_row(shared.IDEMPOTENCY_TTL_S)
    max_event_bytes: int = shared_row(shared.MAX_EVENT_BYTES)

    log_level: Literal["debug", "info", "warning", "error"] = row("info", "The least severe line that is logged.")
    log_format: Literal["auto", "text", "json"] = row(
        "auto", "One JSON object per line, or text. auto: text on a terminal, else JSON."
    )
    loop_lag_ms: int = row(
        500, "A warning when the event loop stood still for longer, once a minute at most. 0: none.", low=0
    )

    @field_validator(*(source.name for source in shared.SHARED))
    @classmethod
    def _check_shared(cls, value: Any, info: ValidationInfo) -> Any:
        try:
            _SHARED[info.field_name or ""].check(value)
        except InvalidSetting as error:
            raise ValueError(error.why) from None
        return value

    @model_validator(mode="after")
    def _check_together(self) -> Settings:
        from tidings_gateway.settings.together import contradictions

        found = list(contradictions(self))
        if found:
            raise ValueError("\n".join(found))
        return self


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return ENV_PREFIX + name.upper()


def rows() -> Iterator[tuple[str, FieldInfo]]:
    """Every row in the order of the table."""
    yield from Settings.model_fields.items()


def mark(field: FieldInfo, key: str) -> Any:
    """What the row says about itself beyond pydantic's own words: `secret`, `file`, `shown`."""
    extra = field.json_schema_extra
    return extra.get(key) if isinstance(extra, dict) else None
