"""Words on how far the start of many brokers is."""

from __future__ import annotations

import asyncio

import pytest

from pubstorm.topology import supervision
from pubstorm.topology.supervision import notifying, paced


def test_what_takes_a_moment_is_not_reported() -> None:
    async def run() -> None:
        async with notifying(lambda: "words", notes.append):
            pass
        paced(notes.append)("words")

    notes: list[str] = []
    asyncio.run(run())
    assert notes == []


def test_what_takes_longer_is_reported_again_and_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        async with notifying(lambda: f"{len(notes)} notes", notes.append):
            while len(notes) < 3:
                await asyncio.sleep(0)

    monkeypatch.setattr(supervision, "NOTIFY_EVERY_S", 0.001)
    notes: list[str] = []
    asyncio.run(run())
    assert notes[:4] == ["0 notes", "1 notes", "2 notes", "3 notes"]


def test_words_that_come_often_are_passed_on_at_times(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        clock_s = 0.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: clock_s)
        notify = paced(notes.append)
        for tenth in range(31):
            clock_s = tenth / 10
            notify(f"{tenth}")

    notes: list[str] = []
    asyncio.run(run())
    assert notes == ["10", "20", "30"]
