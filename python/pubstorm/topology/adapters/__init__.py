"""Kinds of brokers: one file each, all of one shape (`BrokerProcess`): which program, how it is
configured, when it is ready, what can be read of it, how it is stopped."""

from __future__ import annotations

from importlib import import_module

from pubstorm.topology.broker import BrokerProcess

KINDS = ("embedded", "mosquitto", "rabbitmq", "nats", "command")
"""Words in the scenario. Each is the name of a module, and of the class in it: `NatsBroker`."""


def adapter_of(kind: str) -> type[BrokerProcess]:
    """Returns the class of a kind of broker. Imports its module, which other kinds need not."""
    module = import_module(f"{__name__}.{kind}")
    adapter: type[BrokerProcess] = getattr(module, f"{kind.capitalize()}Broker")
    return adapter


__all__ = ["KINDS", "adapter_of"]
