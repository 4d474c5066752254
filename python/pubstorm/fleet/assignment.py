"""Agent assignment: engines, each with its share of the populations that engines play, and then a
program for each publisher and for each population of real subscribers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pubstorm.contract.plan import Plan, PlannedPopulation
from pubstorm.contract.source import Source


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
