"""The settings that publishers and gateways share, one row each.

A value comes from the argument, else from the `TIDINGS_*` variable, else from the row's default. Variables are read
when a publisher is made, never at import. The gateway builds its own, longer table on these rows, so that a default or
a bound cannot differ between the two.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from tidings.errors import InvalidSetting
from tidings.log.eventlog import LogLimits
from tidings.log.names import check_prefix
from tidings.redis_url import parse_redis_url

T = TypeVar("T")

ENV_PREFIX = "TIDINGS_"
MIN_SECRET_BYTES = 32
"""RFC 7518 section 3.2: an HS256 key must be at least as long as the hash; an API key is held to the same."""
MAX_FILE_BYTES = 65_536
"""A larger file is not a secret."""

HIDDEN = "(not shown)"


@dataclass(frozen=True, slots=True)
class Row(Generic[T]):
    """One setting. `unit` is empty for a value without one. `parse` takes the text of the variable and `check` the
    value itself; both raise `ValueError` with a text that never repeats the value. A `secret` row is never shown, and
    may also be given as the path of a file, in a variable that ends in ``_FILE``."""

    name: str
    default: T
    unit: str
    reason: str
    parse: Callable[[str], T]
    check: Callable[[T], object]
    low: int | None = None
    high: int | None = None
    secret: bool = False

    @property
    def variable(self) -> str:
        return ENV_PREFIX + self.name.upper()

    def resolve(self, argument: T | None = None, environ: Mapping[str, str] | None = None) -> T:
        """The argument, else the variable, else the default. Raises `InvalidSetting`, which names whichever was bad."""
        if argument is not None:
            return self._checked(self.name, argument, lambda: argument)
        text = read_variable(self.variable, environ, file=self.secret)
        if text is None:
            return self.default
        return self._checked(self.variable, text, lambda: self.parse(text))

    def _checked(self, source: str, given: object, value: Callable[[], T]) -> T:
        try:
            checked = value()
            self.check(checked)
        except InvalidSetting as error:
            raise InvalidSetting(source, HIDDEN if self.secret else given, error.why) from None
        except ValueError as error:
            raise InvalidSetting(source, HIDDEN if self.secret else given, str(error)) from None
        return checked


def read_variable(variable: str, environ: Mapping[str, str] | None = None, *, file: bool = False) -> str | None:
    """The text of an environment variable, or with `file` of the file that ``<variable>_FILE`` names. None: not set.

    Raises `InvalidSetting`, which holds the path but never the text.
    """
    environ = os.environ if environ is None else environ
    text, path = environ.get(variable), environ.get(f"{variable}_FILE") if file else None
    if path is None:
        return text
    source = f"{variable}_FILE"
    if text is not None:
        raise InvalidSetting(source, path, f"is set although {variable} is set too; keep one of them")
    try:
        with Path(path).open("rb") as opened:
            data = opened.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise InvalidSetting(source, path, f"is larger than {MAX_FILE_BYTES:,} bytes")
        return data.decode().strip()
    except OSError as error:
        raise InvalidSetting(source, path, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidSetting(source, path, "is not UTF-8 text") from None


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("must be a whole number") from None


def _number(name: str, default: int, unit: str, reason: str, *, low: int, high: int | None = None) -> Row[int]:
    def check(value: int) -> None:
        if type(value) is not int:
            raise ValueError("must be a whole number")
        if value < low or (high is not None and value > high):
            raise ValueError(f"must be at least {low:,}" if high is None else f"must be from {low:,} to {high:,}")

    return Row(name, default, unit, reason, _whole, check, low, high)


def check_redis_url(text: str) -> str:
    """Raises `InvalidSetting`, which never holds the URL: it may carry a password."""
    parse_redis_url(text)
    return text


def _check_failover(text: str) -> str:
    if text not in ("auto", "trust", "resync"):
        raise ValueError("must be auto, trust or resync")
    return text


REDIS_URL = Row(
    "redis_url",
    "redis://127.0.0.1:6379",
    "",
    "The Redis or Valkey that holds the logs: redis://, unix://, redis+sentinel://HOST,HOST/SERVICE or "
    "redis+cluster://HOST,HOST (rediss… for TLS). Database 0 only, since pub/sub ignores database numbers. Shared with "
    "publishers.",
    str,
    check_redis_url,
    secret=True,
)
PREFIX = Row(
    "prefix",
    "tidings",
    "",
    "Begins the name of every key and channel; keeps two installations on one Redis apart. Shared.",
    str,
    check_prefix,
)
FAILOVER = Row(
    "failover",
    "auto",
    "",
    "Whether a change of the Redis primary makes every log start a new epoch (resync), or acknowledged writes are "
    "trusted to have survived (trust). auto: resync with Sentinel and Cluster, else trust.",
    str,
    _check_failover,
)
LOG_MAX_EVENTS = _number(
    "log_max_events", 1_000, "events", "Events kept per user. Shared with publishers.", low=1, high=1_000_000
)
LOG_TTL_S = _number(
    "log_ttl_s", 604_800, "s", "Events of a user are forgotten this long after the last one. Shared.", low=1
)
META_TTL_S = _number(
    "meta_ttl_s", 7_776_000, "s", "An idle user's position can still be proved current for this long. Shared.", low=60
)
IDEMPOTENCY_TTL_S = _number(
    "idempotency_ttl_s", 86_400, "s", "How long an idempotency key is remembered. Shared.", low=1
)
MAX_EVENT_BYTES = _number(
    "max_event_bytes",
    65_536,
    "bytes",
    "Largest body of an event; a larger one is refused. Shared.",
    low=256,
    high=65_536,
)

SHARED: tuple[Row[str] | Row[int], ...] = (
    REDIS_URL,
    PREFIX,
    FAILOVER,
    LOG_MAX_EVENTS,
    LOG_TTL_S,
    META_TTL_S,
    IDEMPOTENCY_TTL_S,
    MAX_EVENT_BYTES,
)


def log_limits(
    *,
    log_max_events: int | None = None,
    log_ttl_s: int | None = None,
    meta_ttl_s: int | None = None,
    idempotency_ttl_s: int | None = None,
) -> LogLimits:
    """What a log keeps: arguments, else variables, else defaults. Raises `InvalidSetting`."""
    return LogLimits(
        LOG_MAX_EVENTS.resolve(log_max_events),
        LOG_TTL_S.resolve(log_ttl_s),
        META_TTL_S.resolve(meta_ttl_s),
        IDEMPOTENCY_TTL_S.resolve(idempotency_ttl_s),
    )


def split_list(text: str) -> list[str]:
    """Comma or line separated, or one JSON list of strings when the text starts with ``[``. Raises `ValueError`."""
    text = text.strip()
    if text.startswith("["):
        try:
            items = json.loads(text)
        except ValueError:
            raise ValueError("starts like a JSON list but is not one") from None
        if not all(isinstance(item, str) for item in items):
            raise ValueError("the JSON list must hold strings only")
        return list(items)
    return [item for part in text.replace("\n", ",").split(",") if (item := part.strip())]


def first_secret(name: str, argument: str | None = None, environ: Mapping[str, str] | None = None) -> str | None:
    """The secret to sign or knock with: the argument, else the first of ``TIDINGS_<NAME>`` or of the file that
    ``TIDINGS_<NAME>_FILE`` names; None if there is neither. Raises `InvalidSetting`, which never holds the secret."""
    variable = ENV_PREFIX + name.upper()
    source = name if argument is not None else variable
    try:
        given = [argument] if argument is not None else split_list(read_variable(variable, environ, file=True) or "")
        if not given:
            return None
        if len(given[0].encode()) < MIN_SECRET_BYTES:
            raise ValueError(f"must be at least {MIN_SECRET_BYTES} bytes long")
    except InvalidSetting:
        raise
    except ValueError as error:
        raise InvalidSetting(source, HIDDEN, str(error)) from None
    return given[0]
