"""Redis names: no two users, prefixes or keys ever share one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.valkey import ValkeyProcess
from tidings.errors import InvalidEvent, InvalidSetting, InvalidTopic, InvalidUser
from tidings.log.names import Names, check_idempotency_key, check_prefix, check_topic, check_user, slot_of

USERS = st.from_regex(r"[A-Za-z0-9._~@:+=-]{1,128}", fullmatch=True)
PREFIXES = st.from_regex(r"[A-Za-z0-9_.:-]{1,32}", fullmatch=True).filter(lambda prefix: not prefix.endswith(":t"))
KEYS = st.from_regex(r"[\x20-\x7e]{1,128}", fullmatch=True)
# Everything that has ever split, joined, globbed or folded a key somewhere.
NASTY = st.text(
    alphabet=st.sampled_from("aAb0:*?[]{}%/\\\n\r\0\u2028\u212ak\u00e9e\u0301 .~@+=-_") | st.characters(), max_size=130
)


def _all_names(names: Names, user: str, key: str) -> list[bytes]:
    return [names.log(user), names.meta(user), names.idem(user, key), names.channel(user)]


def test_the_names_are_those_of_the_contract() -> None:
    """Other programs may look at the keys: they are called as documented."""
    names = Names("tidings")
    assert names.log("alice") == b"tidings:{alice}:log"
    assert names.meta("alice") == b"tidings:{alice}:meta"
    assert names.idem("alice", "order 7") == b"tidings:{alice}:idem:order 7"
    assert names.channel("alice") == b"tidings:{alice}"


@given(PREFIXES, USERS, KEYS, PREFIXES, USERS, KEYS)
def test_names_are_injective(
    prefix: str, user: str, key: str, other_prefix: str, other_user: str, other_key: str
) -> None:
    """Two names are equal only if they name the same thing of the same user under the same prefix."""
    mine, others = _all_names(Names(prefix), user, key), _all_names(Names(other_prefix), other_user, other_key)
    if (prefix, user) == (other_prefix, other_user):
        assert (mine == others) == (key == other_key)
    else:
        assert not set(mine) & set(others)
    assert len(set(mine)) == 4


@given(PREFIXES, USERS)
def test_a_channel_names_its_user(prefix: str, user: str) -> None:
    """The way back from a channel to its user is exact, and closed to every other name."""
    names = Names(prefix)
    assert names.user_of_channel(names.channel(user)) == user
    for name in (names.log(user), names.meta(user), b"x" + names.channel(user), names.channel(user)[:-1], b""):
        with pytest.raises(InvalidUser):
            names.user_of_channel(name)


@given(PREFIXES, st.binary(max_size=200))
def test_no_other_channel_names_a_user(prefix: str, channel: bytes) -> None:
    """A channel that gives a user is that user's channel, byte for byte."""
    names = Names(prefix)
    try:
        user = names.user_of_channel(channel)
    except InvalidUser:
        return
    assert names.channel(user) == channel


@given(NASTY)
def test_a_text_is_a_user_as_it_is_or_not_at_all(text: str) -> None:
    """Nothing is normalised: what is accepted is used byte for byte, and has only the characters of the grammar."""
    names = Names("tidings")
    try:
        channel = names.channel(text)
    except InvalidUser:
        return
    assert channel == b"tidings:{" + text.encode() + b"}"
    assert 1 <= len(text) <= 128
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~@:+=-")


@pytest.mark.parametrize(
    "user",
    ["", "*", "a*", "a b", "a{b", "a}b", "{}", "a\n", "\na", "é", "\u212a", "a" * 129, "a/b", "a?b", None, 7, b"a"],
)
def test_not_a_user(user: object) -> None:
    """Whatever could be a pattern, a brace, a line break or another script's letter is refused at every door."""
    names = Names("tidings")

    def idem(user: Any) -> bytes:
        return names.idem(user, "k")

    doors: list[Callable[[Any], object]] = [check_user, names.log, names.meta, names.channel, idem]
    for door in doors:
        with pytest.raises(InvalidUser) as caught:
            door(user)
        assert caught.value.user == user


@pytest.mark.parametrize("prefix", ["", "a b", "a{", "}", "*", "é", "a" * 33, "a\n", None, "app:t"])
def test_not_a_prefix(prefix: object) -> None:
    """A prefix cannot hold a brace, and cannot end where the topics of another prefix begin."""
    with pytest.raises(InvalidSetting) as caught:
        check_prefix(prefix)
    assert caught.value.name == "prefix"


@pytest.mark.parametrize("key", ["", "a" * 129, "a\n", "é", "\x7f", 1, None])
def test_not_an_idempotency_key(key: object) -> None:
    """An idempotency key is 1 to 128 printable ASCII characters."""
    with pytest.raises(InvalidEvent):
        check_idempotency_key(key)


@pytest.mark.parametrize("topic", ["", "a" * 65, "a b", "a~b", "é", None])
def test_not_a_topic(topic: object) -> None:
    """A topic is 1 to 64 characters of its grammar; a tilde would end it inside a position."""
    with pytest.raises(InvalidTopic):
        check_topic(topic)
    assert check_topic("org:7") == "org:7"


@given(USERS, KEYS)
def test_all_keys_of_a_user_share_a_slot(user: str, key: str) -> None:
    """In a Cluster the script's keys must lie in one slot: what is hashed is the user id, and nothing else."""
    for prefix in ("tidings", "a:b"):
        for name in _all_names(Names(prefix), user, key):
            opened = name.index(b"{")
            assert name[opened + 1 : name.index(b"}", opened)] == user.encode()


def test_the_server_agrees_about_the_slot(valkey: ValkeyProcess) -> None:
    """CLUSTER KEYSLOT of every key of a user is that of the bare id, also for ids and keys with odd characters."""
    for user in ("alice", "a:b@c.d", "~+=-"):
        for name in _all_names(Names("tidings"), user, "k{x}y"):
            assert valkey.cli("CLUSTER", "KEYSLOT", name) == valkey.cli("CLUSTER", "KEYSLOT", user)


def test_slots() -> None:
    """The known check value of CRC16/XMODEM, and the same slot for any prefix. A real Cluster is asked elsewhere."""
    assert slot_of("123456789") == 0x31C3 % 16_384
    assert 0 <= slot_of("a") < 16_384
