"""The assignment of populations to agents, and the command of each. The engine plays its share of
the populations in groups by the label of their hosts. Other programs follow: one for each publisher
of ZeroMQ, for each population of its real subscribers, and of consumers of Kafka and AMQP 1.0. Keys
of CURVE go to them in their environment, never stored."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from pubstorm.contract import Source
from pubstorm.contract.commands import (
    CURVE_CLIENT_KEYS,
    CURVE_PUBLIC_KEY,
    CURVE_SECRET_KEY,
    CURVE_SERVER_KEY,
)
from pubstorm.contract.offered_load import target_of
from pubstorm.contract.plan import Plan, PlannedPopulation
from pubstorm.fleet.local import engine_command
from pubstorm.fleet.site import AgentCommand
from pubstorm.host.binaries import engine_path, zmq_path
from pubstorm.scenario import Scenario
from pubstorm.scenario.fields import filled
from pubstorm.scenario.populations import Simulated


@dataclass(frozen=True)
class AgentProgram:
    """An agent that is no engine."""

    agent: int
    """Its number among all agents."""
    population: int
    """Index of the population that it has a share of."""
    share: int
    """Number of the share; of a publisher, the client."""
    shares: int
    """Number of shares of its population."""
    name: str
    """Name of its population, with a number if that has several publishers."""
    publishes: bool
    """True for a publisher, which is under test."""

    @property
    def source(self) -> Source:
        """The source of its samples, as a publisher under test."""
        if self.shares == 1:
            return Source.single("publisher", self.name)
        group = self.name.removesuffix(f"-{self.share}")
        return Source("publisher", self.name, group, self.share)

    @property
    def options(self) -> tuple[str, ...]:
        """The options of the program, without the number of agents."""
        share = f"{self.share}/{self.shares}"
        return ("--agent", str(self.agent), "--population", str(self.population), "--shard", share)


@dataclass(frozen=True)
class Assignment:
    """All agents of a run."""

    engines: int
    """Number of engines; they come first."""
    programs: tuple[AgentProgram, ...] = ()
    """All others, in the order of their numbers."""

    @classmethod
    def of(cls, plan: Plan, engines: int) -> Assignment:
        """The agents that a plan needs beside so many engines."""
        programs: list[AgentProgram] = []
        for index, population in enumerate(plan.populations):
            shares = _shares(population)
            for share in range(shares):
                name = population.name if shares == 1 else f"{population.name}-{share}"
                agent = engines + len(programs)
                publishes = population.is_publisher
                programs.append(AgentProgram(agent, index, share, shares, name, publishes))
        return cls(engines, tuple(programs))

    @classmethod
    def among(cls, plan: Plan, agents: int) -> Assignment:
        """The same from the number of all agents together."""
        return cls.of(plan, max(agents - cls.of(plan, 0).agents, 0))

    @property
    def agents(self) -> int:
        """Number of agents."""
        return self.engines + len(self.programs)

    @cached_property
    def publishers(self) -> dict[int, AgentProgram]:
        """The publishers, by their agents' numbers."""
        return {each.agent: each for each in self.programs if each.publishes}


def _shares(population: PlannedPopulation) -> int:
    """Number of programs for a population: one for each publisher, one for all subscribers."""
    if population.player == "engine":
        return 0
    return population.clients if population.is_publisher else 1


class CurveKeys:
    """The keys of one run."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._pairs = {
            index: _new_pair()
            for index, population in enumerate(plan.populations)
            if population.zmtp is not None and population.zmtp.security == "curve"
        }

    def environment(self, population: int) -> Mapping[str, str]:
        """The variables of a program of the population with this index."""
        if population not in self._pairs:
            return {}
        public, secret = self._pairs[population]
        own = {CURVE_PUBLIC_KEY: public, CURVE_SECRET_KEY: secret}
        if self._plan.populations[population].publications:
            clients = (self._pairs[index][0] for index in self._subscribers(population))
            return {**own, CURVE_CLIENT_KEYS: " ".join(clients)}
        return {**own, CURVE_SERVER_KEY: self._server_key(population)}

    def _subscribers(self, publisher: int) -> list[int]:
        return [
            index
            for index in self._pairs
            if self._plan.populations[index].subscriptions and self._meets(index, publisher)
        ]

    def _server_key(self, subscriber: int) -> str:
        """Empty where its publisher is none of the run's."""
        found = (
            public
            for index, (public, _) in self._pairs.items()
            if self._plan.populations[index].publications and self._meets(subscriber, index)
        )
        return next(found, "")

    def _meets(self, one: int, other: int) -> bool:
        """True if two populations have targets in common."""
        a, b = (self._plan.populations[index].at for index in (one, other))
        return a.first < b.first + b.count and b.first < a.first + a.count


def _new_pair() -> tuple[str, str]:
    """A public key and its secret key."""
    import zmq

    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()


@dataclass(frozen=True)
class UserPrograms:
    """Publishers that are programs of the user."""

    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Program and arguments by population, with `{host}`, `{port}` and `{folder}` in them."""
    prefix: Sequence[str] = ()
    """Words before each command, which end the program with this process."""
    directory: Path | None = None
    """Directory that they start in, on this host; None: that of Pubstorm."""


def program_commands(
    plan: Plan, assignment: Assignment, logs: Path, users: UserPrograms
) -> Iterator[AgentCommand]:
    """Yields the command of each agent that is no engine, in the order of their numbers. Keys are
    made anew and never stored. Raises BinaryError if a program is missing."""
    keys = CurveKeys(plan)
    for program in assignment.programs:
        words = _words(plan, program, logs, users)
        options = ("--agents", str(assignment.agents), *program.options)
        name = plan.populations[program.population].name
        kind = "publisher" if program.publishes else "subscribers"
        yield AgentCommand(
            words=(*words, *options),
            title=f"{kind} {program.name}",
            agents=assignment.agents,
            environment=keys.environment(program.population),
            directory=users.directory if name in users.commands else None,
        )


def _words(plan: Plan, program: AgentProgram, logs: Path, users: UserPrograms) -> tuple[str, ...]:
    match plan.populations[program.population].player:
        case "libzmq":
            return (str(zmq_path()),)
        case "pyzmq":
            return (sys.executable, "-m", "pubstorm.fleet.zmq_agent")
        case "librdkafka":
            return (sys.executable, "-m", "pubstorm.fleet.kafka_agent")
        case "proton":
            return (sys.executable, "-m", "pubstorm.fleet.amqp1_agent")
        case _:
            name = plan.populations[program.population].name
            target = plan.targets[target_of(plan, program.population, program.share)]
            folder = str(logs.absolute())
            values = {"host": target.host, "port": str(target.port), "folder": folder}
            return (*users.prefix, *(filled(word, values) for word in users.commands[name]))


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
