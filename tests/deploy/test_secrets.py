"""secrets.sh: what the containers need, made once, for nobody else's eyes."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.sources import ROOT
from tidings_gateway.settings import load_settings


def _make(folder: Path) -> None:
    subprocess.run([ROOT / "deploy" / "secrets.sh", folder], check=True, capture_output=True)


def test_a_gateway_takes_them(tmp_path: Path) -> None:
    """Each is long enough and of the right form; Redis' password is the one that Valkey is told."""
    folder = tmp_path / "secrets"
    _make(folder)
    settings = load_settings(
        {f"TIDINGS_{n.upper()}_FILE": str(folder / n) for n in ("jwt_secret", "api_key", "redis_url")}
    )
    assert len(settings.jwt_secret[0].get_secret_value()) == len(settings.api_key[0].get_secret_value()) == 64
    assert settings.jwt_secret != settings.api_key
    password = (folder / "valkey_auth").read_text().removeprefix("requirepass ").strip()
    assert len(password) == 64
    assert settings.redis_url == f"redis://:{password}@172.30.80.10:6379"


def test_they_are_made_once(tmp_path: Path) -> None:
    """A second run changes nothing: everybody who was logged in stays so. One that is missing is made again, to fit."""
    folder = tmp_path / "secrets"
    _make(folder)
    before = {path.name: path.read_text() for path in folder.iterdir()}
    (folder / "redis_url").unlink()
    _make(folder)
    assert {path.name: path.read_text() for path in folder.iterdir()} == before


def test_nobody_else_gets_in(tmp_path: Path) -> None:
    """The folder is its owner's; each file can be read in a container, by a user who does not own it."""
    folder = tmp_path / "secrets"
    _make(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o444}
