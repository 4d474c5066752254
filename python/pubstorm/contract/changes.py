"""Changes of populations during a publish stage: their names, and the active clients after them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import copy
from itertools import count, groupby
from typing import Literal, Protocol, TypeVar

from pubstorm.contract.plan import (
    AddClients,
    ChangeAction,
    ChangeRate,
    ConnectAction,
    DisconnectAction,
    Plan,
    PlannedStage,
    RemoveClients,
)
from pubstorm.quantities import PartOf


class ActiveClients:
    """Active clients of each population: always its first ones."""

    def __init__(self, plan: Plan) -> None:
        self.most = [population.clients for population in plan.populations]
        self.counts = [0] * len(self.most)
        self.staying = {i for i, each in enumerate(plan.populations) if each.player != "engine"}
        """Populations that other programs play: their clients do not join or leave."""

    def enter(self, stage: PlannedStage) -> None:
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

    def limit(self, most: Sequence[int]) -> None:
        """Limits the active clients of each population."""
        self.counts = [min(pair) for pair in zip(self.counts, most, strict=True)]

    def room(self, population: int) -> int:
        """Clients of a population that are not there."""
        return self.most[population] - self.counts[population]

    def fits(self, population: int, action: ChangeAction) -> bool:
        """Returns True if that many clients can join or leave."""
        there = self.counts[population]
        match action:
            case AddClients(clients=clients):
                return clients <= self.room(population)
            case RemoveClients(clients=clients):
                return clients <= there
            case ChangeRate():
                return True

    def together(self, populations: Iterable[int]) -> int:
        """Active clients of several populations."""
        return sum(self.counts[population] for population in populations)

    def copy(self) -> ActiveClients:
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
    """Returns the name of a change of a population."""
    amount = action.factor if isinstance(action, ChangeRate) else action.clients
    return change_words(action.kind, amount, population)


def change_words(
    kind: Literal["add", "remove", "rate"], amount: float | PartOf, population: str
) -> str:
    """Returns the name of a change: `+500 device`, `-50% device`, `2 × device`, `pause device`."""
    match kind:
        case "add":
            return f"+{amount} {population}"
        case "remove":
            return f"-{amount} {population}"
        case "rate":
            return f"{amount:g} × {population}" if amount else f"pause {population}"


def unique_name(name: str, taken: Collection[str]) -> str:
    """The name, with a number where it is taken."""
    names = (name if n == 1 else f"{name} ({n})" for n in count(1))
    return next(each for each in names if each not in taken)
