"""Changes of populations as they took effect in a run, and how a user writes one while it goes on.
It knows neither the fleet nor the socket that brings them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pubstorm.errors import UsageError
from pubstorm.phase_names import change_name
from pubstorm.plan import (
    AddClients,
    ChangeAction,
    ChangeRate,
    Plan,
    Presence,
    PublishAction,
    RemoveClients,
    Stage,
)
from pubstorm.scenario.fields import clients_or_part
from pubstorm.units import PartOf, Quantity, UnfitError, duration_ns, factor, rounded

FORMS = "add 500 POPULATION [over 5s], remove 50% POPULATION [over 5s] or rate 2 POPULATION"
DURATION = Quantity(duration_ns, 0, 2**62)
FACTOR = Quantity(factor, 0, 1e6)


@dataclass(frozen=True)
class AppliedChange:
    """A change as it took effect, whether planned or asked for by control."""

    stage: int
    """Index of the publish stage."""
    at_ns: int
    """When, in nanoseconds on the monotonic clock."""
    name: str
    """Name of the phase that begins with it."""
    population: int
    """Index of the population."""
    action: ChangeAction
    """What changed."""


@dataclass(frozen=True, slots=True)
class AskedChange:
    """A change as a user asks for it while a run goes on."""

    population: str
    """A population or a share of one."""
    kind: Literal["add", "remove", "rate"]
    """What is to change."""
    amount: float | PartOf
    """Clients, a share of them, or times the planned rate."""
    over_ns: int = 0
    """Time over which clients join or leave, in nanoseconds."""

    @property
    def name(self) -> str:
        """What it is called."""
        return change_name(self.kind, self.amount, self.population)

    def actions(self, presence: Presence, indices: Sequence[int]) -> dict[int, ChangeAction]:
        """What changes in each of the populations that are meant, but for those of which it is
        nobody. Raises UsageError where that cannot be said."""
        if self.kind == "rate" and not isinstance(self.amount, PartOf):
            return dict.fromkeys(indices, ChangeRate(factor=self.amount))
        if presence.staying.intersection(indices):
            message = f"found {self.kind} of real sockets, allowed is a change of a rate"
            raise UsageError(message, "simulated subscribers can join and leave")
        if not isinstance(self.amount, PartOf) and len(indices) > 1:
            hint = "write a share in percent, or name one of its shares"
            raise UsageError(f"population {self.population} has shares", hint)
        kind = AddClients if self.kind == "add" else RemoveClients
        counts = {index: self._clients(presence, index) for index in indices}
        found: dict[int, ChangeAction] = {
            index: kind(clients=count, over_ns=self.over_ns)
            for index, count in counts.items()
            if count
        }
        if not found:
            raise UsageError(f"{self.amount} of {self.population} is no client", "change more")
        return found

    def _clients(self, presence: Presence, index: int) -> int:
        """How many clients of a population; a share is rounded, but to no more than there are."""
        if not isinstance(self.amount, PartOf):
            return round(self.amount)
        count = rounded(self.amount.share * presence.most[index])
        room = presence.room(index) if self.kind == "add" else presence.counts[index]
        return room if count == room + 1 else count


def members_of(plan: Plan, stage: Stage) -> dict[str, tuple[int, ...]]:
    """What can be changed in a stage, by name: its populations, and those whose shares are all in
    it."""
    alone = {plan.populations[index].name: (index,) for index in stage.populations}
    wholes = {n: all_ for n, all_ in plan.wholes.items() if {*all_} <= {*stage.populations}}
    return {**alone, **wholes}


def unjudged(plan: Plan, changes: Iterable[AppliedChange], stage: int) -> list[int]:
    """Populations that subscribe and whose clients joined or left in a stage, or have lives that
    end while messages are sent: they are owed what they received, for nobody can say what they
    ought to have had."""
    joined_or_left = {
        change.population
        for change in changes
        if change.stage == stage and not isinstance(change.action, ChangeRate)
    }
    if isinstance(plan.stages[stage].action, PublishAction):
        living = enumerate(plan.populations)
        joined_or_left |= {index for index, each in living if each.lifetime is not None}
    return [p for p in sorted(joined_or_left) if plan.populations[p].subscriptions]


def parse_change(text: str) -> AskedChange:
    """A change from words such as `add 500 late over 5s`, `remove 50% late` or `rate 2 device`.
    Raises UsageError."""
    words = text.split()
    over = words[3:] if len(words) in {3, 5} else None
    if over is None or (over and over[0] != "over"):
        raise UsageError(f"found '{text}', which is no change", f"write {FORMS}")
    verb, amount, population = words[:3]
    try:
        return _asked(verb, amount, population, over[1] if over else None)
    except UnfitError as unfit:
        raise UsageError(f"in '{text}': {unfit}", f"write {FORMS}") from unfit


def _asked(verb: str, amount: str, population: str, over: str | None) -> AskedChange:
    if verb == "rate" and over is None:
        return AskedChange(population, "rate", float(FACTOR.read(amount)))
    kinds: dict[str, Literal["add", "remove"]] = {"add": "add", "remove": "remove"}
    if verb not in kinds:
        raise UnfitError(verb, "is add, remove, or rate without over")
    over_ns = 0 if over is None else int(DURATION.read(over))
    return AskedChange(population, kinds[verb], clients_or_part(amount), over_ns)
