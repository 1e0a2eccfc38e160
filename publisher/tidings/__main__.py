"""The `tidings` command. It lives in the gateway's package; without its dependencies, the answer is in words."""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Runs `tidings_gateway.cli`, or says what is missing and exits with 2."""
    if sys.argv[1:2] == ["serve"]:
        end_quietly_until_served()
    try:
        from tidings_gateway.cli import main as run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("tidings", "tidings_gateway"):
            raise  # a fault of ours, not a missing extra
        sys.stderr.write(
            f"tidings: {error.name} is not installed. The command needs the gateway's dependencies:\n"
            "    pip install 'tidings[gateway]'      (tidings[dev] also brings a Redis-compatible server)\n"
        )
        sys.exit(2)
    run()


def end_quietly_until_served() -> None:
    """Let SIGTERM end the process with 0 while its imports still run, a good second on a busy machine: nobody is
    connected yet, and a deploy that changes its mind has not met a failure. The server then sets its own handler."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))


if __name__ == "__main__":
    main()
