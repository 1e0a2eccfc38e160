"""The `tidings` command. It lives in the gateway's package; without its dependencies, the answer is in words."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs `tidings_gateway.cli`, or says what is missing and exits with 2."""
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


if __name__ == "__main__":
    main()
