"""The stages of a scenario as a plan has them: which populations, and how many of their clients,
with changes of a whole as changes of each of its shares. It knows no target.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pubstorm.plan import model as plan
from pubstorm.scenario.divisions import meant_by
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.stages import Change, Connect, Disconnect, Hold, Publish, Stage
from pubstorm.scenario.turnout import Turnout, wanted_of


def planned_stages(scenario: Scenario) -> Iterator[plan.Stage]:
    """Every stage, in order."""
    turnout = Turnout(scenario)
    indices = {name: index for index, name in enumerate(turnout.divisions)}
    for stage in scenario.stages:
        chosen = turnout.chosen(stage)
        turnout.enter(stage)
        yield plan.Stage(
            name=stage.name,
            action=_action(stage, turnout, indices),
            populations=tuple(indices[name] for name in chosen),
        )


def _action(stage: Stage, turnout: Turnout, indices: Mapping[str, int]) -> plan.Action:
    """What is done; who is there after the stage's start is counted, its changes are not yet."""
    match stage.step:
        case Connect() as step:
            parallelism = step.parallelism
            if parallelism is None and step.rate is None:
                parallelism = DEFAULT_PARALLELISM
            return plan.ConnectAction(
                rate_per_s=step.rate,
                parallelism=parallelism,
                timeout_ns=step.timeout,
                clients=_brought_up(step, turnout, turnout.chosen(stage)),
            )
        case Publish() as step:
            changes = tuple(_changes(stage, turnout, indices))
            return plan.PublishAction(duration_ns=step.duration, changes=changes)
        case Hold() as step:
            return plan.HoldAction(duration_ns=step.duration)
        case Disconnect() as step:
            return plan.DisconnectAction(rate_per_s=step.rate)


def _brought_up(step: Connect, turnout: Turnout, chosen: Sequence[str]) -> tuple[int, ...] | None:
    """How many are there after a connect stage, of each population in it; None: all."""
    if all(wanted_of(step, turnout.divisions[name]) is None for name in chosen):
        return None
    return tuple(turnout.count([name]) for name in chosen)


def _changes(stage: Stage, turnout: Turnout, indices: Mapping[str, int]) -> Iterator[plan.Change]:
    """In the order of time; those of one change of the scenario have its name, which no other
    phase of the stage has."""
    for name, change in stage.happenings:
        if isinstance(change, Change):
            for population, action in _change_actions(change, turnout):
                yield plan.Change(
                    name=name, after_ns=change.at, population=indices[population], action=action
                )


def _change_actions(change: Change, turnout: Turnout) -> Iterator[tuple[str, plan.ChangeAction]]:
    """What changes in each population that the change means."""
    if change.add is None and change.remove is None:
        factor = 1.0 if change.rate is None else change.rate
        for name in meant_by(turnout.divisions, change.population):
            yield name, plan.ChangeRate(factor=factor)
        return
    kind = plan.RemoveClients if change.add is None else plan.AddClients
    for name, clients in turnout.change(change).items():
        yield name, kind(clients=clients, over_ns=change.over)


DEFAULT_PARALLELISM = 100
