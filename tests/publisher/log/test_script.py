"""Scripts as the server knows them."""

from __future__ import annotations

import re

from tests.support.valkey import ValkeyProcess
from tidings.log.script import APPEND, READ, SCRIPTS, Command


def test_the_sha_is_the_server_s(valkey: ValkeyProcess) -> None:
    """EVALSHA finds what SCRIPT LOAD loaded: our digest of the text is Redis' own."""
    for script in SCRIPTS:
        assert valkey.cli("SCRIPT", "LOAD", script.text).decode() == script.sha


def test_the_words_of_a_command() -> None:
    """EVALSHA, the digest, the number of keys, keys, arguments: all bytes."""
    command = Command(READ, (b"m", b"l"), (b"1", b"2"))
    assert command.evalsha() == (b"EVALSHA", READ.sha.encode(), b"2", b"m", b"l", b"1", b"2")


def test_scripts_use_no_random_numbers_of_their_own() -> None:
    """Lua's random numbers repeat after a restart: an epoch or tag made of them would come twice."""
    for script in SCRIPTS:
        assert "math.random" not in script.text


def test_publish_is_the_last_command() -> None:
    """Nothing that can fail comes after PUBLISH: what was told is stored."""
    code = re.sub(r"--[^\n]*", "", APPEND.text)
    assert re.findall(r"redis\.p?call\(([^,)]+)", code)[-1] == "ARGV[9]"
    assert code.count("ARGV[9]") == 1
    assert "PUBLISH" not in code
