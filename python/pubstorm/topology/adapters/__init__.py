"""Kinds of brokers: one file each, all of one shape (`BrokerProcess`): which program, how it is
configured, when it is ready, what can be read of it, how it is stopped."""

from __future__ import annotations

from collections.abc import Mapping

from pubstorm.topology.adapters.command import CommandBroker
from pubstorm.topology.adapters.embedded import EmbeddedBroker
from pubstorm.topology.adapters.mosquitto import MosquittoBroker
from pubstorm.topology.adapters.nats import NatsBroker
from pubstorm.topology.adapters.rabbitmq import RabbitmqBroker
from pubstorm.topology.broker import BrokerProcess

ADAPTERS: Mapping[str, type[BrokerProcess]] = {
    adapter.kind: adapter
    for adapter in (EmbeddedBroker, MosquittoBroker, RabbitmqBroker, NatsBroker, CommandBroker)
}
"""By the word in the scenario."""

__all__ = [
    "ADAPTERS",
    "CommandBroker",
    "EmbeddedBroker",
    "MosquittoBroker",
    "NatsBroker",
    "RabbitmqBroker",
]
