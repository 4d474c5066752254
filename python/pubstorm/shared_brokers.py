"""Brokers that several runs use in turn: made for all of them, started by the first, stopped after
the last. It plays none of the runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from pubstorm.plan import provisional_plan
from pubstorm.plan.faults import faulty_bridges
from pubstorm.residue.bridges import remove_bridges
from pubstorm.run import caught_signals
from pubstorm.scenario import Scenario
from pubstorm.topology import Topology


@asynccontextmanager
async def shared_brokers(
    scenarios: Sequence[Scenario], folder: Path, note: Callable[[str], None]
) -> AsyncIterator[Topology]:
    """Brokers of scenarios that have the same topology, with their files in a folder; a signal
    while they are stopped ends nothing."""
    topology = Topology(
        scenarios[0].topology,
        folder,
        lambda _: None,
        targets=scenarios[0].target,
        cut=faulty_bridges(*scenarios),
    )
    plans = [provisional_plan(scenario) for scenario in scenarios]
    topology.keys.make(*plans)
    topology.services.prepare(*plans)
    try:
        yield topology
    finally:
        with caught_signals(lambda _: None):
            await topology.stop()
        for residue in await remove_bridges(topology.bridges.outside()):
            note(f"{residue.target}: {residue.text}")
