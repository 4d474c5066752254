"""The ZeroMQ clients of a plan: the program that plays them, the options of their sockets, and read
rates that are a share of the scheduled messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pubstorm.contract import RATE_MIN_PER_S, plan, protocol
from pubstorm.contract.offered_load import clients_at, target_of, template_of
from pubstorm.quantities import SECOND_NS, PartOf
from pubstorm.scenario.kinds import (
    DEFAULT_HIGH_WATER_MARK,
    RealSubscribers,
    StartedPublishers,
)
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import Population, Simulated
from pubstorm.scenario.shares import PopulationShare

SAMPLES = 16
"""Clients, or values of a topic, that are sampled at most."""


def sockets_of(scenario: Scenario, population: Population) -> protocol.Zmtp:
    """Options of a population's sockets."""
    security = _security(scenario.publisher_of(population) or population)
    if isinstance(population, StartedPublishers):
        publisher = population.publisher
        return protocol.Zmtp(
            player=publisher.kind,
            high_water_mark=publisher.high_water_mark,
            io_threads=publisher.io_threads,
            security=security,
        )
    if not isinstance(population, RealSubscribers):
        # It hands on what it reads, and queues nothing.
        return protocol.Zmtp(high_water_mark=0, security=security)
    mark = population.high_water_mark
    return protocol.Zmtp(
        # CURVE needs libsodium, which the libzmq of pyzmq has and that of pubstorm-zmq has not.
        player="pyzmq" if security == "curve" else "libzmq",
        high_water_mark=DEFAULT_HIGH_WATER_MARK if mark is None else mark,
        security=security,
    )


def slowed(compiled: plan.Plan, index: int, played: PopulationShare) -> plan.PlannedPopulation:
    """The population with this index, and its read rate where that is a share of what is due to a
    client."""
    population, clients = compiled.populations[index], played.population
    part = clients.read_rate if isinstance(clients, Simulated) else None
    if not isinstance(part, PartOf):
        return population
    due = _scheduled_per_s(compiled, index)
    # A client without scheduled deliveries has no share of them.
    read_rate_per_s = max(due * part.share, RATE_MIN_PER_S) if due else None
    return population.model_copy(update={"read_rate_per_s": read_rate_per_s})


def _security(population: Population) -> Literal["null", "plain", "curve"]:
    """The mechanism of a publisher and its subscribers; at one that already runs, `plain` where
    subscribers have a user name."""
    if not isinstance(population, StartedPublishers):
        return "null" if population.username is None else "plain"
    security = population.publisher.security
    return "null" if security == "none" else security


def _scheduled_per_s(compiled: plan.Plan, index: int) -> float | None:
    """Messages a second that are scheduled for a client of a population of subscribers, in the mean
    over sampled clients. None if one of their publishers sends as fast as it can."""
    each = [
        _scheduled_for(compiled, index, client)
        for client in _sampled(range(compiled.populations[index].clients))
    ]
    known = [rate_per_s for rate_per_s in each if rate_per_s is not None]
    return sum(known) / len(known) if len(known) == len(each) else None


def _scheduled_for(compiled: plan.Plan, index: int, client: int) -> float | None:
    subscriber, target = compiled.populations[index], target_of(compiled, index, client)
    filters = [template_of(subscriber, each.filter) for each in subscriber.subscriptions]
    number = subscriber.first + client
    prefixes = tuple(f.text(number, variant) for f in filters for variant in range(f.variants))
    rate_per_s = 0.0
    for publisher, population in enumerate(compiled.populations):
        for publication in population.publications if population.zmtp is not None else ():
            topic = template_of(population, publication.topic)
            for sender in clients_at(compiled, publisher, target):
                variants = _sampled(range(topic.variants))
                texts = (topic.text(population.first + sender, variant) for variant in variants)
                matching = sum(text.startswith(prefixes) for text in texts)
                if matching and not isinstance(publication.pace, protocol.OpenPace):
                    return None
                if isinstance(publication.pace, protocol.OpenPace):
                    share = matching / len(variants)
                    rate_per_s += share * SECOND_NS / publication.pace.period_ns
    return rate_per_s


def _sampled(values: range) -> Sequence[int]:
    """Up to `SAMPLES` of the values, evenly spread."""
    if len(values) <= SAMPLES:
        return values
    return [values[i * len(values) // SAMPLES] for i in range(SAMPLES)]
