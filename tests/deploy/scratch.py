"""The Dockerfile followed without an engine: each stage is a folder, and its steps run in it with `chroot`.

In place of the base image stands the Python of the tests, copied to where that image has it (`/usr/local`), with a
shell and the libraries they load. Everything after FROM is the Dockerfile's own. Root only: chroot and other users' ids
are needed, mounts are not, so that it works inside a container too.

Not tried by it: the base image itself, and a kernel that mounts the tree read-only. In place of that the tree is not
writable for the user who runs it, and is compared before and after. Being process 1 is tried where the kernel lets us.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.deploy.dockerfile import Ignore, Instruction, Stage
from tests.support.sources import ROOT

STEP_S = 180
"""A step may load packages."""

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_libc = ctypes.CDLL(None)
_LIBRARY = re.compile(r"(/\S+) \(0x")
_LEFT_OUT = ("site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "lib2to3", "config-*")
_SHELL = ("/bin/sh",)
_RUNTIMES = ("libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libgcc_s.so.1", "libstdc++.so.6")
"""What compiled wheels may count on (PEP 600): the base image has them. A wheel that needs more fails here as there."""
_NETWORK = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl/certs", "/etc/pip.conf")
"""How a step finds the packages: as this machine's own pip does."""


@dataclass(frozen=True, slots=True)
class Running:
    """`process_1`: it has its own table of processes, and is the first in it."""

    process: subprocess.Popen[bytes]
    process_1: bool
    output: Path

    @property
    def text(self) -> str:
        return self.output.read_text()

    @property
    def pid(self) -> int:
        """Of the command itself, as this machine counts."""
        pid = self.process.pid
        if self.process_1:
            (pid,) = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return pid

    def status(self) -> dict[str, str]:
        """The lines of its `/proc/…/status`."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Whatever state it is in. The command first: `--kill-child` is forgotten by the kernel when the child changes
        its user, so the death of `unshare` alone leaves it running for good."""
        with contextlib.suppress(OSError, ValueError):  # it has ended, or has no child any more
            self.send_signal(signal.SIGKILL)
        self.process.kill()
        self.process.wait()


class Scratch:
    """Roots below `directory`. The last stage's is `root` once `build` has run."""

    def __init__(self, directory: Path, stages: list[Stage]) -> None:
        self._directory = directory
        self._stages = stages
        self.roots: dict[str, Path] = {}
        self.root = directory / "base"

    @classmethod
    def copied(cls, root: Path, to: Path) -> Scratch:
        """A tree that was built, to be run in a place of its own."""
        scratch = cls(to.parent, [])
        _twin(root, to)
        scratch.root = to
        return scratch

    def build(self) -> Scratch:
        base = self._directory / "base"
        _make_base(base)
        for number, stage in enumerate(self._stages):
            self.root = self._directory / f"stage-{number}"
            _twin(base, self.root)
            self.roots[stage.name or str(number)] = self.root
            self._follow(stage)
        return self

    def _follow(self, stage: Stage) -> None:
        here, env = "/", dict(stage.env())
        ignore = Ignore((ROOT / ".dockerignore").read_text())
        for step in stage.instructions:
            if step.word == "WORKDIR":
                here = step.rest
                self.inside(here).mkdir(parents=True, exist_ok=True)
            elif step.word == "COPY":
                self._copy(step, here, ignore)
            elif step.word == "RUN":
                self._run(step, here, env)

    def inside(self, path: str, root: Path | None = None) -> Path:
        return (root or self.root) / path.lstrip("/")

    def _copy(self, step: Instruction, here: str, ignore: Ignore) -> None:
        *sources, target = step.rest.split()
        root = None
        if sources[0].startswith("--from="):
            root = self.roots[sources.pop(0).removeprefix("--from=")]
        for source in sources:
            into = self.inside(os.path.normpath(os.path.join(here, target)))
            origin = self.inside(source, root) if root else ROOT / source
            if root is None and ignore(Path(source)):
                raise FileNotFoundError(f".dockerignore leaves out {source}, which is copied")
            if origin.is_dir():
                leave = _leaving_out(ignore) if root is None else None
                shutil.copytree(origin, into, symlinks=True, dirs_exist_ok=True, ignore=leave)
            else:
                if target.endswith("/"):
                    into = into / origin.name
                into.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(origin, into)

    def _run(self, step: Instruction, here: str, env: Mapping[str, str]) -> None:
        command = ["/bin/sh", "-c", step.rest]
        environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root", **_pip_settings(), **env}
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=STEP_S,
            env=environ,
            preexec_fn=self.entering(here),
        )
        if done.returncode:
            raise RuntimeError(f"RUN {step.rest}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")

    def entering(self, here: str = "/", user: tuple[int, int] | None = None) -> Callable[[], None]:
        """For `preexec_fn`: into the root, and as `user` without any right or way to get one."""
        root = str(self.root)

        def enter() -> None:
            os.chroot(root)
            os.chdir(here)
            os.umask(0o022)
            if user is not None:
                os.setgroups([])
                os.setresgid(user[1], user[1], user[1])
                os.setresuid(user[0], user[0], user[0])
                _no_new_rights()

        return enter

    @contextlib.contextmanager
    def running(self, stage: Stage, env: Mapping[str, str], output: Path) -> Iterator[Running]:
        """Process 1 of a container: the stage's command, as its user, in its folder."""
        here, user = stage.last("WORKDIR").rest, stage.user
        command, entering = stage.command, self.entering(here, user)
        if alone := _may_unshare():
            # The same, by the tool that also makes it process 1.
            uid, gid = map(str, user)
            into = ["--root", str(self.root), "--wd", here, "--setgid", gid, "--setuid", uid]
            command, entering = ["unshare", "--pid", "--fork", "--kill-child", *into, "--", *command], _no_new_rights
        with output.open("wb") as file:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=dict(env), preexec_fn=entering
            )
        running = Running(process, alone, output)
        try:
            yield running
        finally:
            running.kill()

    def seal(self) -> None:
        """As `--read-only` without a tmpfs: not even /tmp takes a file."""
        self.inside("/tmp").chmod(0o755)

    def files(self) -> dict[str, tuple[int, int, int]]:
        """Every path of the tree with its inode, size and time of change."""
        found = {}
        for folder, _, names in os.walk(self.root):
            for path in (folder, *(os.path.join(folder, name) for name in names)):
                state = os.lstat(path)
                found[path] = (state.st_ino, state.st_size, state.st_mtime_ns)
        return found


def _twin(root: Path, to: Path) -> None:
    # Links, for speed: steps replace files, and who runs the image cannot write to them.
    subprocess.run(["cp", "-al", str(root), str(to)], check=True)


def _may_unshare() -> bool:
    return subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True).returncode == 0


def _no_new_rights() -> None:
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _leaving_out(ignore: Ignore) -> Callable[[str, list[str]], set[str]]:
    def leave(folder: str, names: list[str]) -> set[str]:
        return {name for name in names if ignore((Path(folder) / name).relative_to(ROOT))}

    return leave


def _make_base(root: Path) -> None:
    for folder in ("bin", "dev", "etc", "root", "run", "tmp", "usr/bin", "usr/local/bin", "usr/local/lib"):
        (root / folder).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    _make_devices(root / "dev")
    stdlib = Path(sysconfig.get_path("stdlib"))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    here = root / "usr" / "local" / "lib" / version
    shutil.copytree(stdlib, here, symlinks=True, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    interpreter = root / "usr" / "local" / "bin" / version
    shutil.copy2(os.path.realpath(sys.executable), interpreter)
    for name in ("python", "python3"):
        (interpreter.parent / name).symlink_to(version)
    pip = Path(sysconfig.get_path("purelib")) / "pip"
    for packages in ("site-packages", "dist-packages"):  # Debian's Python looks in the latter
        shutil.copytree(pip, here / packages / "pip")
    binaries = [interpreter, *(here / "lib-dynload").glob("*.so"), *map(Path, _SHELL)]
    for path in {*_SHELL, *_libraries(binaries), *_runtimes()}:
        _bring(path, root)
    for path in (*_NETWORK, *_paths_of_pip()):
        if os.path.exists(path):
            _bring(path, root)


def _make_devices(folder: Path) -> None:
    for name, minor in (("null", 3), ("zero", 5), ("random", 8), ("urandom", 9)):
        path = folder / name
        with contextlib.suppress(PermissionError):
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
            path.chmod(0o666)


def _libraries(binaries: list[Path]) -> Iterator[str]:
    for binary in binaries:
        yield from _LIBRARY.findall(subprocess.run(["ldd", str(binary)], capture_output=True, text=True).stdout)


def _runtimes() -> Iterator[str]:
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    for name in _RUNTIMES:
        # The first one named is that of this machine's own architecture.
        yield re.findall(rf"{re.escape(name)} .*=> (\S+)", known)[0]


def _bring(path: str, root: Path) -> None:
    """To the same place in the root, with what a link leads to in the link's place."""
    into = root / path.lstrip("/")
    into.parent.mkdir(parents=True, exist_ok=True)
    if os.path.isdir(path):
        shutil.copytree(path, into, dirs_exist_ok=True, ignore_dangling_symlinks=True)
    else:
        shutil.copy2(os.path.realpath(path), into)


def _pip_settings() -> dict[str, str]:
    names = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
    return {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name.upper() in names}


def _paths_of_pip() -> Iterator[str]:
    for value in _pip_settings().values():
        yield from (word for word in value.split() if word.startswith("/"))
