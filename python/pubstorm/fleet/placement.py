"""The hosts of programs that are no engines: publishers, and real subscribers. They are chosen
among the hosts of servers, before the plan has its targets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pubstorm.contract.target import Target
from pubstorm.host.hosts import Hosts
from pubstorm.host.machine import Machine
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
