"""The part of an agent: its share of one population of the plan, from its command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from pubstorm.contract.attachment import target_of
from pubstorm.contract.flows import PlannedPublication
from pubstorm.contract.plan import Plan, PlannedPopulation
from pubstorm.contract.protocol import Zmtp
from pubstorm.contract.target import Target


class AgentError(Exception):
    """Reason why an agent cannot continue, and a hint about the remedy."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True)
class ShardArguments:
    """The words of the command line."""

    agent: int
    """Its number among all agents."""
    agents: int
    """Number of agents."""
    population: int
    """Index of its population."""
    share: int
    """Number of its share: the agent plays each client c with c % shares = share."""
    shares: int


@dataclass(frozen=True)
class AgentShard:
    """An agent's share of the plan."""

    plan: Plan
    place: ShardArguments

    @property
    def population(self) -> PlannedPopulation:
        """The population of its clients."""
        return self.plan.populations[self.place.population]

    @property
    def options(self) -> Zmtp:
        """The options of its sockets."""
        options = self.population.zmtp
        assert options is not None, "programs beside engines play sockets"
        return options

    @property
    def clients(self) -> Sequence[int]:
        """The indices of its clients in their population."""
        return range(self.place.share, self.population.clients, self.place.shares)

    def target(self, client: int) -> Target:
        """The target of a client: where a publisher listens, and where a subscriber connects."""
        return self.plan.targets[target_of(self.plan, self.place.population, client)]

    def first_publication(self, population: int) -> int:
        """Index of the first publication of a population over all populations."""
        return sum(len(each.publications) for each in self.plan.populations[:population])

    def publications(self) -> list[tuple[int, PlannedPublication]]:
        """All publications of the plan in the order of their indices, with their populations."""
        populations = enumerate(self.plan.populations)
        return [(index, each) for index, p in populations for each in p.publications]


def parse_place(words: Sequence[str]) -> ShardArguments:
    """The place that a command line says; ends the process with words where it says none."""
    parser = argparse.ArgumentParser(
        prog=f"{sys.executable} -m pubstorm.fleet.zmq_agent",
        description="Plays a publisher or subscribers of ZeroMQ with pyzmq. Reads a plan (one line "
        "of JSON), then commands, from stdin; writes snapshots to stdout.",
    )
    parser.add_argument("--agent", type=int, required=True, help="its number among all agents")
    parser.add_argument("--agents", type=int, required=True, help="how many agents there are")
    parser.add_argument("--population", type=int, required=True, help="index of its population")
    parser.add_argument("--shard", default="0/1", help="its share of that: INDEX/COUNT")
    given = parser.parse_args(words)
    share, slash, shares = given.shard.partition("/")
    if not (slash and share.isdecimal() and shares.isdecimal() and int(share) < int(shares)):
        parser.error(f"--shard: found {given.shard}, allowed is INDEX/COUNT such as 0/1")
    return ShardArguments(given.agent, given.agents, given.population, int(share), int(shares))
