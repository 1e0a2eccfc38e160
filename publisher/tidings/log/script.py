"""The two scripts, and a call of one as Redis takes it."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import NamedTuple


class Script(NamedTuple):
    """A Lua script: `text` for SCRIPT LOAD, `sha` (hex) for EVALSHA."""

    name: str
    text: str
    sha: str

    @classmethod
    def load(cls, name: str) -> Script:
        text = files("tidings.log").joinpath(f"{name}.lua").read_text("utf-8")
        # Redis names a script by its SHA-1; nothing is protected by it.
        return cls(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


APPEND = Script.load("append")
READ = Script.load("read")
SCRIPTS = (APPEND, READ)


class Command(NamedTuple):
    """One call of a script. Sans-I/O: whoever holds a connection sends it, and parses the reply with the function that
    belongs to the command."""

    script: Script
    keys: tuple[bytes, ...]
    args: tuple[bytes, ...]

    def evalsha(self) -> tuple[bytes, ...]:
        """The words of the command. A NOSCRIPT error means that nothing happened: load the script and repeat."""
        return (b"EVALSHA", self.script.sha.encode("ascii"), b"%d" % len(self.keys), *self.keys, *self.args)
