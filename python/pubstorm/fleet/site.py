"""Where agents run, seen from the run: a site gives a place to each, another one where the first is
lost, and takes all of them back. What it promises of its agents holds on every site; how, each
knows by itself: `local`, `ray`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from pubstorm.fleet.slot import Slot
from pubstorm.plan import Plan


@dataclass(frozen=True)
class AgentCommand:
    """How an agent is started."""

    words: tuple[str, ...]
    """Program and arguments."""
    title: str
    """What it is called in messages."""
    agents: int
    """Of how many agents its hello tells."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables of its own, beside those of this process; they may be secrets."""
    incarnation: int = 0
    """How many engines have played its clients before."""

    def again(self) -> AgentCommand:
        """How an engine is started that plays its clients from now on: its streams begin anew."""
        words = self.words[:-2] if self.incarnation else self.words
        number = self.incarnation + 1
        return replace(self, words=(*words, "--incarnation", str(number)), incarnation=number)


@dataclass(frozen=True, slots=True)
class AgentHost:
    """A host that agents are on."""

    address: str
    """Its address; empty: this host."""
    machine: str
    """Its architecture, such as `x86_64`."""
    cores: int
    """Processors that agents may use."""
    descriptors: int
    """Open files that a process may have there."""
    memory_bytes: int
    """Memory that is available there."""


class Site(Protocol):
    """Where the engines of a run are."""

    @property
    def hosts(self) -> Sequence[AgentHost]:
        """The hosts that it may use; known once it is open."""

    async def open(self) -> None:
        """Makes it ready, or raises FleetError."""

    def localised(self, plan: Plan) -> Plan:
        """The plan as agents there read it: with the paths that files have there."""

    async def place(self, commands: Sequence[AgentCommand]) -> Sequence[Slot]:
        """A place for each agent, all of them or FleetError and none."""

    async def replace(self, agent: int) -> Slot:
        """Another place for an agent that is lost, or FleetError. It returns when the lost one
        surely plays no client any more."""

    async def close(self) -> None:
        """Gives everything back; nothing of it is left on any host. It can be called twice."""
