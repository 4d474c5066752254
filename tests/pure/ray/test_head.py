"""The watch on the head of a cluster, in virtual time and without connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import Mock

import pytest

pytest.importorskip("ray", reason="ray is not installed (pip install pubstorm[ray])")

from pubstorm.fleet.ray import hosts as slot_module
from pubstorm.fleet.ray.cluster import Room
from pubstorm.fleet.ray.hosts import RaySlot
from pubstorm.fleet.ray.site import GONE_S, LOOK_S, HeadWatch
from pubstorm.fleet.site import AgentCommand
from pubstorm.host.ends import CLOSE_S
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


@pytest.mark.usefixtures("head")
def test_a_watch_that_takes_no_cancellation_is_closed() -> None:
    async def stubborn() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(10 * CLOSE_S)
        await asyncio.sleep(10 * CLOSE_S)

    async def play() -> float:
        clock = asyncio.get_running_loop().time
        watch = HeadWatch("[::1]:6379", lambda _: None)
        watch._task.cancel()
        watch._task = asyncio.create_task(stubborn())
        await asyncio.sleep(LOOK_S)
        began_s = clock()
        await watch.close()
        return clock() - began_s

    assert run_virtually(play()) <= CLOSE_S + 1


def test_an_agent_whose_actor_is_stuck_is_given_up() -> None:
    async def play() -> float:
        clock = asyncio.get_running_loop().time
        room = Room(Mock(address="10.0.0.1", is_here=False), None, 0)
        slot = RaySlot(Mock(), room, AgentCommand((), "agent 0", 1), Path("log"))
        slot._ending = asyncio.create_task(asyncio.sleep(1e6))
        began_s = clock()
        await slot.gone()
        return clock() - began_s

    assert run_virtually(play()) <= slot_module.GONE_S + 1
