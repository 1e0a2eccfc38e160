"""`python -m loadtest`, which is `make storm`: a Valkey, two gateways, pages, strikes, a verdict. Exit code 0 when all
were back and caught up, nothing was lost and nothing came twice."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

# First of all: it replaces blocking calls by ones that yield, also in modules imported after it.
import locust  # noqa: F401, I001

import gevent
from locust.env import Environment

from loadtest.descriptors import make_room_for
from loadtest.herd import Herd
from loadtest.locustfile import Shape, Tab, Watch
from loadtest.options import Options
from loadtest.strike import strike_of
from loadtest.world import World
from tidings import Publisher


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest", description=__doc__)
    Options.add_to(parser)
    try:
        options = Options.parsed(parser.parse_args(arguments))
        make_room_for(options.users)
    except ValueError as error:
        parser.error(str(error))
    with World() as world:
        environment = Environment(user_classes=[Tab])
        # Two: pages that all fetch their state at once must not keep the workers waiting.
        publisher, reader = Publisher(world.redis_url), Publisher(world.redis_url)
        Tab.herd = Herd(options, world.urls, world.secret, reader.position, Watch(environment))
        shape = Shape(environment, options, strike_of(options.strike, Tab.herd, world), publisher, _say)
        runner = environment.create_local_runner()
        print(f"{options.users} pages, {len(world.urls)} gateways, strike: {options.strike}", flush=True)
        try:
            runner.start(options.users, spawn_rate=options.connect_per_s)
            shape.run.run(options.users)
            report = shape.report(complaints=list(world.complaints()), resyncs_allowed=False)
        finally:
            runner.quit()
            publisher.close()
            reader.close()
    print(report, flush=True)
    return 0 if report.verdict.ok else 1


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    # To this greenlet: anywhere else it would be an error of whichever page happened to run.
    gevent.signal_handler(signal.SIGINT, gevent.kill, gevent.getcurrent(), KeyboardInterrupt)
    try:
        code = main()
    except KeyboardInterrupt:
        code = 130  # as shells have it; the servers are gone by now
    sys.exit(code)
