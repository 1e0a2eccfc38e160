"""For `locust -f loadtest/locustfile.py --host wss://push.example.com`: pages against a deployment; see README.md.

The environment has `TIDINGS_JWT_SECRET` (to mint the pages' tokens) and what a publisher needs: `TIDINGS_API_KEY` with
`--publish-url https://…`, or `TIDINGS_REDIS_URL`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import gevent
from gevent.event import Event
from locust import User, events, task
from locust.env import Environment
from locust.exception import StopUser
from locust.runners import MasterRunner, WorkerRunner

from loadtest.descriptors import make_room_for
from loadtest.distributed import Verdicts, tell
from loadtest.herd import Herd
from loadtest.options import Options
from loadtest.report import Report, figures, judge
from loadtest.run import Run
from loadtest.strike import Strike, strike_of
from loadtest.waiting import until
from tidings import Publisher
from tidings.errors import InvalidSetting
from tidings.settings import first_secret

log = logging.getLogger("tidings.loadtest")

PAGES_PER_WORKER = 1_000_000
"""Each worker process of a distributed run has users of its own, publishes to them, and judges them."""


SPAWN_S = 30.0


class Watch:
    """Hands what pages tell to locust's statistics."""

    def __init__(self, environment: Environment) -> None:
        self._fire: Callable[..., None] = environment.events.request.fire

    def happened(self, what: str, name: str, ms: float, why: str | None = None) -> None:
        self._fire(
            request_type=what,
            name=name,
            response_time=ms,
            response_length=0,
            exception=None if why is None else RuntimeError(why),
            context={},
        )


class Tab(User):
    """A page that stays until it is stopped."""

    herd: Herd
    """Set before the first user is made."""

    @task
    def stay(self) -> None:
        self.herd.add().run()
        raise StopUser


class Shape:
    """One run inside locust: steady with no strikes, else storms."""

    def __init__(
        self,
        environment: Environment,
        options: Options,
        strike: Strike,
        publisher: Publisher,
        say: Callable[[str], None],
    ) -> None:
        self.herd = Tab.herd
        self.run = Run(options, self.herd, publisher, Watch(environment), strike, say)
        self._environment = environment
        self._options = options

    def report(self, *, complaints: list[str], resyncs_allowed: bool) -> Report:
        herd, options = self.herd, self._options
        counts = ", ".join(f"{name} {count}" for name, count in herd.ledger.counts.items())
        return Report(
            f"{len(herd.browsers)} pages of {len(herd.users)} users, {options.rate:g} events/s",
            judge(herd, complaints=complaints, resyncs_allowed=resyncs_allowed),
            figures(self._environment.stats),
            self.run.storms,
            [f"published: {counts}", *herd.ledger.errors[:3], self.run.pulse.words()],
        )


# What `locust` itself calls; `python -m loadtest` does not.


def _add_options(parser: Any) -> None:
    group = parser.add_argument_group("tidings")
    Options.add_to(group, skip=("users",))
    group.add_argument("--publish-url", default=None, help="https://… or redis://…; default: TIDINGS_REDIS_URL")


def _start(environment: Environment, **_: Any) -> None:
    if isinstance(environment.runner, MasterRunner):
        verdicts.begin()
        gevent.spawn(verdicts.gather, environment, environment.runner)
        return
    try:
        _begin(environment)
    except (ValueError, InvalidSetting) as error:
        # locust logs what a listener raises, and goes on without it: pages without a herd, and no verdict.
        raise SystemExit(f"locust: {error}") from None


def _begin(environment: Environment) -> None:
    namespace = environment.parsed_options
    assert namespace is not None
    # A worker learns its share only when its pages are spawned.
    options = Options.parsed(namespace, users=max(1, environment.runner.target_user_count if environment.runner else 0))
    host = (environment.host or "").rstrip("/")
    if not host.startswith(("ws://", "wss://")):
        raise ValueError("--host must be ws://… or wss://…")
    secret = first_secret("jwt_secret", None)
    if secret is None:
        raise ValueError("TIDINGS_JWT_SECRET is needed to mint the pages' tokens")
    make_room_for(options.users)
    publisher, reader = Publisher(namespace.publish_url), Publisher(namespace.publish_url)
    index = environment.runner.worker_index if isinstance(environment.runner, WorkerRunner) else 0
    first = index * PAGES_PER_WORKER
    Tab.herd = Herd(options, [f"{host}/v1/ws"], secret, reader.position, Watch(environment), first=first)
    shape = Shape(environment, options, strike_of(options.strike, Tab.herd, None), publisher, log.info)
    spawned.clear()

    def failed(greenlet: gevent.Greenlet) -> None:
        # Without a verdict locust, and a master, would wait for ever.
        _end(environment, f"the load test itself failed: {greenlet.exception!r}\nNOT OK", ok=False)

    gevent.spawn(_drive, environment, shape).link_exception(failed)


def _drive(environment: Environment, shape: Shape) -> None:
    runner = environment.runner
    assert runner is not None
    spawned.wait()
    # The master's word that all are spawned can overtake the spawning of a worker.
    if not until(lambda: 0 < runner.target_user_count == runner.user_count, SPAWN_S):
        raise RuntimeError(f"{runner.user_count} of {runner.target_user_count} pages were made within {SPAWN_S} s")
    shape.run.run(runner.user_count)
    report = shape.report(complaints=[], resyncs_allowed=True)
    _end(environment, str(report), ok=report.verdict.ok)


def _end(environment: Environment, report: str, *, ok: bool) -> None:
    print(report, flush=True)
    environment.process_exit_code = 0 if ok else 1
    if isinstance(environment.runner, WorkerRunner):
        tell(environment.runner, report, ok=ok)
    elif environment.runner is not None:
        environment.runner.quit()


def _ready(environment: Environment, **_: Any) -> None:
    if isinstance(environment.runner, MasterRunner):
        verdicts.listen(environment.runner)


def _all_spawned(**_: Any) -> None:
    spawned.set()


spawned = Event()
verdicts = Verdicts()
events.init.add_listener(_ready)
events.spawning_complete.add_listener(_all_spawned)
events.init_command_line_parser.add_listener(_add_options)
events.test_start.add_listener(_start)
