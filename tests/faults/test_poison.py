"""Somebody else writes where only Tidings should: into a log, or on a channel."""

from __future__ import annotations

import json
import random

import pytest

from tests.faults.scene import PATIENT, Scene, scene
from tests.support.client import Client
from tests.support.ledger import Outcome
from tests.support.scraped import until_told
from tests.support.tokens import mint
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings.log.eventlog import append_command, new_epoch, new_tag
from tidings.log.names import Names

RNG = random.SystemRandom()

BODIES = [
    b"not json",
    b"",
    b'{"event":"n","data":{"user":"user-0","key":"a version to come"},"time":1,"version":2}',
    b'{"event":"n","data":NaN,"time":1}',
    b'{"event":"n","data":"\xff\xfe","time":1}',
    b'{"event":"n","data":1,"time":1,"time":2}',
    b'{"event":"n","data":1,\r\n"time":1}',
    b'["event","n"]',
    json.dumps({"event": "n", "data": "x" * 1_000_000, "time": 1}).encode(),
]
"""None of them can be sent; what to do with the last is a matter of size alone."""

RECORDS = [
    b"",
    b"garbage",
    b"v2 epoch123.1-1 epoch123.2-2\n{}",
    b"e\n{}",
    b"eepoch123.1-1 epoch123.9-9\n{}",
    b"x\nnot json",
    b"c\nnot json",
    b"\x00\xff" * 500_000,
]


def _append(stage: Scene, user: str, body: bytes) -> None:
    command = append_command(Names(stage.prefix), user, body, epoch=new_epoch(RNG), tag=new_tag(RNG))
    stage.store.cli("EVAL", command.script.text, len(command.keys), *command.keys, *command.args)


@pytest.mark.may_block(reason="the HTTP client reads certificates")
async def test_entries_that_cannot_be_sent(valkey: ValkeyProcess, prefix: str) -> None:
    """Invalid JSON, a megabyte, a version to come, in the log between good events: `skip` stands in the place of each,
    live and for one that comes back, the position moves past it, it is counted, and nobody is closed for it, so that
    there is no loop of reconnects (cube-js/cube PR #10246; rocicorp/mono PR #5982)."""
    async with scene(valkey, prefix, users=2, env=PATIENT) as stage:
        (page, other) = stage.clients
        start = page.stored
        assert await stage.publish("user-0") is Outcome.ACKNOWLEDGED
        for body in BODIES:
            _append(stage, "user-0", body)
            assert await stage.publish("user-0") is Outcome.ACKNOWLEDGED
        assert await stage.publish("user-1") is Outcome.ACKNOWLEDGED
        expected = ["n", *[None, "n"] * len(BODIES)]
        await until(lambda: [item.event for item in page.chain] == expected)
        late = Client(stage.gateway.ws_url, mint("user-0"), name="late", position=start)
        stage.by_user["user-0"].append(late.start())
        await late.until_synced()
        assert [item.event for item in late.chain] == expected
        assert late.resyncs == page.resyncs == other.resyncs == []
        told = await until_told(
            stage.gateway.admin_url, lambda told: told["tidings_events_skipped_total"] >= 2 * len(BODIES), "all counted"
        )
        assert told["tidings_events_skipped_total"] == 2 * len(BODIES)
        await stage.judge()


@pytest.mark.may_block(reason="the HTTP client reads certificates")
async def test_messages_of_no_known_shape(valkey: ValkeyProcess, prefix: str) -> None:
    """Published on a user's channel, not stored: dropped and counted, the page stays where it is and hears on."""
    async with scene(valkey, prefix, users=2, env=PATIENT) as stage:
        assert await stage.publish("user-0") is Outcome.ACKNOWLEDGED
        for payload in RECORDS:
            valkey.cli("PUBLISH", f"{prefix}:{{user-0}}", payload)
            assert await stage.publish("user-0") is Outcome.ACKNOWLEDGED
        await until(lambda: len(stage.clients[0].events) == 1 + len(RECORDS))
        assert stage.clients[0].ephemerals == []
        ignored = 1  # A control record of a kind to come is no fault.
        await until_told(
            stage.gateway.admin_url,
            lambda told: told.of("tidings_events_dropped_total", reason="unreadable") == len(RECORDS) - ignored,
            "all counted",
        )
        await stage.judge()


async def test_a_stream_that_was_tampered_with(valkey: ValkeyProcess, prefix: str) -> None:
    """By `XADD` or `XDEL` past our scripts: who comes back to a place before it cannot be proved to miss nothing, and
    is told to resync, once, and then hears on; a live page is told only where the log had to begin anew."""
    async with scene(valkey, prefix, users=3) as stage:
        for user in list(stage.by_user) * 3:
            assert await stage.publish(user) is Outcome.ACKNOWLEDGED
        await until(lambda: all(len(page.events) == 3 for page in stage.clients))
        foreign, forged, gap = (f"{prefix}:{{{user}}}:log" for user in stage.by_user)
        valkey.cli("XADD", foreign, "*", "x", "y")
        valkey.cli("XADD", forged, "4-4", "b", "{}", "p", "0")
        valkey.cli("XDEL", gap, stage.clients[2].events[1].id.partition(".")[2])
        for user in list(stage.by_user) * 3:
            assert await stage.publish(user) is Outcome.ACKNOWLEDGED
        await until(lambda: [len(page.resyncs) for page in stage.clients] == [1, 0, 0])
        first = [page.events[0].id for page in stage.clients]
        told = []
        for user, position in zip(stage.by_user, first, strict=True):
            async with Client(stage.gateway.ws_url, mint(user), position=position) as late:
                await late.until_synced()
                assert await stage.publish(user) is Outcome.ACKNOWLEDGED
                await late.until_events(1)
                late.check()
                told.append([resync.reason for resync in late.resyncs])
        assert told == [["epoch"], ["epoch"], ["trimmed"]]
        await stage.judge(resyncs_allowed=True)
