"""The stages of a scenario as a plan has them: populations, numbers of clients, and each change of
a whole as changes of its shares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pubstorm.contract import plan
from pubstorm.quantities import SECOND_NS
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.rate_profiles import factors_of, rate_of
from pubstorm.scenario.shares import PlannedClients, meant_by, wanted_of
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
            changes = tuple(_changes(stage, planned, indices))
            return plan.PublishAction(
                duration_ns=step.duration, changes=changes, rate_profile=points
            )
        case Hold() as step:
            return plan.HoldAction(duration_ns=step.duration)
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
    if change.add is None and change.remove is None:
        factor = 1.0 if change.rate is None else change.rate
        for name in meant_by(planned.shares, change.population):
            yield name, plan.ChangeRate(factor=factor)
        return
    kind = plan.RemoveClients if change.add is None else plan.AddClients
    for name, clients in planned.change(change).items():
        yield name, kind(clients=clients, over_ns=change.over)


DEFAULT_PARALLELISM = 100
