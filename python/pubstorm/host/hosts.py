"""The hosts that servers of a run are on: chosen by a label, or the controller's own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from pubstorm.host.counters import KernelCounters
from pubstorm.host.machine import HERE, Machine
from pubstorm.host.members import Processes


class WatchedMachine(Machine, Processes, Protocol):
    """Another machine, which monitors can look at."""

    def counters(self) -> KernelCounters:
        """Returns the counters of its kernel."""


class Hosts(Protocol):
    """The hosts of a run's servers."""

    @property
    def are_here(self) -> bool:
        """True if every server is on the controller's host, on its loopback address."""

    @property
    def watched(self) -> Collection[str]:
        """Labels of hosts without servers that are watched too."""

    @property
    def others(self) -> Sequence[WatchedMachine]:
        """The machines besides the controller's, once they are open."""

    async def open(self, wanted: Mapping[str, int]) -> None:
        """Makes as many hosts of each label ready as servers need at most, besides those that are
        ready. Raises PubstormError if no host has a label."""

    def machine(self, label: str | None, number: int) -> Machine:
        """Returns the machine of a server: in turn the hosts of its label, or the controller's."""

    async def close(self) -> None:
        """Gives all hosts back; nothing is left on them. It can be called twice."""


class OneHost:
    """The controller's host. Labels choose nothing here."""

    are_here = True
    watched: Collection[str] = ()
    others: Sequence[WatchedMachine] = ()

    async def open(self, wanted: Mapping[str, int]) -> None:
        """Does nothing: this host is ready."""

    def machine(self, label: str | None, number: int) -> Machine:  # noqa: ARG002
        """This machine."""
        return HERE

    async def close(self) -> None:
        """Does nothing: no host is held."""
