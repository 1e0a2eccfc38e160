"""`python -m tests.chaos`: run it, print the ledger, exit with 1 when a promise was broken."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys

from tests.chaos.plan import STRIKE_KINDS, Plan, StrikeKind
from tests.chaos.run import run

DEFAULT = Plan()


def kinds(text: str) -> tuple[StrikeKind, ...]:
    """What `--redis` names, each once."""
    names = dict.fromkeys(filter(None, text.split(",")))
    found = tuple(kind for kind in STRIKE_KINDS if kind in names)
    if len(found) != len(names):
        raise argparse.ArgumentTypeError(f"must be some of {', '.join(STRIKE_KINDS)}, with commas between")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=DEFAULT.seconds, help="how long events are published")
    parser.add_argument("--clients", type=int, default=DEFAULT.clients)
    parser.add_argument("--rate", type=float, default=DEFAULT.rate, help="events per second, all users together")
    parser.add_argument("--gateways", type=int, default=DEFAULT.gateways)
    parser.add_argument(
        "--redis", type=kinds, default=(), help=f"strike Redis, not the gateways; some of {','.join(STRIKE_KINDS)}"
    )
    parser.add_argument("--seed", type=int, default=None, help="repeats the choices of an earlier run")
    given = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    plan = Plan(given.seconds, given.clients, given.rate, given.gateways, redis=given.redis, seed=seed)
    print(f"chaos for {plan.seconds:g} s, seed {seed}", flush=True)
    report = asyncio.run(run(plan))
    print(report)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
