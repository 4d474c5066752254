"""The watch on the head of a cluster, in virtual time and without connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from unittest.mock import Mock

import pytest

pytest.importorskip("ray", reason="ray is not installed (pip install pubstorm[ray])")

from pubstorm.fleet.ray.site import GONE_S, LOOK_S, HeadWatch
from tests.kit.virtual import run_virtually


@dataclass
class Head:
    """A head that takes connections as its test says."""

    answer: Callable[[], asyncio.Future[None]]
    looks: int = 0

    async def open(self, *place: object) -> tuple[Mock, Mock]:
        assert place == ("::1", 6379)
        self.looks += 1
        await self.answer()
        return Mock(), Mock()


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Head:
    made = Head(lambda: taken(None))
    monkeypatch.setattr(asyncio, "open_connection", made.open)
    return made


def taken(refusal: Exception | None) -> asyncio.Future[None]:
    """An answer that has come."""
    answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if refusal is None:
        answer.set_result(None)
    else:
        answer.set_exception(refusal)
    return answer


def never() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("loss", [lambda: taken(ConnectionRefusedError()), never])
def test_a_head_that_is_gone_is_reported_once(
    head: Head, loss: Callable[[], asyncio.Future[None]]
) -> None:
    async def play() -> None:
        notes: list[str] = []
        watch = HeadWatch("[::1]:6379", notes.append)
        await asyncio.sleep(10 * GONE_S)
        assert head.looks == 10 * GONE_S / LOOK_S
        assert not notes
        head.answer = loss
        await asyncio.sleep(GONE_S - 2 * LOOK_S)
        assert not notes
        await asyncio.sleep(10 * GONE_S)
        await watch.close()
        assert notes == ["the head of the Ray cluster, ::1:6379, is gone"]

    run_virtually(play())


@pytest.mark.parametrize("turns", range(6))
def test_a_watch_can_be_closed_at_any_turn_of_a_look(head: Head, turns: int) -> None:
    """Also in the turn in which the head takes the connection."""

    async def play() -> None:
        notes: list[str] = []
        coming = never()
        head.answer = lambda: coming
        watch = HeadWatch("[::1]:6379", notes.append)
        await asyncio.sleep(LOOK_S / 2)
        coming.set_result(None)
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(GONE_S):
            await watch.close()
        await watch.close()
        await asyncio.sleep(2 * GONE_S)
        assert (head.looks, notes) == (1, [])

    run_virtually(play())
