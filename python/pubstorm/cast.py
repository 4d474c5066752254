"""Who plays what in a run: engines, each its share of the populations that they play, and after
them a program for each publisher and for each population of real subscribers. Arithmetic on the
plan; it starts nothing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pubstorm.plan import Plan, Population


@dataclass(frozen=True)
class Program:
    """An agent that is no engine."""

    agent: int
    """Its number among all agents."""
    population: int
    """Index of the population that it has a share of."""
    share: int
    """Which share: of a publisher the client itself."""
    shares: int
    """How many shares its population has."""
    name: str
    """That of its population, with a number where that has several publishers."""
    publishes: bool
    """Whether it is a publisher, and so what is under test."""

    @property
    def options(self) -> tuple[str, ...]:
        """The words that tell it its part, but for the number of agents."""
        share = f"{self.share}/{self.shares}"
        return ("--agent", str(self.agent), "--population", str(self.population), "--shard", share)


@dataclass(frozen=True)
class Cast:
    """All agents of a run."""

    engines: int
    """How many engines; they come first."""
    programs: tuple[Program, ...] = ()
    """All others, in the order of their numbers."""

    @classmethod
    def of(cls, plan: Plan, engines: int) -> Cast:
        """The agents that a plan needs beside so many engines."""
        programs: list[Program] = []
        for index, population in enumerate(plan.populations):
            shares = _shares(population)
            for share in range(shares):
                name = population.name if shares == 1 else f"{population.name}-{share}"
                agent = engines + len(programs)
                publishes = population.is_publisher
                programs.append(Program(agent, index, share, shares, name, publishes))
        return cls(engines, tuple(programs))

    @classmethod
    def among(cls, plan: Plan, agents: int) -> Cast:
        """The same from the number of all agents together."""
        return cls.of(plan, max(agents - cls.of(plan, 0).agents, 0))

    @property
    def agents(self) -> int:
        """How many agents there are."""
        return self.engines + len(self.programs)

    @cached_property
    def publishers(self) -> dict[int, Program]:
        """The publishers, by their agents' numbers."""
        return {each.agent: each for each in self.programs if each.publishes}


def _shares(population: Population) -> int:
    """How many programs play a population: one for each publisher, one for all subscribers."""
    if population.player == "engine":
        return 0
    return population.clients if population.is_publisher else 1
