"""Kinds of populations: the kind of each follows from its keys and from what it connects to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Discriminator, Tag

from pubstorm.contract.protocol import NATS_SCHEMES, ZMQ_SCHEME
from pubstorm.scenario.base import AnyOf
from pubstorm.scenario.document import At
from pubstorm.scenario.populations import (
    TARGET,
    MqttClients,
    NatsClients,
    RealSubscribers,
    SimulatedSubscribers,
    StartedPublishers,
)


class Written(dict[str, Any]):
    """A population as it was written, with its kind."""

    def __init__(self, population: Mapping[str, Any], kind: str) -> None:
        super().__init__(population)
        self.kind = kind


def with_kinds(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the values of a scenario in which each population has its kind.

    A population with the key `publisher` is one of publishers. Others speak MQTT unless they
    connect to such a population, to a target of ZeroMQ or NATS, or have `protocol: nats`.
    """
    root = At(data)
    populations = root["populations"]
    if not isinstance(populations.data, dict):
        return data
    publishers = {each.path[-1] for each in populations.named() if "publisher" in each}
    brokers = {each.path[-1] for each in root["topology"]["brokers"].named()}
    target = root[TARGET].data
    first = target[0] if isinstance(target, list) and target else target
    at_nats = isinstance(first, str) and first.strip().startswith(NATS_SCHEMES)
    if isinstance(first, str) and first.strip().startswith(ZMQ_SCHEME):
        publishers.add(TARGET)
    else:
        brokers.add(TARGET)

    def kind_of(population: At) -> str:
        at = population["at"]
        place = at["brokers"].data if isinstance(at.data, dict) else at.data
        place = TARGET if place is None else str(place)
        says_so = "subscriber" in population or "high_water_mark" in population
        if "publisher" in population:
            return PUBLISHERS
        if population["protocol"].data == "nats" or (at_nats and place == TARGET):
            return NATS
        if place in publishers or (place not in brokers and says_so):
            is_real = population["subscriber"].data == "libzmq"
            return SOCKETS if is_real else SUBSCRIBERS
        return MQTT

    marked = {
        each.path[-1]: Written(each.data, kind_of(each))
        for each in populations.named()
        if isinstance(each.data, dict)
    }
    return {**data, "populations": {**populations.data, **marked}}


def _kind_of(value: object) -> str:
    if isinstance(value, Written):
        return value.kind
    kinds = {
        NatsClients: NATS,
        StartedPublishers: PUBLISHERS,
        SimulatedSubscribers: SUBSCRIBERS,
        RealSubscribers: SOCKETS,
    }
    return next((kind for each, kind in kinds.items() if isinstance(value, each)), MQTT)


MQTT = "MQTT clients"
NATS = "NATS clients"
PUBLISHERS = "ZeroMQ publishers"
SUBSCRIBERS = "simulated subscribers of ZeroMQ"
SOCKETS = "real sockets of ZeroMQ"
AnyPopulation = Annotated[
    Annotated[MqttClients, Tag(MQTT)]
    | Annotated[NatsClients, Tag(NATS)]
    | Annotated[StartedPublishers, Tag(PUBLISHERS)]
    | Annotated[SimulatedSubscribers, Tag(SUBSCRIBERS)]
    | Annotated[RealSubscribers, Tag(SOCKETS)],
    Discriminator(_kind_of),
    AnyOf(),
]
"""A population of any kind."""
