"""Words on how far the start of many brokers is."""

from __future__ import annotations

import asyncio

import pytest

from pubstorm.topology import start
from pubstorm.topology.start import paced, telling


def test_what_takes_a_moment_is_not_told() -> None:
    async def run() -> None:
        async with telling(lambda: "words", told.append):
            pass
        paced(told.append)("words")

    told: list[str] = []
    asyncio.run(run())
    assert told == []


def test_what_takes_longer_is_told_again_and_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with telling(lambda: f"{len(told)} told", told.append):
            while len(told) < 3:
                await asyncio.sleep(0)

    monkeypatch.setattr(start, "TELL_EVERY_S", 0.001)
    told: list[str] = []
    asyncio.run(run())
    assert told[:4] == ["0 told", "1 told", "2 told", "3 told"]


def test_words_that_come_often_are_told_at_times(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        clock_s = 0.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: clock_s)
        tell = paced(told.append)
        for tenth in range(31):
            clock_s = tenth / 10
            tell(f"{tenth}")

    told: list[str] = []
    asyncio.run(run())
    assert told == ["10", "20", "30"]
