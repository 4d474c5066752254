"""Kinds of brokers: one file each, all of one shape (`BrokerProcess`): which program, how it is
configured, when it is ready, what can be read of it, how it is stopped, and what it needs. A kind's
word in the scenario is the name of its module, and begins the name of the class in it."""

from __future__ import annotations

from collections import Counter
from importlib import import_module

from pubstorm.host.preflight.need import Appetite, Kinds
from pubstorm.scenario.topology import ScenarioTopology
from pubstorm.topology.broker import BrokerProcess


def adapter_of(kind: str) -> type[BrokerProcess]:
    """Returns the class of a kind of broker. Imports its module, which other kinds need not."""
    module = import_module(f"{__name__}.{kind}")
    adapter: type[BrokerProcess] = getattr(module, f"{kind.capitalize()}Broker")
    return adapter


def appetite_of(kind: str) -> Appetite:
    """Returns the needs of a broker of a kind."""
    return adapter_of(kind).appetite


def broker_kinds(topology: ScenarioTopology) -> Kinds:
    """Returns the number of brokers in a topology by the needs of their kind."""
    kinds = Counter[Appetite]()
    for broker in topology.brokers.values():
        kinds[appetite_of(broker.kind)] += broker.count
    return kinds


__all__ = ["adapter_of", "appetite_of", "broker_kinds"]
