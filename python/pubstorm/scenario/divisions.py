"""Divisions: populations as they are played, one for each share and one for the rest, and which of
them a name means. It counts clients by number and knows nothing of stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise

from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import Population, PopulationShare
from pubstorm.units import rounded

SECOND_NS = 10**9
REST = "rest"
"""What the clients are called that are in no share."""


@dataclass(frozen=True, slots=True)
class Division:
    """Clients that behave alike: a population, a share of one, or what is left of it."""

    whole: str
    """Name of the population."""
    share: str | None
    """Name of the share; None: it is the whole population."""
    population: Population
    """What its clients do: the population's words, with those of the share in their place. Number
    and first number are those of the division."""
    start: int
    """Index of its first client among those of the population."""

    @property
    def name(self) -> str:
        """What it is called in expressions and results."""
        return self.whole if self.share is None else f"{self.whole}/{self.share}"

    @property
    def clients(self) -> int:
        """How many clients."""
        return self.population.clients


def divisions_of(scenario: Scenario) -> dict[str, Division]:
    """Everything that is played, by name, in the order of the scenario; nothing without clients."""
    found = (
        division
        for name, population in scenario.populations.items()
        for division in _divided(name, population)
    )
    return {division.name: division for division in found}


def share_sizes(population: Population) -> dict[str, int]:
    """Clients of the rest and of each share. Bounds between them are rounded, not sizes, so that
    they add up to the population."""
    parts = [share.part for share in population.shares.values()]
    # From the end, so that shares of nearly all leave nothing by chance of rounding.
    ends = list(accumulate(reversed(parts), initial=0.0))
    bounds = [population.clients - rounded(end * population.clients) for end in reversed(ends)]
    sizes = (upper - lower for lower, upper in pairwise([0, *bounds]))
    return dict(zip((REST, *population.shares), sizes, strict=True))


def mean_stay_ns(scenario: Scenario, division: Division) -> int:
    """How long each client is there in the mean, so that they go at the rate of their lifetime; not
    above 0 where they would have to be back sooner than `again` says. The rate of a share is that
    of its own clients, the rate of a population that of all of them together."""
    lifetime = division.population.lifetime
    if lifetime is None or lifetime.rate is None:
        return 0
    whole = scenario.populations[division.whole]
    share = whole.shares.get(division.share or "")
    is_own = share is not None and "lifetime" in share.model_fields_set
    clients = division.clients if is_own else whole.clients
    return round(clients / lifetime.rate * SECOND_NS) - (lifetime.again or 0)


def meant_by(names: Mapping[str, Division], name: str) -> tuple[str, ...]:
    """The divisions that a name means: one, or all of a population; none where it is unknown."""
    if name in names:
        return (name,)
    return tuple(each for each, division in names.items() if division.whole == name)


def _divided(name: str, population: Population) -> Iterator[Division]:
    if not population.shares:
        yield Division(name, None, population, 0)
        return
    start = 0
    for share, clients in share_sizes(population).items():
        own = {"clients": clients, "first": population.first + start, "shares": {}}
        played = population.model_copy(update=own)
        if share != REST:
            played = _changed(played, population.shares[share])
        if clients:
            yield Division(name, share, played, start)
        start += clients


def _changed(population: Population, share: PopulationShare) -> Population:
    """The population with what the share says in its place."""
    written = {name: getattr(share, name) for name in share.model_fields_set - {"part", "qos"}}
    says = {n: value for n, value in written.items() if value is not None or n in MAY_BE_NEVER}
    changed = population.model_copy(update=says)
    if share.qos is None:
        return changed
    level = {"qos": share.qos}
    both = {
        "subscriptions": tuple(s.model_copy(update=level) for s in changed.subscriptions),
        "publications": tuple(p.model_copy(update=level) for p in changed.publications),
    }
    return changed.model_copy(update=both)


MAY_BE_NEVER = ("lifetime", "reconnect")
"""Of these a share can say that there is none, though the population has one."""
