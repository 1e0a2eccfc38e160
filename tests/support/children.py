"""Child processes of the test run: they end with it, however it ends."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _die_with_parent() -> None:  # pragma: no cover - runs in the child, between fork and exec
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def spawn(
    command: list[str], *, log: IO[bytes], env: dict[str, str] | None = None, cwd: str | Path | None = None
) -> subprocess.Popen[bytes]:
    """Start `command` with its output in `log` and no standard input.

    The kernel kills it when the thread that started it ends, so the signal is asked for in the main thread only: a
    test run that is itself killed leaves nothing behind.
    """
    in_main = threading.current_thread() is threading.main_thread()
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=env,
        cwd=cwd,
        preexec_fn=_die_with_parent if in_main else None,
    )


def children() -> dict[int, str]:
    """The living children of this process: pid to command line. Zombies are left out."""
    found: dict[int, str] = {}
    if sys.platform != "linux":
        import psutil

        for child in psutil.Process().children():
            found[child.pid] = " ".join(child.cmdline())
        return found
    for task in Path("/proc/self/task").iterdir():
        try:
            pids = (task / "children").read_text().split()
        except OSError:
            continue
        for pid in pids:
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if state not in ("Z", "X"):
                # Empty for a moment while the child turns into its program.
                found[int(pid)] = command.replace(b"\0", b" ").decode(errors="replace").strip()
    return found
