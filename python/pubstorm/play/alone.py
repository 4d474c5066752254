"""Plays the stages of a plan on one engine of this host, without a scenario and without a result:
for calibration, and to remove what a run left on its broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from pubstorm.contract.commands import Hello
from pubstorm.contract.plan import Plan
from pubstorm.errors import FleetError
from pubstorm.fleet import Fleet, FleetEvent, SnapshotReceived
from pubstorm.fleet.local import LocalSlot, engine_command
from pubstorm.fleet.programs import Assignment
from pubstorm.measure.recorder import Recorder
from pubstorm.measure.run_log import RunLog
from pubstorm.play.context import RunContext
from pubstorm.play.display import Live
from pubstorm.play.stages import Controller, RunEvent


async def play_alone(
    plan: Plan, engine: Path, log: Path, keep: Callable[[SnapshotReceived], None]
) -> Hello:
    """Plays every stage; `keep` gets every snapshot. Raises FleetError if the engine fails."""
    queue: asyncio.Queue[RunEvent] = asyncio.Queue()

    def emit(event: FleetEvent) -> None:
        if isinstance(event, SnapshotReceived):
            keep(event)
        queue.put_nowait(event)

    fleet = Fleet([LocalSlot(engine_command(engine, 0, 1), log)], emit)
    run_log = RunLog(time.monotonic_ns())
    recorder = Recorder(plan, Assignment(engines=1), run_log)
    try:
        hellos = await fleet.up(plan.to_line())
        await Controller(RunContext(plan, fleet, recorder, Live()), queue).play()
    finally:
        await fleet.close()
    failed = [event.text for event in run_log.events if event.kind == "agent"]
    if failed:
        raise FleetError(failed[0])
    return hellos[0]
