"""Plays a plan on one engine of this machine, with neither display nor result: for what a run does
beside its own load. It knows no purpose."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from pubstorm.conduct import Conductor, Happening
from pubstorm.control import Hello
from pubstorm.errors import FleetError
from pubstorm.fleet import Fleet, Frame
from pubstorm.fleet.local import LocalSlot, engine_command
from pubstorm.live import SilentLive
from pubstorm.plan import Plan


async def play_alone(plan: Plan, engine: Path, log: Path, keep: Callable[[Frame], None]) -> Hello:
    """Plays every stage; `keep` gets every snapshot. Raises FleetError where the engine fails."""
    happenings: asyncio.Queue[Happening] = asyncio.Queue()
    fleet = Fleet([LocalSlot(engine_command(engine, 0, 1), log)], happenings.put_nowait)
    try:
        hellos = await fleet.up(plan.to_line())
        conductor = Conductor(plan, fleet, happenings, SilentLive())
        await conductor.play(keep)
    finally:
        await fleet.close()
    failed = [event.text for event in conductor.course.events if event.kind == "agent"]
    if failed:
        raise FleetError(failed[0])
    return hellos[0]
