"""The files for browsers that travel with the package: the client and the demo page."""

from __future__ import annotations

import functools
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path

_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".ts": "text/plain; charset=utf-8",
}


class MissingAsset(Exception):
    """The package was installed without its browser files."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is missing from this installation of tidings")
        self.name = name


@dataclass(frozen=True, slots=True)
class Asset:
    name: str
    body: bytes
    media_type: str
    etag: str


def web_directory() -> Path:
    """Where the files are: in the installed package, or beside the sources in a checkout."""
    here = Path(__file__).resolve()
    installed = here.parent / "web"
    return installed if installed.is_dir() else here.parents[2] / "web"


def load_asset(name: str) -> Asset:
    """Read one file, such as `tidings.js` or `demo/index.html`. Blocking: call it before the event loop serves.

    Raises `MissingAsset`.
    """
    path = web_directory() / name
    try:
        body = path.read_bytes()
    except OSError:
        raise MissingAsset(name) from None
    media_type = _TYPES.get(path.suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Asset(name, body, media_type, f'"{hashlib.sha256(body).hexdigest()[:32]}"')


@functools.cache
def client_files() -> dict[str, Asset]:
    """The browser client: `tidings.js`, the modules it imports, and its types if there are any, by file name.

    Blocking the first time. Raises `MissingAsset` when there is no `tidings.js`.
    """
    root = web_directory()
    names = sorted(path.name for pattern in ("*.js", "*.d.ts") for path in root.glob(pattern))
    found = {name: load_asset(name) for name in names if not name.endswith((".test.js", ".config.js"))}
    if "tidings.js" not in found:
        raise MissingAsset("tidings.js")
    return found


def load_directory(name: str) -> dict[str, Asset]:
    """Every file below a directory, by its path relative to it."""
    root = web_directory() / name
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {str(path.relative_to(root)): load_asset(str(path.relative_to(root.parent))) for path in files}
