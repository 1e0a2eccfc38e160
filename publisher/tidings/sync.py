"""Publishing from code that blocks: Celery and RQ workers, Django views, scripts."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, overload

from tidings.log.receipt import Receipt
from tidings.publishing.calls import (
    Checked,
    Result,
    ask_position,
    blocking_transport,
    check_each,
    check_messages,
    check_open,
    merge,
    now_ms,
    position_of,
    receipt_of,
    sendable,
    start,
)
from tidings.publishing.config import DEADLINE_S, MAX_CONNECTIONS, Config
from tidings.publishing.message import Call, Message, Options, checked
from tidings.publishing.plan import Done, Outcome, Sleep


class Publisher:
    """Publishes events; the blocking twin of `AsyncPublisher`.

    `url`: ``redis://…``, ``unix://…``, ``redis+sentinel://…``, ``redis+cluster://…`` (``rediss…`` for TLS; default:
    ``TIDINGS_REDIS_URL``) to write to the log itself, or ``http(s)://…`` of a gateway, with `api_key` (default: the
    first of ``TIDINGS_API_KEY``). For Redis, prefix, retention and limits must be those of the gateways: give them to
    both as the same ``TIDINGS_*`` variables.
    `deadline_s`: how long one call may take, retries and all; only looking up a host name may take longer.
    `max_connections`: at most so many calls go on at once, the others wait their turn.

    Nothing is opened until the first call. Safe to share between threads, and to use on both sides of a fork.
    Raises `InvalidSetting`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        prefix: str | None = None,
        log_max_events: int | None = None,
        log_ttl_s: int | None = None,
        meta_ttl_s: int | None = None,
        idempotency_ttl_s: int | None = None,
        max_event_bytes: int | None = None,
        failover: str | None = None,
        deadline_s: float = DEADLINE_S,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._config = Config(
            url,
            api_key=api_key,
            prefix=prefix,
            log_max_events=log_max_events,
            log_ttl_s=log_ttl_s,
            meta_ttl_s=meta_ttl_s,
            idempotency_ttl_s=idempotency_ttl_s,
            max_event_bytes=max_event_bytes,
            failover=failover,
            deadline_s=deadline_s,
            max_connections=max_connections,
        )
        self._transport = blocking_transport(self._config)
        self._closed = False

    @overload
    def publish(
        self,
        user: str,
        event: str,
        data: Any = None,
        *,
        key: str | None = None,
        ephemeral: bool = False,
        idempotency_key: str | None = None,
        min_replicas: int = 0,
    ) -> Receipt: ...
    @overload
    def publish(
        self,
        user: list[str] | tuple[str, ...],
        event: str,
        data: Any = None,
        *,
        key: str | None = None,
        ephemeral: bool = False,
        idempotency_key: str | None = None,
        min_replicas: int = 0,
    ) -> list[Result]: ...
    def publish(
        self,
        user: str | list[str] | tuple[str, ...],
        event: str,
        data: Any = None,
        *,
        key: str | None = None,
        ephemeral: bool = False,
        idempotency_key: str | None = None,
        min_replicas: int = 0,
    ) -> Receipt | list[Result]:
        """Store one event for one user, and tell whoever of them is connected.

        `data`: any JSON. `key`: what the event is about (a job's id, say); of ephemeral events that wait for a slow
        client, only the newest of the same type and key is kept. `ephemeral`: not stored, reaches who is connected now.
        `idempotency_key`: two publishes for a user with the same key store one event (for a day); without one, only
        this call's own retries are recognised. `min_replicas`: acknowledged only when so many replicas of the primary
        have it too, at most 16; if they do not by the deadline, the error's code is ``unreplicated``, and the event may
        be stored all the same.

        Returns the receipt, or for a list of users one result each, in order: a receipt or an error.
        Raises `InvalidEvent`, `InvalidUser`, and `PublishError`, whose `outcome_unknown` says whether the event may be
        stored all the same.
        """
        encoded = self._config.event(event, data, key, now_ms())
        options: Options = {
            "ephemeral": ephemeral,
            "idempotency_key": idempotency_key,
            "min_replicas": min_replicas,
        }
        if isinstance(user, list | tuple):
            return self._all(check_each(user, encoded, options))
        message = checked(user, encoded, **options)
        return receipt_of(self._drive([message])[0])

    def publish_many(self, messages: Iterable[Message]) -> list[Result]:
        """Store many events with few round trips. One result each, in order: a receipt or an error.

        A message that is refused does not hold up the others. Events for one user are stored in the order given,
        except that one which had to be repeated may come behind those sent with it.
        """
        return self._all(check_messages(self._config, list(messages), now_ms()))

    def position(self, user: str) -> str:
        """The user's position now, to be rendered into a page *before* its state is read: what happens in between
        then reaches the page as an event. Raises `InvalidUser`, `PublishError`."""
        return position_of(self._drive([ask_position(user)])[0])

    def close(self) -> None:
        """Close the connections. Later calls raise `PublishError`."""
        self._closed = True
        self._transport.close()

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _all(self, checks: Sequence[Checked]) -> list[Result]:
        return merge(checks, self._drive(sendable(checks)))

    def _drive(self, calls: Sequence[Call]) -> list[Done]:
        check_open(self._closed)
        steps = start(self._config, calls)
        outcome: Outcome | None = None
        try:
            while True:
                step = steps.send(outcome)
                outcome = None
                if isinstance(step, Sleep):
                    time.sleep(step.seconds)
                else:
                    outcome = self._transport.run(step.request, step.timeout_s)
        except StopIteration as end:
            results: list[Done] = end.value
            return results
