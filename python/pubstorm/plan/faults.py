"""Faults with every choice made: start, end, and the affected brokers or bridges, from the scenario
and its seed alone."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Literal

from pubstorm.scenario.faults import BRIDGE_FAULTS, Fault, FaultKind, victims_of
from pubstorm.scenario.model import Scenario


@dataclass(frozen=True, slots=True)
class Commands:
    """The commands of a fault that a shell makes."""

    begin: str
    """Line that makes the fault."""
    repair: str | None
    """Line that undoes it; None if it ends by itself."""
    repaired_when: str | None
    """Address or line that shows its end; None: that of `repair`."""
    timeout_ns: int
    """Longest time of each line and of the wait, in nanoseconds."""


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """Something that will be broken, and what exactly."""

    stage: int
    """Index of the stage."""
    name: str
    """Name of the phase that begins with it."""
    kind: FaultKind
    """Kind of the fault."""
    after_ns: int
    """Start after the start of the stage, in nanoseconds."""
    lasts_ns: int | None
    """Time until the repair, in nanoseconds; None if it is not repaired."""
    group: str = ""
    """Name of the brokers or bridges that the victims are of."""
    numbers: tuple[int, ...] = ()
    """Their numbers, in order."""
    commands: Commands | None = None
    """Commands of the kind `command`, which has no victims that the run knows."""
    how: Literal["close", "stall", "unplug"] = "close"
    """Kind of cut, for bridges."""
    delay_ns: int = 0
    """Delay of each direction of bridges that are delayed."""

    @property
    def victims(self) -> tuple[str, ...]:
        """Names of the brokers or bridges that it hits."""
        return tuple(f"{self.group}-{number}" for number in self.numbers)


def planned_faults(scenario: Scenario) -> tuple[PlannedFault, ...]:
    """Every fault of the scenario, by stage and then in the order of time."""
    return tuple(
        _planned(scenario, index, name, fault)
        for index, stage in enumerate(scenario.stages)
        for name, fault in stage.happenings
        if isinstance(fault, Fault)
    )


def faulty_bridges(*scenarios: Scenario) -> frozenset[str]:
    """Names of the bridges that faults of some scenarios cut or delay one by one; those that are
    unplugged are cut together, with their network."""
    planned = (fault for scenario in scenarios for fault in planned_faults(scenario))
    single = (fault for fault in planned if fault.how != "unplug")
    return frozenset(fault.group for fault in single if fault.kind in BRIDGE_FAULTS)


def _planned(scenario: Scenario, stage: int, name: str, fault: Fault) -> PlannedFault:
    group, among = victims_of(scenario.topology, fault)
    numbers = tuple(among)
    if fault.count is not None:
        chance = Random(f"{scenario.seed} {stage} {name}")
        numbers = tuple(sorted(chance.sample(among, fault.count)))
    return PlannedFault(
        stage=stage,
        name=name,
        kind=fault.kind,
        after_ns=fault.at,
        lasts_ns=fault.repair_after_ns,
        group=group,
        numbers=numbers,
        commands=_commands(fault),
        how=fault.how,
        delay_ns=fault.by or 0,
    )


def _commands(fault: Fault) -> Commands | None:
    if fault.command is None:
        return None
    return Commands(fault.command, fault.repair, fault.repaired_when, fault.timeout)
