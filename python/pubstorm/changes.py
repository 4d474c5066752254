"""Changes of populations as they took effect in a run, and how a user writes one while it goes on.
It knows neither the fleet nor the socket that brings them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pubstorm.errors import UsageError
from pubstorm.plan import AddClients, ChangeAction, ChangeRate, Plan, RemoveClients
from pubstorm.units import Quantity, UnfitError, count, duration_ns, factor

FORMS = "add 500 POPULATION [over 5s], remove 500 POPULATION [over 5s] or rate 2 POPULATION"
CLIENTS = Quantity(count, 1, 2**32 - 1)
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


def unjudged(plan: Plan, changes: Iterable[AppliedChange], stage: int) -> list[int]:
    """Populations that subscribe and whose clients joined or left in a stage: they are owed what
    they received, for nobody can say what they ought to have had."""
    joined_or_left = {
        change.population
        for change in changes
        if change.stage == stage and not isinstance(change.action, ChangeRate)
    }
    return [p for p in sorted(joined_or_left) if plan.populations[p].subscriptions]


def parse_change(text: str) -> tuple[str, ChangeAction]:
    """The name of a population and what is to change in it, from `add 500 late over 5s`,
    `remove 500 late` or `rate 2 device`. Raises UsageError."""
    words = text.split()
    over = words[3:] if len(words) in {3, 5} else None
    if over is None or (over and over[0] != "over"):
        raise UsageError(f"found '{text}', which is no change", f"write {FORMS}")
    verb, amount, population = words[:3]
    try:
        return population, _action(verb, amount, over[1] if over else None)
    except UnfitError as unfit:
        raise UsageError(f"in '{text}': {unfit}", f"write {FORMS}") from unfit


def _action(verb: str, amount: str, over: str | None) -> ChangeAction:
    if verb == "rate" and over is None:
        return ChangeRate(factor=float(FACTOR.read(amount)))
    if verb not in {"add", "remove"}:
        raise UnfitError(verb, "is add, remove, or rate without over")
    over_ns = 0 if over is None else int(DURATION.read(over))
    change = AddClients if verb == "add" else RemoveClients
    return change(clients=int(CLIENTS.read(amount)), over_ns=over_ns)
