"""Checks populations that take connections over from another one, and flapping subscriptions."""

from __future__ import annotations

from collections.abc import Iterator

from pubstorm.contract.template import Template, VariableKind
from pubstorm.quantities import write_count, write_duration, write_rate
from pubstorm.scenario.base import broken_rules
from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.expressions import unknown
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import (
    Flapping,
    MqttClients,
    MqttDifference,
    NatsClients,
    NatsDifference,
)
from pubstorm.scenario.shares import MEAN_NS_MAX, PopulationShare, mean_subscribed_ns, shares_of


def check_lives(scenario: Scenario) -> Iterator[Finding]:
    """Yields what does not fit together."""
    named = scenario.populations.items()
    clients = {name: each for name, each in named if isinstance(each, MqttClients)}
    yield from _check_flapping(scenario)
    taken: dict[str, str] = {}
    for name, taker in clients.items():
        if taker.takes_over is None:
            continue
        path: Path = ("populations", name, "takes_over")
        others = [other for other in clients if other != name]
        victim = clients.get(taker.takes_over) if taker.takes_over in others else None
        if taker.takes_over == name:
            yield path, f"found {name} itself, allowed is another population", None
        elif victim is None:
            yield path, *unknown("population", taker.takes_over, others)
        elif taker.takes_over in taken:
            first = taken[taker.takes_over]
            message = f"found {taker.takes_over}, which {first} takes over too, allowed is one"
            yield path, message, f"raise the clients of {first}"
        elif victim.takes_over is not None:
            message = f"found {taker.takes_over}, which takes over {victim.takes_over} itself"
            yield path, f"{message}, allowed is a population that takes over none", None
        else:
            yield from _check_pair(name, taker, taker.takes_over, victim)
            taken[taker.takes_over] = name


def _check_pair(
    name: str, taker: MqttClients, victim_name: str, victim: MqttClients
) -> Iterator[Finding]:
    path: Path = ("populations", name)
    if taker.client_id is not None:
        message = f"found client_id with takes_over, allowed is that of {victim_name}"
        yield (*path, "client_id"), message, "leave client_id out"
    if "first" in taker.model_fields_set and taker.first != victim.first:
        message = f"found {taker.first}, allowed is {victim.first}, as in {victim_name}"
        yield (*path, "first"), message, "leave first out"
    if taker.clients > victim.clients:
        clients = f"{write_count(taker.clients)}, allowed are up to {write_count(victim.clients)}"
        message = f"found {clients} with takes_over, the clients of {victim_name}"
        yield (*path, "clients"), message, "each takes the connection of one client over"
    if victim.client_id is not None and Template.parse(victim.client_id).has(VariableKind.ROW):
        message = f"found {victim_name}, whose client identifiers come from rows"
        yield (*path, "takes_over"), f"{message}, allowed are numbers", "write {n} in its client_id"
    for each, population in ((name, taker), (victim_name, victim)):
        if population.shares:
            message = "found shares of a population with takeovers, allowed are none"
            yield ("populations", each, "shares"), message, "write a population for each share"


def _check_flapping(scenario: Scenario) -> Iterator[Finding]:
    """Clients without filters, and rates that no time gives; only where times are right."""
    own: list[Flapping | None] = []
    for population in scenario.populations.values():
        own.append(population.flaps)
        shares = population.differing.values()
        own += [s.flapping for s in shares if isinstance(s, MqttDifference | NatsDifference)]
    is_unfit = any(True for each in own for _ in broken_rules(each))
    for played in () if is_unfit else shares_of(scenario).values():
        if played.population.flaps is not None:
            yield from _check_played(scenario, played, played.population.flaps)


def _check_played(
    scenario: Scenario, played: PopulationShare, flapping: Flapping
) -> Iterator[Finding]:
    share: Path = () if played.share is None else ("shares", played.share)
    whole = scenario.populations[played.whole]
    is_own = played.share in whole.differing and "flapping" in (
        whole.differing[played.share or ""].model_fields_set
    )
    path: Path = ("populations", played.whole, *(share if is_own else ()), "flapping")
    subscribing = played.population
    if isinstance(subscribing, MqttClients | NatsClients) and not subscribing.subscriptions:
        message = f"found flapping of {played.name}, which subscribes to nothing"
        yield path, f"{message}, needed are subscriptions", "write subscriptions, or leave it out"
    elif flapping.rate is not None:
        subscribed_ns = mean_subscribed_ns(scenario, played)
        clients = write_count(played.clients if is_own else whole.clients)
        message = f"found {write_rate(flapping.rate)} of {clients} clients"
        if subscribed_ns <= 0:
            unsubscribed = f"that are unsubscribed for {write_duration(flapping.unsubscribed)}"
            message = f"{message} {unsubscribed}, needed is a lower rate"
            yield path, message, "or a shorter time of unsubscribed"
        elif subscribed_ns > MEAN_NS_MAX:
            hint = f"each would stay subscribed for more than {write_duration(MEAN_NS_MAX)}"
            yield path, f"{message}, needed is a higher rate", hint
