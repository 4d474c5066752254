"""Places for the agents of a run: their number, their hosts, the programs beside them, and the
needs that these hosts do not meet. Programs beside the engine get hosts of servers, before the plan
has its targets. No agent is started here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pubstorm.contract.plan import Plan
from pubstorm.contract.target import Target
from pubstorm.fleet import Fleet, FleetEvent, Slot
from pubstorm.fleet.choice import timeouts_of
from pubstorm.fleet.local import LocalSlot, log_name
from pubstorm.fleet.programs import (
    Assignment,
    EngineGroup,
    UserPrograms,
    group_commands,
    populations_by_hosts,
    program_commands,
)
from pubstorm.fleet.site import AgentCommand, Site
from pubstorm.host.children import parent_death_prefix
from pubstorm.host.machine import Hosts, Machine
from pubstorm.host.preflight import HostLimits, Need, agents_here, needs
from pubstorm.host.preflight.need import Kinds
from pubstorm.host.preflight.needs import agents_on, cluster_needs, host_name
from pubstorm.scenario import Scenario
from pubstorm.scenario.populations import Simulated


class Placement:
    """The hosts of the programs of a scenario."""

    def __init__(self, scenario: Scenario, hosts: Hosts) -> None:
        self._hosts = hosts
        self._programs = {
            name: population
            for name, population in scenario.populations.items()
            if not isinstance(population, Simulated)
        }
        self._publishers = scenario.publishers

    async def open(self) -> None:
        """Makes the hosts ready. Raises PubstormError if no host has a label."""
        wanted = Counter[str]()
        for name, population in self._programs.items():
            if population.hosts is not None:
                wanted[population.hosts] += population.clients if name in self._publishers else 1
        if self._programs:
            await self._hosts.open(wanted)

    def machine(self, population: str, number: int) -> Machine:
        """Returns the machine of a program: of a publisher by its number, else of all clients."""
        return self._hosts.machine(self._programs[population].hosts, number)

    async def targets(self, planned: Sequence[Target]) -> Sequence[Target]:
        """Returns the addresses of all publishers, with free ports where none are planned."""
        machines = [
            self.machine(name, number)
            for name, population in self._publishers.items()
            for number in range(population.clients)
        ]
        return [
            Target(host=machine.address, port=target.port or await machine.free_port())
            for machine, target in zip(machines, planned, strict=True)
        ]


class Provision:
    """The agents of one run, on an open site."""

    def __init__(
        self, scenario: Scenario, plan: Plan, site: Site, placement: Placement, brokers: Kinds
    ) -> None:
        """`brokers`: those that the run starts, which may be on the host of the agents."""
        self._scenario = scenario
        self._brokers = brokers
        self._plan = plan
        self._site = site
        self._placement = placement
        self._groups: Sequence[EngineGroup] = ()
        self._slots: Sequence[Slot] = ()
        self._programs_here: dict[int, LocalSlot] = {}

    @property
    def programs_here(self) -> Sequence[int]:
        """Agents that are no engines and are on this host, once all have their places."""
        return tuple(self._programs_here)

    async def fleet(self, logs: Path, emit: Callable[[FleetEvent], None]) -> Fleet:
        """The fleet, every agent with a place and none started. What agents of this host log goes
        to a folder. Raises FleetError or BinaryError."""
        self._groups = [
            EngineGroup(label, populations, self._engines(label))
            for label, populations in populations_by_hosts(self._scenario, self._plan).items()
        ]
        self._slots = await self._site.place(group_commands(self._groups))
        assignment = Assignment.of(self._plan, len(self._slots))
        return Fleet(
            (*self._slots, *await self._programs(assignment, logs)),
            emit,
            timeouts_of(self._scenario.fleet, self._plan),
            self._replace,
        )

    async def _replace(self, agent: int) -> Slot:
        """Returns another place for an engine, and the same one for a program of this host."""
        if (program := self._programs_here.get(agent)) is None:
            return await self._site.replace(agent)
        self._programs_here[agent] = program.anew()
        return self._programs_here[agent]

    async def _programs(self, assignment: Assignment, logs: Path) -> Sequence[Slot]:
        """Returns a place for each agent that is no engine."""
        publishers = self._scenario.publishers.items()
        programs = {name: each.publisher.command for name, each in publishers}
        users = UserPrograms(programs, parent_death_prefix(), self._scenario.directory)
        commands = program_commands(self._plan, assignment, logs, users)
        here: dict[int, LocalSlot] = {}
        away: dict[int, tuple[AgentCommand, str]] = {}
        for program, command in zip(assignment.programs, commands, strict=True):
            name = self._plan.populations[program.population].name
            machine = self._placement.machine(name, program.share)
            if machine.is_here:
                here[program.agent] = LocalSlot(command, logs / log_name(command.title))
            else:
                away[program.agent] = command, machine.address
        self._programs_here = here
        slots: dict[int, Slot] = {**here}
        if away:
            places = await self._site.place_programs(
                [command for command, _ in away.values()],
                [address for _, address in away.values()],
            )
            slots |= zip(away, places, strict=True)
        return [slots[program.agent] for program in assignment.programs]

    def shortages(self) -> list[str]:
        """Returns shortages of the agents' hosts, with advice, once agents have their places."""
        agents = Counter(slot.host for slot in self._slots)
        if set(agents) <= {""}:
            here = needs(
                self._plan, HostLimits.here(), agents=len(self._slots), brokers=self._brokers
            )
            return [f"short of {_in_words(need)}" for need in here if not need.is_met]
        return [
            f"{host_name(address)} is short of {_in_words(need)}"
            for group, slots in self._by_group()
            for address, needed in cluster_needs(
                self._plan,
                self._site.hosts(group.hosts),
                Counter(slot.host for slot in slots),
                group.populations,
            ).items()
            for need in needed
            if not need.is_met
        ]

    def _by_group(self) -> Iterator[tuple[EngineGroup, Sequence[Slot]]]:
        first = 0
        for group in self._groups:
            yield group, self._slots[first : first + group.engines]
            first += group.engines

    def _engines(self, label: str | None) -> int:
        """Returns the number of engines of a group: `fleet.agents` is that of the fleet's hosts."""
        fleet = self._scenario.fleet
        if fleet.on != "local":
            own = fleet if label is None else fleet.model_copy(update={"agents": None})
            return agents_on(self._site.hosts(label), self._plan, own)
        return agents_here(self._plan, fleet, HostLimits.here())


def _in_words(need: Need) -> str:
    return f"{need}: {need.fix}"
