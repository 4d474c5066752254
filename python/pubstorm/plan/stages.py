"""The stages of a scenario as a plan has them: populations, numbers of clients, and each change of
a whole as changes of its shares. Faults with every choice made: start, end, and the affected
brokers, publishers or bridges, from the scenario and its seed alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from pubstorm.contract import plan
from pubstorm.contract.commands import CLIENT_CHANGES
from pubstorm.quantities import SECOND_NS
from pubstorm.scenario.faults import BRIDGE_FAULTS, Breakables, Fault, FaultKind, victims_of
from pubstorm.scenario.message_counts import messages_of
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.shares import PlannedClients, factors_of, meant_by, rate_of, wanted_of
from pubstorm.scenario.stages import Change, Connect, Disconnect, Hold, Publish, Stage


def planned_stages(scenario: Scenario) -> Iterator[plan.PlannedStage]:
    """Every stage, in order."""
    planned = PlannedClients(scenario)
    indices = {name: index for index, name in enumerate(planned.shares)}
    for stage in scenario.stages:
        chosen = planned.chosen(stage)
        before = planned.count(chosen)
        planned.enter(stage)
        moved = abs(planned.count(chosen) - before)
        yield plan.PlannedStage(
            name=stage.name,
            action=_action(stage, planned, indices, moved),
            populations=tuple(indices[name] for name in chosen),
        )


def _action(
    stage: Stage, planned: PlannedClients, indices: Mapping[str, int], moved: int
) -> plan.Action:
    """The action of a stage. `planned` has the active clients after the stage's start, without its
    changes; `moved` of them connect or disconnect."""
    match stage.step:
        case Connect() as step:
            parallelism = step.parallelism
            rate_per_s = _rate_per_s(step, moved)
            if parallelism is None and rate_per_s is None:
                parallelism = DEFAULT_PARALLELISM
            return plan.ConnectAction(
                rate_per_s=rate_per_s,
                parallelism=parallelism,
                timeout_ns=step.timeout,
                clients=_brought_up(step, planned, planned.chosen(stage)),
            )
        case Publish() as step:
            # The rates at the start, before changes add clients.
            points = _rate_profile(stage, step, planned)
            messages = messages_of(stage, step, planned)
            changes = tuple(_changes(stage, planned, indices))
            return plan.PublishAction(
                duration_ns=step.duration, changes=changes, rate_profile=points, messages=messages
            )
        case Hold() as step:
            changes = tuple(_changes(stage, planned, indices))
            return plan.HoldAction(duration_ns=step.duration, changes=changes)
        case Disconnect() as step:
            return plan.DisconnectAction(rate_per_s=_rate_per_s(step, moved))


def _rate_profile(
    stage: Stage, step: Publish, planned: PlannedClients
) -> tuple[plan.PlannedRatePoint, ...]:
    if step.rate_profile is None:
        return ()
    points = factors_of(step.rate_profile, step.duration, rate_of(stage, planned))
    return tuple(plan.PlannedRatePoint(after_ns=at_ns, factor=factor) for at_ns, factor in points)


def _rate_per_s(step: Connect | Disconnect, moved: int) -> float | None:
    """The connections that are started or ended a second; None for all at once."""
    if step.over is None or not moved:
        return step.rate
    return moved * SECOND_NS / step.over


def _brought_up(
    step: Connect, planned: PlannedClients, chosen: Sequence[str]
) -> tuple[int, ...] | None:
    """Active clients of each population of a connect stage after it; None for all."""
    if all(wanted_of(step, planned.shares[name]) is None for name in chosen):
        return None
    return tuple(planned.count([name]) for name in chosen)


def _changes(
    stage: Stage, planned: PlannedClients, indices: Mapping[str, int]
) -> Iterator[plan.PlannedChange]:
    """The changes of a stage in the order of time. All parts of one change have the change's name,
    which no other phase of the stage has."""
    for name, change in stage.happenings:
        if isinstance(change, Change):
            for population, action in _change_actions(change, planned):
                yield plan.PlannedChange(
                    name=name, after_ns=change.at, population=indices[population], action=action
                )


def _change_actions(
    change: Change, planned: PlannedClients
) -> Iterator[tuple[str, plan.ChangeAction]]:
    kind, amount = change.of_clients
    if amount is None:
        factor = 1.0 if change.rate is None else change.rate
        for name in meant_by(planned.shares, change.population):
            yield name, plan.ChangeRate(factor=factor)
        return
    for name, clients in planned.change(change).items():
        yield name, CLIENT_CHANGES[kind](clients=clients, over_ns=change.over)


DEFAULT_PARALLELISM = 100


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
    """Name of the brokers, publishers or bridges that the victims are of."""
    numbers: tuple[int, ...] = ()
    """Their numbers, in order."""
    commands: Commands | None = None
    """Commands of the kind `command`, which has no victims that the run knows."""
    how: Literal["close", "stall", "unplug"] = "close"
    """Kind of cut, for bridges."""
    delay_ns: int = 0
    """Delay of each direction of bridges that are delayed."""
    publishers: int = 0
    """Number of publishers of the group; 0: it is none of publishers."""

    @property
    def victims(self) -> tuple[str, ...]:
        """Names of the brokers, publishers or bridges that it hits. A single publisher has the name
        of its population."""
        if self.publishers == 1:
            return (self.group,)
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
    group, among = victims_of(scenario, fault)
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
        publishers=publishers_in(scenario, group),
    )


def publishers_in(scenario: Breakables, group: str) -> int:
    """Returns the number of publishers of a population; 0 for every other group."""
    publishers = scenario.publishers.get(group)
    return 0 if publishers is None else publishers.clients


def _commands(fault: Fault) -> Commands | None:
    if fault.command is None:
        return None
    return Commands(fault.command, fault.repair, fault.repaired_when, fault.timeout)
