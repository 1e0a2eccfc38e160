"""Everything that can be chosen about a load test: one table, for `python -m loadtest` and for locust alike."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, get_args, get_type_hints

StrikeKind = Literal["none", "cut", "drain", "kill", "both"]


@dataclass(frozen=True, slots=True)
class Options:
    users: Annotated[
        int, "pages, each with a connection; two of five are tabs of one user, since both tabs must have every event"
    ] = 500
    connect_per_s: Annotated[float, "how many pages open a second at the start: the storm is to come later"] = 100.0
    rate: Annotated[float, "events published a second, over all users; each user gets rate / users of them"] = 100.0
    steady_s: Annotated[
        float, "how long it runs before the first strike and after each, in seconds; the figures need a few"
    ] = 10.0
    strike: Annotated[
        StrikeKind,
        "what brings the storm: cut (every connection is reset), drain (SIGTERM to one gateway), kill (SIGKILL to "
        "one), both (SIGKILL to all), none (somebody else does it). Against a deployment: cut or none",
    ] = "cut"
    strikes: Annotated[int, "how many storms, one after the other; with 0 it is a steady run"] = 1
    back_s: Annotated[
        float, "every page must be live again so many seconds after a strike; twice the longest wait of a client"
    ] = 60.0
    quiet_s: Annotated[float, "what was acknowledged must arrive so many seconds after the last publish"] = 30.0
    refetch_ms: Annotated[
        float,
        "how long a page's own fetch of its state takes, in ms, give or take half: events that come meanwhile are held",
    ] = 100.0
    user_prefix: Annotated[str, "the users are this and a number; nobody else should have such a name"] = "load-"
    origin: Annotated[str, "the Origin header of the pages; none is sent when empty"] = ""
    seed: Annotated[int, "of all that is random here; what the network makes of it is not"] = 1

    @classmethod
    def add_to(cls, parser: argparse.ArgumentParser, *, skip: tuple[str, ...] = ()) -> None:
        hints = get_type_hints(cls, include_extras=True)
        for item in fields(cls):
            if item.name not in skip:
                kind, about = get_args(hints[item.name])
                parser.add_argument(
                    f"--{item.name.replace('_', '-')}",
                    type=type(item.default),
                    default=item.default,
                    choices=get_args(kind) or None,
                    help=f"{about} (default: {item.default!r})",
                )

    @classmethod
    def table(cls) -> str:
        """The rows of README.md."""
        hints = get_type_hints(cls, include_extras=True)
        return "\n".join(
            f"| `--{item.name.replace('_', '-')}` | {item.default or 'none'} | {get_args(hints[item.name])[1]} |"
            for item in fields(cls)
        )

    @classmethod
    def parsed(cls, namespace: argparse.Namespace, **more: Any) -> Options:
        """From what was parsed; `more` wins. Raises `ValueError` for a number that makes no sense."""
        given = {item.name: getattr(namespace, item.name, item.default) for item in fields(cls)}
        options = cls(**{**given, **more})
        for name in ("users", "connect_per_s", "rate", "steady_s", "back_s", "quiet_s", "refetch_ms"):
            if not getattr(options, name) > 0:
                raise ValueError(f"--{name.replace('_', '-')} must be above 0, not {getattr(options, name)}")
        if options.strikes < 0:
            raise ValueError(f"--strikes must not be below 0, not {options.strikes}")
        return options

    def user_of(self, number: int) -> str:
        """The user of a page, by the page's number. Two of five pages are tabs of one user."""
        return f"{self.user_prefix}{number - 1 if number % 5 == 4 else number}"
