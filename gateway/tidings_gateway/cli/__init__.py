"""The command line: `tidings`. Exit codes: 0 done, 1 failed, 2 used wrongly."""

from __future__ import annotations

from tidings_gateway.cli.main import main, run

__all__ = ["main", "run"]
