"""A task that must not end."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.waiting import until
from tidings_gateway.bus.owner import Owner


class Body:
    """Ends by itself the first `deaths` times."""

    def __init__(self, deaths: int = 0) -> None:
        self.deaths = deaths
        self.begun = 0
        self.ended = 0

    async def run(self) -> None:
        self.begun += 1
        try:
            if self.begun <= self.deaths:
                raise RuntimeError("died")
            await asyncio.Event().wait()
        finally:
            self.ended += 1


async def test_it_is_started_again_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However often it dies, also when somebody else cancels it; each time loudly."""
    monkeypatch.setattr("tidings_gateway.bus.owner.OWNER_RETRY_S", 0.01)
    body = Body(deaths=2)
    owner = Owner(body.run, "keeper")
    owner.start()
    await until(lambda: body.begun == 3)
    assert owner.task is not None
    owner.task.cancel()
    await until(lambda: body.begun == 4)
    assert caplog.text.count("'keeper' ended; starting it again") == 3
    await owner.close()
    assert body.ended == 4


async def test_closed_it_stays_closed() -> None:
    """Before the start, twice, and while it waits to be started again."""
    body = Body(deaths=1)
    owner = Owner(body.run, "keeper")
    owner.start()
    owner.start()
    await until(lambda: body.ended == 1)
    await owner.close()
    await owner.close()
    owner.start()
    await asyncio.sleep(0)
    assert body.begun == 1
