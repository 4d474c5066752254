"""Processors and memory of brokers: checked before the start, and limited by cgroups that end with
the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pubstorm.errors import TopologyError
from pubstorm.host.shares import (
    Hierarchy,
    MemoryCgroup,
    NoCgroupError,
    absent_processors,
    usable_processors,
)
from pubstorm.quantities import bytes_text
from pubstorm.scenario.topology import ScenarioTopology
from pubstorm.topology.broker import Place


class Shares:
    """The limits of memory of all brokers."""

    def __init__(self, spec: ScenarioTopology, note: Callable[[str], None]) -> None:
        """`note` gets the folder of each cgroup before it is made."""
        self._wanted = {group: broker.memory for group, broker in spec.brokers.items()}
        self._note = note
        self._cgroups: dict[str, MemoryCgroup] = {}
        self._limits: dict[str, int] = {}
        self.refused: list[str] = []
        """Brokers without the limit that the scenario asks for, in words."""

    @property
    def are_limited(self) -> bool:
        """True if the scenario limits the memory of a broker."""
        return any(self._wanted.values())

    def settled(self, place: Place) -> Place:
        """Returns the place of a broker with its cgroup."""
        wanted = self._wanted[place.group]
        if wanted is None or not place.machine.is_here:
            return place
        try:
            cgroup = MemoryCgroup.make(place.name, wanted, self._note, Hierarchy.here())
        except NoCgroupError as error:
            text = f"the memory of broker {place.name} has no limit of {bytes_text(wanted)}"
            self.refused.append(f"{text}: {error}")
            return place
        self._cgroups[place.name] = cgroup
        self._limits[place.name] = cgroup.limit_bytes
        return replace(place, cgroup=cgroup)

    def limit_bytes(self, name: str) -> int | None:
        """Returns the limit of a broker as the kernel has it; None without a limit."""
        return self._limits.get(name)

    def close(self) -> None:
        """Removes the cgroups, whose processes have ended. It can be called twice."""
        for cgroup in self._cgroups.values():
            cgroup.remove()
        self._cgroups.clear()


def check_processors(spec: ScenarioTopology, *, placed: bool = True) -> None:
    """Raises TopologyError if a broker is to use processors that this host does not have; without
    `placed`, looks at no broker with a label of hosts."""
    for group, broker in spec.brokers.items():
        absent = absent_processors(broker.cpus) if placed or broker.hosts is None else []
        if absent:
            there = sorted(usable_processors())
            found = f"topology.brokers.{group}.cpus: found {absent[0]}"
            raise TopologyError(
                f"{found}, allowed are the processors of this host: {', '.join(map(str, there))}",
                "lscpu lists them; a container may have fewer than its host",
                exit_code=2,
            )
