"""Tidings tells a browser tab the moment its work is done. This package publishes; `tidings_gateway` delivers.

::

    from tidings import Publisher

    Publisher("redis://127.0.0.1:6379").publish("alice", "job.complete", {"job": 42})

Importing it loads next to nothing: what a name needs is loaded when the name is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidings.client import AsyncPublisher
    from tidings.errors import (
        BadRecord,
        InvalidEvent,
        InvalidInput,
        InvalidPosition,
        InvalidSetting,
        InvalidTopic,
        InvalidUser,
        MissingExtra,
        PublishError,
        StoreUnavailable,
        TidingsError,
    )
    from tidings.log.receipt import Receipt
    from tidings.publishing.message import Message
    from tidings.sync import Publisher
    from tidings.tokens import mint_token

__all__ = [
    "AsyncPublisher",
    "BadRecord",
    "InvalidEvent",
    "InvalidInput",
    "InvalidPosition",
    "InvalidSetting",
    "InvalidTopic",
    "InvalidUser",
    "Message",
    "MissingExtra",
    "PublishError",
    "Publisher",
    "Receipt",
    "StoreUnavailable",
    "TidingsError",
    "mint_token",
]

_HOMES = {
    "AsyncPublisher": "tidings.client",
    "Publisher": "tidings.sync",
    "Message": "tidings.publishing.message",
    "Receipt": "tidings.log.receipt",
    "mint_token": "tidings.tokens",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, "tidings.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
