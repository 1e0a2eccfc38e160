"""The metrics of a running gateway, as numbers to compare."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

import httpx
from prometheus_client.parser import text_string_to_metric_families as parse

from tests.support.waiting import NotReached

SCRAPE_EVERY_S = 0.02


class Scraped:
    """One scrape. `Scraped(text)["tidings_redis_up"]`; `of("tidings_resumes_total", outcome="start")`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.samples: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
        for family in parse(text):
            for sample in family.samples:
                self.samples.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value

    def __getitem__(self, name: str) -> float:
        """The sum over all labels."""
        return sum(self.samples[name].values())

    def of(self, name: str, **labels: str) -> float:
        """The sum over the samples that have these labels."""
        return sum(value for told, value in self.samples[name].items() if set(labels.items()) <= told)

    def by(self, name: str, label: str) -> Mapping[str, float]:
        """Per value of one label, without those that are 0."""
        found: dict[str, float] = {}
        for told, value in self.samples[name].items():
            if value:
                key = dict(told)[label]
                found[key] = found.get(key, 0) + value
        return found


async def scrape(admin_url: str) -> Scraped:
    async with httpx.AsyncClient() as http:
        answer = await http.get(f"{admin_url}/metrics", timeout=10)
        assert answer.status_code == 200, answer.text
        return Scraped(answer.text)


async def until_told(admin_url: str, told: Callable[[Scraped], bool], what: str, deadline_s: float = 10) -> Scraped:
    """Scrape until it is told. Raises `NotReached` with the last scrape."""
    end = time.monotonic() + deadline_s
    while True:
        seen = await scrape(admin_url)
        if told(seen):
            return seen
        if time.monotonic() > end:
            raise NotReached(what, deadline_s, seen.text)
        await asyncio.sleep(SCRAPE_EVERY_S)
