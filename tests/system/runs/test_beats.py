"""Beats, leases and incarnations of real engines, as agents of other hosts have them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from pubstorm.contract.commands import Stop
from pubstorm.fleet import Ended, Fleet, FleetEvent, SnapshotReceived, Timeouts
from pubstorm.fleet.groups import EngineGroup, group_commands
from pubstorm.fleet.local import LocalSite
from pubstorm.plan import provisional_plan
from pubstorm.scenario import parse_scenario

TEXT = """\
target: mqtt://127.0.0.1:1
snapshot_interval: 100ms
populations:
  device: {clients: 10, publications: [{topic: "data/{n}", rate: 1/s}]}
stages: [connect: {}, publish: 1s]
"""
TIMEOUTS = Timeouts(silence_s=30, beat_s=0.2, lost_s=2.5)
TWO = [EngineGroup(None, (0,), 2)]
LEASE_S = 2
DEADLINE_S = 60

Script = Callable[[Fleet, asyncio.Queue[FleetEvent]], Awaitable[None]]


def play(folder: Path, timeouts: Timeouts, script: Script) -> None:
    """Brings two engines up that enter no stage, runs a script on them and closes the fleet."""

    async def run() -> None:
        events: asyncio.Queue[FleetEvent] = asyncio.Queue()
        site = LocalSite(folder)
        lease = ("--lease", str(LEASE_S))
        commands = [replace(each, words=(*each.words, *lease)) for each in group_commands(TWO)]
        fleet = Fleet(await site.place(commands), events.put_nowait, timeouts, site.replace)
        try:
            await fleet.up(provisional_plan(parse_scenario(TEXT, "s.yaml", ())).to_line())
            async with asyncio.timeout(DEADLINE_S):
                await script(fleet, events)
        finally:
            await fleet.close()
            await site.close()

    asyncio.run(run())


async def ending(events: asyncio.Queue[FleetEvent]) -> Ended:
    while not isinstance(event := await events.get(), Ended):
        pass
    return event


def test_an_engine_that_stands_still_is_lost_and_another_plays_its_clients(
    tmp_path: Path,
) -> None:
    async def script(fleet: Fleet, events: asyncio.Queue[FleetEvent]) -> None:
        os.kill(fleet.hellos[1].pid, signal.SIGSTOP)
        lost = await ending(events)
        assert (lost.agent, lost.how, lost.incarnation) == (1, "lost", 0)
        hello = await fleet.replace(1)
        assert (hello.agent, hello.clients) == (1, (5,))
        while not (
            isinstance(event := await events.get(), SnapshotReceived) and event.snapshot.agent == 1
        ):
            pass
        assert event.snapshot.sequence == 0
        await fleet.command(Stop())
        assert [(await ending(events)).how for _ in range(2)] == ["bye", "bye"]

    play(tmp_path, TIMEOUTS, script)


def test_agents_that_receive_nothing_end_by_themselves(tmp_path: Path) -> None:
    async def script(_fleet: Fleet, events: asyncio.Queue[FleetEvent]) -> None:
        ended = [await ending(events) for _ in range(2)]
        assert all(f"received nothing for {LEASE_S} s" in each.text for each in ended), ended

    play(tmp_path, Timeouts(silence_s=30), script)
