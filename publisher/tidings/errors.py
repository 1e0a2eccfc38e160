"""Every error Tidings raises on purpose. They carry data; the text is only for people.

::

    TidingsError
    ├── InvalidInput (also a ValueError)      the caller's value was refused, nothing was sent
    │   ├── InvalidPosition                   not a position
    │   ├── InvalidEvent                      not publishable: carries the path of the bad value
    │   ├── InvalidUser                       not a user id
    │   ├── InvalidTopic                      not a topic name
    │   └── InvalidSetting                    an argument or TIDINGS_* variable that makes no sense
    ├── BadRecord                             a message on a user's channel that is no record
    ├── MissingExtra (also an ImportError)    an optional dependency is not installed
    ├── StoreUnavailable                      Redis cannot answer just now; says nothing about what it holds
    └── PublishError                          an event was not acknowledged: retryable? outcome unknown?
"""

from __future__ import annotations

import reprlib

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 80


def shown(value: object) -> str:
    """`value` on one line, without control characters, and cut: errors end up in logs, and values may be long."""
    text = value[:160] if isinstance(value, str | bytes) else value
    return _REPR.repr(text).encode("ascii", "backslashreplace").decode("ascii")


class TidingsError(Exception):
    """The root."""


class InvalidInput(TidingsError, ValueError):
    """A value given by the caller was refused before anything was sent."""


class InvalidPosition(InvalidInput):
    """`text` is not a position."""

    def __init__(self, text: str | bytes) -> None:
        super().__init__(f"not a position: {shown(text)}")
        self.text = text


class InvalidEvent(InvalidInput):
    """The event cannot be published. `path` leads to the bad value, e.g. ``data.rows[3].price``; `why` is what is wrong
    with it."""

    def __init__(self, path: str, value: object, why: str) -> None:
        super().__init__(f"{path}: {why}, not {shown(value)}")
        self.path = path
        self.value = value
        self.why = why


class InvalidUser(InvalidInput):
    """`user` is not a user id (1 to 128 of ``A-Z a-z 0-9 . _ ~ @ : + = -``). Nothing is normalised."""

    def __init__(self, user: object) -> None:
        super().__init__(f"not a user id (1 to 128 of A-Z a-z 0-9 . _ ~ @ : + = -): {shown(user)}")
        self.user = user


class InvalidTopic(InvalidInput):
    """`topic` is not a topic name (1 to 64 of ``A-Z a-z 0-9 . _ : -``)."""

    def __init__(self, topic: object) -> None:
        super().__init__(f"not a topic name (1 to 64 of A-Z a-z 0-9 . _ : -): {shown(topic)}")
        self.topic = topic


class InvalidSetting(InvalidInput):
    """The argument or environment variable `name` has a value that cannot be used."""

    def __init__(self, name: str, value: object, why: str) -> None:
        super().__init__(f"{name}={shown(value)}: {why}")
        self.name = name
        self.value = value
        self.why = why


class BadRecord(TidingsError):
    """A message on a user's channel has none of the three shapes of a record. `head` is how it starts."""

    def __init__(self, head: bytes) -> None:
        super().__init__(f"not a record: {shown(head)}")
        self.head = head


class MissingExtra(TidingsError, ImportError):
    """`module` is not installed; ``pip install tidings[<extra>]`` brings it."""

    def __init__(self, extra: str, module: str) -> None:
        super().__init__(f"{module} is not installed: pip install 'tidings[{extra}]'")
        self.extra = extra
        self.module = module


class StoreUnavailable(TidingsError):
    """Redis cannot be asked just now. This is never an answer about a log: what it holds is simply not known.

    `retry_after_s`: a good time to ask again, in seconds, or None.
    """

    def __init__(self, why: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.retry_after_s = retry_after_s


class PublishError(TidingsError):
    """An event was not acknowledged.

    `code` is a short stable word (``unavailable``, ``storage_full``, …) and `why` says it in a sentence.
    `retryable`: the same call may succeed later. `outcome_unknown`: it may have been stored all the same (the answer
    was lost); repeat it with the same `idempotency_key`, or live with the doubt. `retry_after_s`: a good time for that,
    or None. `idempotency_key` is the one that was used, also when the caller gave none.
    """

    def __init__(
        self,
        why: str,
        *,
        code: str = "unavailable",
        retryable: bool = True,
        outcome_unknown: bool = False,
        retry_after_s: float | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        super().__init__(why)
        self.why = why
        self.code = code
        self.retryable = retryable
        self.outcome_unknown = outcome_unknown
        self.retry_after_s = retry_after_s
        self.idempotency_key = idempotency_key
