"""Consumer groups of a plan, whose members may be clients of several populations, each played by an
agent of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache

from pubstorm.contract.offered_load import clients_at, template_of
from pubstorm.contract.plan import Plan, PlannedPopulation

SHARED = "$share/"
"""Beginning of a filter in the plan that has a group."""


def subscribed(population: PlannedPopulation, number: int) -> Iterator[tuple[str | None, str]]:
    """Yields the topics of a client, each with its group."""
    n = population.first + number
    for subscription in population.subscriptions:
        template = template_of(population, subscription.filter)
        for variant in range(template.variants):
            text = template.text(n, variant)
            group, _, topic = text.removeprefix(SHARED).rpartition("/")
            yield group or None, topic


def client_id(population: PlannedPopulation, number: int) -> str:
    """Returns the name of a client, which its settings can replace."""
    n = population.first + number
    given = getattr(population.protocol, "settings", {}).get("client.id")
    if given is None:
        return f"{population.name}-{n}"
    return template_of(population, given).text(n)


class Groups:
    """The group in which clients of a population are members: its name has no variable."""

    def __init__(self, plan: Plan, population: int) -> None:
        self._plan = plan
        self._own = population
        self.expecting = cache(self._expecting)
        """The population that expects a message of the group, by target and topic."""
        self.members = cache(self._members)
        """Names of the members of a group, by group and target, with the number of each."""

    def is_shared(self, target: int) -> bool:
        """Returns True if other populations have members in the group at a target."""
        return any(index != self._own for index in self._populations(target))

    def _expecting(self, target: int, topic: str) -> int:
        """By the rule of the fan-out (`crates/plan/src/fan_out/ways.rs`): the first population with
        members, active or not."""
        wanted = (self._group, topic)
        for index in self._populations(target):
            population = self._plan.populations[index]
            clients = clients_at(self._plan, index, target)
            if any(wanted in subscribed(population, number) for number in clients):
                return index
        return self._own

    def _members(self, group: str, target: int) -> Counter[str]:
        found = Counter[str]()
        for index, population in enumerate(self._plan.populations):
            if population.player != self._plan.populations[self._own].player:
                continue
            for number in clients_at(self._plan, index, target):
                if any(group == own for own, _ in subscribed(population, number)):
                    found[client_id(population, number)] += 1
        return found

    @property
    def _group(self) -> str | None:
        """The one group of the population."""
        own = self._plan.populations[self._own]
        return next((group for group, _ in subscribed(own, 0)), None)

    def _populations(self, target: int) -> Iterator[int]:
        """Yields the populations with members at a target, in the order of the plan."""
        own = self._plan.populations[self._own]
        filters = {each.filter for each in own.subscriptions}
        for index, population in enumerate(self._plan.populations):
            is_consumer = population.player == own.player and target in population.at.targets
            theirs = {each.filter for each in population.subscriptions}
            if is_consumer and theirs & filters and clients_at(self._plan, index, target):
                yield index
