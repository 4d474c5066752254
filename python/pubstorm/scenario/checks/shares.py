"""Checks shares and session lifetimes: parts that fit into the population, with clients in each,
and names that exist."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from pubstorm.quantities import write_count, write_duration, write_share
from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.expressions import unknown
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import Lifetime, Population
from pubstorm.scenario.shares import REST, meant_by, share_sizes, shares_of
from pubstorm.scenario.stages import EVERY


def check_shares(scenario: Scenario) -> Iterator[Finding]:
    """Yields the problems that make single shares unknown."""
    for name, population in scenario.populations.items():
        path = ("populations", name)
        yield from _check_lifetime((*path, "lifetime"), population.stay)
        yield from _check_parts((*path, "shares"), population)
        for share, each in population.differing.items():
            yield from _check_lifetime((*path, "shares", share, "lifetime"), each.lifetime)


def check_named(scenario: Scenario) -> Iterator[Finding]:
    """Yields names in stages that have no clients, such as an empty rest."""
    shares = shares_of(scenario)
    names = tuple(dict.fromkeys((*scenario.populations, *shares)))
    for n, stage in enumerate(scenario.stages):
        path: Path = ("stages", n, stage.verb)
        given = [
            ((*path, "populations", m), name) for m, name in enumerate(stage.populations or ())
        ]
        if stage.publish is not None:
            for m, change in enumerate(stage.publish.changes):
                given.append(((*path, "changes", m, "population"), change.population))
        if stage.connect is not None and stage.connect.clients is not None:
            keys = (name for name in stage.connect.clients if name != EVERY)
            given += [((*path, "clients", name), name) for name in keys]
        for where, name in given:
            if not meant_by(shares, name):
                yield where, *unknown("population", name, names)


def _check_parts(path: Path, population: Population) -> Iterator[Finding]:
    if REST in population.differing:
        message = f"found a share called {REST}, allowed is another name"
        yield (*path, REST), message, "the clients that are in no share are called so"
        return
    together = sum(share.part for share in population.differing.values())
    if together > 1 + ROUNDING:
        message = f"found shares of {write_share(together)} together, allowed is up to 100%"
        yield path, message, "each client is in one share at most"
        return
    sizes = share_sizes(population)
    for name, share in population.differing.items():
        if sizes[name]:
            continue
        clients = write_count(population.clients)
        message = f"found {write_share(share.part)} of {clients} clients, which is no client"
        hint = "leave the share out"
        if share.part:
            enough = write_count(ceil(round(1 / share.part, 6)))
            hint = f"play at least {enough} clients, or {hint}"
        yield (*path, name, "part"), f"{message}, needed is one", hint


def _check_lifetime(path: Path, lifetime: Lifetime | None) -> Iterator[Finding]:
    if lifetime is None or lifetime.from_ is None:
        return
    if lifetime.to is not None and lifetime.to < lifetime.from_:
        least = write_duration(lifetime.from_)
        message = f"found {write_duration(lifetime.to)}, allowed is at least {least}"
        yield (*path, "to"), message, "a life is at least as long as its shortest"


ROUNDING = 1e-9
