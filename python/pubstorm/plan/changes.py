"""Changes of populations while messages are published: what they are called, and which clients are
there after them. It knows neither commands nor when anything really happened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from itertools import groupby
from typing import Protocol, TypeVar

from pubstorm import phase_names
from pubstorm.plan.model import (
    AddClients,
    ChangeAction,
    ChangeRate,
    ConnectAction,
    DisconnectAction,
    Plan,
    PublishAction,
    RemoveClients,
    Stage,
)


class Presence:
    """How many clients of each population are to be there: always its first ones."""

    def __init__(self, plan: Plan) -> None:
        self.most = [population.clients for population in plan.populations]
        self.counts = [0] * len(self.most)
        self.staying = {i for i, each in enumerate(plan.populations) if each.player != "engine"}
        """Populations that other programs play: their clients do not join or leave."""

    @classmethod
    def before(cls, plan: Plan, stage: Stage) -> Presence:
        """Who is there when a stage of the plan begins."""
        presence = cls(plan)
        for each in plan.stages:
            presence.enter(each)
            if each is stage:
                break
            if isinstance(each.action, PublishAction):
                for change in each.action.changes:
                    presence.change(change.population, change.action)
        return presence

    def enter(self, stage: Stage) -> None:
        """A stage begins."""
        for place, population in enumerate(stage.populations):
            if isinstance(stage.action, ConnectAction):
                asked = stage.action.clients
                wanted = self.most[population] if asked is None else asked[place]
                self.counts[population] = max(self.counts[population], wanted)
            elif isinstance(stage.action, DisconnectAction):
                self.counts[population] = 0

    def change(self, population: int, action: ChangeAction) -> None:
        """A population changes, as far as it can."""
        there = self.counts[population]
        if isinstance(action, AddClients):
            self.counts[population] = min(there + action.clients, self.most[population])
        elif isinstance(action, RemoveClients):
            self.counts[population] = max(there - action.clients, 0)

    def room(self, population: int) -> int:
        """Clients of a population that are not there."""
        return self.most[population] - self.counts[population]

    def fits(self, population: int, action: ChangeAction) -> bool:
        """Whether there are so many clients to join or to leave."""
        there = self.counts[population]
        match action:
            case AddClients(clients=clients):
                return clients <= self.room(population)
            case RemoveClients(clients=clients):
                return clients <= there
            case ChangeRate():
                return True

    def together(self, populations: Iterable[int]) -> int:
        """Clients of several populations that are to be there."""
        return sum(self.counts[population] for population in populations)

    def copy(self) -> Presence:
        """The same, to look ahead with."""
        other = copy(self)
        other.counts = list(self.counts)
        return other


class Named(Protocol):
    """A change with the name of the phase that begins with it."""

    @property
    def name(self) -> str:
        """The name."""


AnyChange = TypeVar("AnyChange", bound=Named)


def together(changes: Iterable[AnyChange]) -> Iterator[tuple[AnyChange, ...]]:
    """Changes of one stage in the order of time, those of the shares of a population in one: they
    have one name and one instant."""
    return (tuple(same) for _, same in groupby(changes, key=lambda change: change.name))


def change_name(action: ChangeAction, population: str) -> str:
    """What a change of a population is called."""
    amount = action.factor if isinstance(action, ChangeRate) else action.clients
    return phase_names.change_name(action.kind, amount, population)
