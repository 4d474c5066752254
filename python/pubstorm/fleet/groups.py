"""Groups of engines: those that play the same populations, on hosts of one label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pubstorm.contract.plan import Plan
from pubstorm.fleet.local import engine_command
from pubstorm.fleet.site import AgentCommand
from pubstorm.host.binaries import engine_path
from pubstorm.scenario import Scenario
from pubstorm.scenario.populations import Simulated


@dataclass(frozen=True)
class EngineGroup:
    """Engines that play the same populations: each a shard of all of them."""

    hosts: str | None
    """Label of their hosts; None: those of the fleet."""
    populations: tuple[int, ...]
    """Indices of their populations in the plan."""
    engines: int
    """Number of engines."""


def populations_by_hosts(scenario: Scenario, plan: Plan) -> Mapping[str | None, tuple[int, ...]]:
    """Returns the populations that engines play, by the label of their hosts: first those without
    one. On one host, labels choose nothing."""
    labels: dict[str, str | None] = {}
    if scenario.fleet.on != "local":
        labels = {
            name: None if each.hosts == scenario.fleet.hosts else each.hosts
            for name, each in scenario.populations.items()
            if isinstance(each, Simulated)
        }
    found: dict[str | None, list[int]] = {}
    for index, population in enumerate(plan.populations):
        if population.player == "engine":
            label = labels.get(population.whole or population.name)
            found.setdefault(label, []).append(index)
    # The first engine counts the deliveries of publishers, also if it has no clients.
    groups = found or {None: []}
    return {label: tuple(groups[label]) for label in sorted(groups, key=bool)}


def group_commands(groups: Sequence[EngineGroup]) -> list[AgentCommand]:
    """Returns the command of each engine. Raises BinaryError if there is no engine."""
    engine = engine_path()
    engines = sum(group.engines for group in groups)
    if len(groups) == 1:
        commands = [engine_command(engine, agent, engines) for agent in range(engines)]
        return [replace(command, hosts=groups[0].hosts) for command in commands]
    places = [(group, share) for group in groups for share in range(group.engines)]
    return [
        _command(engine, (agent, engines), group, share)
        for agent, (group, share) in enumerate(places)
    ]


def _command(engine: Path, agent: tuple[int, int], group: EngineGroup, share: int) -> AgentCommand:
    """Returns the command of an engine that plays a share of some populations."""
    command = engine_command(engine, share, group.engines)
    number, engines = agent
    populations = ",".join(map(str, group.populations))
    return replace(
        command,
        words=(*command.words, "--agent", f"{number}/{engines}", "--populations", populations),
        title=f"agent {number}",
        agents=engines,
        hosts=group.hosts,
        share=(share, group.engines),
        populations=group.populations,
    )
