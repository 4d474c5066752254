"""The interface to the places of agents. A site gives a place to each agent and to each
replacement, and takes all of them back. `local` and `ray` are sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from pubstorm.contract.plan import Plan
from pubstorm.fleet.slot import Slot
from pubstorm.host.preflight.cluster import AgentHost


@dataclass(frozen=True)
class AgentCommand:
    """The command of an agent."""

    words: tuple[str, ...]
    """Program and arguments."""
    title: str
    """Name in messages."""
    agents: int
    """Number of agents in its hello."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables of its own, beside those of this process; they may be secrets."""
    incarnation: int = 0
    """Number of engines that have played its clients before."""
    hosts: str | None = None
    """Label of the hosts that it can be on; None: those of the fleet."""
    share: tuple[int, int] | None = None
    """Share of the clients that it plays; None: that of its number."""
    populations: tuple[int, ...] | None = None
    """Indices of the populations that it plays; None: all."""

    def again(self) -> AgentCommand:
        """Returns the command of a replacement, whose streams begin anew."""
        words = self.words[:-2] if self.incarnation else self.words
        number = self.incarnation + 1
        return replace(self, words=(*words, "--incarnation", str(number)), incarnation=number)


class Site(Protocol):
    """The places of the engines of a run."""

    def hosts(self, label: str | None) -> Sequence[AgentHost]:
        """Returns the hosts of a label, or those of the fleet, that it may use; known once it is
        open."""

    async def open(self) -> None:
        """Makes it ready, or raises FleetError."""

    def localised(self, plan: Plan) -> Plan:
        """Returns the plan with the paths that files have there."""

    async def place(self, commands: Sequence[AgentCommand]) -> Sequence[Slot]:
        """A place for each agent, all of them or FleetError and none."""

    async def place_programs(
        self, commands: Sequence[AgentCommand], addresses: Sequence[str]
    ) -> Sequence[Slot]:
        """Returns a place on the host with its address, another than this one, for each program
        that is no engine."""

    async def replace(self, agent: int) -> Slot:
        """Another place for an agent that is lost, or FleetError. It returns when the lost one
        surely plays no client any more."""

    async def close(self) -> None:
        """Gives everything back; nothing of it is left on any host. It can be called twice."""
