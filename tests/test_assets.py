"""The files for browsers: found in a checkout and in an installed package, typed, and named when missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidings_gateway import assets
from tidings_gateway.assets import MissingAsset, client_files, load_asset, load_directory


def test_the_client_is_all_its_modules_and_nothing_of_the_workshop() -> None:
    """What a page imports, without tests and configuration."""
    files = client_files()
    assert {"tidings.js", "machine.js"} <= set(files)
    assert not [name for name in files if "test" in name or "config" in name or "/" in name]
    for asset in files.values():
        assert asset.etag.startswith('"')
        assert asset.etag.endswith('"')


def test_a_file_has_its_type_and_an_etag_of_its_content() -> None:
    """A browser refuses a module of another type; a changed file has another tag."""
    script, page = load_asset("tidings.js"), load_asset("demo/index.html")
    assert script.media_type == "text/javascript; charset=utf-8"
    assert page.media_type == "text/html; charset=utf-8"
    assert script.etag != page.etag
    assert load_asset("tidings.js") == script


def test_a_directory_is_read_whole() -> None:
    """By path relative to it; hidden files are left out."""
    files = load_directory("demo")
    assert "index.html" in files
    assert "demo.js" in files
    assert not [name for name in files if name.startswith(".")]


def test_an_installation_without_its_files_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By name, when it starts and not when the first page asks."""
    monkeypatch.setattr(assets, "web_directory", lambda: tmp_path)
    with pytest.raises(MissingAsset, match=r"tidings\.js is missing from this installation"):
        client_files.__wrapped__()
    with pytest.raises(MissingAsset, match="demo/index"):
        load_asset("demo/index.html")
    assert load_directory("demo") == {}
