"""One run in several locust processes: each worker judges its own pages, the master has the verdict of all."""

from __future__ import annotations

from typing import Any

import gevent
from locust.env import Environment
from locust.runners import MasterRunner, WorkerRunner

MESSAGE = "tidings_verdict"
POLL_S = 0.2


class Verdicts:
    """The master's side. `listen` once, then `begin` and `gather` for each run."""

    def __init__(self) -> None:
        self._by_worker: dict[str, bool] = {}

    def listen(self, runner: MasterRunner) -> None:
        runner.register_message(MESSAGE, self._heard)

    def begin(self) -> None:
        self._by_worker.clear()

    def gather(self, environment: Environment, runner: MasterRunner) -> None:
        """Waits for the verdict of each worker there is now, and ends the run. One that is lost has none: not OK."""
        count = runner.worker_count
        while len(self._by_worker) < count <= runner.worker_count:
            gevent.sleep(POLL_S)
        good = sum(self._by_worker.values())
        ok = count > 0 and good == count
        print(f"{good} of {count} workers are well\n{'OK' if ok else 'NOT OK'}", flush=True)
        environment.process_exit_code = 0 if ok else 1
        runner.quit()

    def _heard(self, environment: Environment, msg: Any, **_: Any) -> None:  # noqa: ARG002 - locust names them
        self._by_worker[msg.node_id] = msg.data["ok"]
        print(f"worker {msg.node_id}\n{msg.data['report']}\n", flush=True)


def tell(runner: WorkerRunner, report: str, *, ok: bool) -> None:
    """The worker's side."""
    runner.send_message(MESSAGE, {"report": report, "ok": ok})
