"""Positions in words, as the log answers them."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis.asyncio

from tests.support.valkey import ValkeyProcess
from tidings.log.eventlog import EventLog, LogLimits
from tidings.log.names import Names
from tidings.log.script import Command
from tidings_gateway.explain import explain, parse

pytestmark = pytest.mark.may_block(reason="redis-py looks up its own version when a client is made")

BODY = b'{"event":"e","data":1,"time":1}'


@pytest.fixture
async def log(valkey: ValkeyProcess, prefix: str) -> AsyncIterator[EventLog]:
    client: Any = redis.asyncio.Redis.from_url(valkey.url)

    async def run(command: Command) -> Any:
        await client.script_load(command.script.text)
        return await client.execute_command(*command.evalsha())

    yield EventLog(run, Names(prefix), LogLimits(max_events=3), random.Random(1))
    await client.aclose()


async def told(log: EventLog, text: str) -> str:
    position = parse(text)
    return explain(position, await log.read_after("anna", str(position) if position else None, limit=0))


async def test_every_verdict_has_its_words(log: EventLog) -> None:
    """Up to date, behind, trimmed, another epoch, ahead, and no position at all."""
    start = (await log.top("anna")).decode()
    assert "I have no event yet" in await told(log, start)
    assert "is up to date" in await told(log, start)
    positions = [str((await log.append("anna", BODY)).position) for _ in range(5)]
    assert "is up to date" in await told(log, positions[4])
    assert "1 event came after it, up to number 5" in await told(log, positions[3])
    assert "2 events came after it" in await told(log, positions[2])
    assert "followed is gone" in await told(log, positions[0])
    assert "followed is gone" in await told(log, start)
    epoch = positions[0].partition(".")[0]
    assert "began anew" in await told(log, "otherEpoch1.3-7")
    assert "beyond the newest event" in await told(log, f"{epoch}.9-7")
    for text in ("", "nonsense", f"{epoch}.5", "<script>"):
        answer = await told(log, text)
        assert answer == "This is not a position. The newest event is number 5."


async def test_a_refused_position_says_what_the_page_does_about_it(log: EventLog) -> None:
    """Whoever asks why a page fetched its state is told that it had to, and what it would otherwise have believed."""
    for _ in range(5):
        position = str((await log.append("anna", BODY)).position)
    epoch = position.partition(".")[0]
    for refused in (f"{epoch}.1-7", "otherEpoch1.3-7", f"{epoch}.9-7"):
        answer = await told(log, refused)
        assert answer.startswith(f"Position {refused} says: I have everything up to event")
        assert "told to fetch its state again" in answer
    assert "fetch its state" not in await told(log, position)


async def test_an_empty_log_is_not_called_event_0(log: EventLog) -> None:
    """A number that no event has would only puzzle."""
    assert await told(log, "nonsense") == "This is not a position. The log has no event yet."


async def test_topic_parts_are_left_aside(log: EventLog) -> None:
    """A full position is explained by its first part."""
    position = str((await log.append("anna", BODY)).position)
    assert "is up to date" in await told(log, f"{position}~all.abcdefgh.1-1")
