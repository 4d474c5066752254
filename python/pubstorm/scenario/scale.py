"""Scale: the same scenario with more or fewer clients. It rounds to whole clients, at least one
each, and leaves shares, rates and times as they are."""

from __future__ import annotations

from collections.abc import Mapping

from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import Population
from pubstorm.scenario.stages import Change, Connect, Publish, Stage
from pubstorm.units import PartOf, rounded


def scaled(scenario: Scenario) -> Scenario:
    """The scenario with its numbers of clients times its `scale`, which is 1 then."""
    factor = scenario.scale
    if factor == 1:
        return scenario
    populations = {
        name: _population(population, factor) for name, population in scenario.populations.items()
    }
    stages = tuple(_stage(stage, factor) for stage in scenario.stages)
    scale = {"scale": 1.0, "populations": populations, "stages": stages}
    return scenario.model_copy(update=scale)


def _population(population: Population, factor: float) -> Population:
    # Publishers are what is under test: they are scaled as little as brokers are.
    if population.publisher is not None:
        return population
    return population.model_copy(update={"clients": _times(population.clients, factor)})


def _stage(stage: Stage, factor: float) -> Stage:
    step = stage.step
    changed: dict[str, object] = {}
    if isinstance(step, Connect) and step.clients is not None:
        clients: Mapping[str, int | PartOf] = step.clients
        changed = {"clients": {name: _amount(n, factor) for name, n in clients.items()}}
    if isinstance(step, Publish):
        changed = {"changes": tuple(_change(change, factor) for change in step.changes)}
    return stage.model_copy(update={stage.verb: step.model_copy(update=changed)})


def _change(change: Change, factor: float) -> Change:
    amounts = {"add": change.add, "remove": change.remove}
    written = {key: n for key, n in amounts.items() if n is not None}
    return change.model_copy(update={key: _amount(n, factor) for key, n in written.items()})


def _amount(amount: int | PartOf, factor: float) -> int | PartOf:
    return _times(amount, factor) if isinstance(amount, int) else amount


def _times(clients: int, factor: float) -> int:
    return max(rounded(clients * factor), 1)
