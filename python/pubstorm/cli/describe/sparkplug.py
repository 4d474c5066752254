"""Clients in Sparkplug B, in words."""

from __future__ import annotations

from collections.abc import Iterator

from pubstorm.contract.plan import PlannedPopulation
from pubstorm.contract.protocol import Mqtt, SparkplugHost, SparkplugNode
from pubstorm.contract.template import Template
from pubstorm.quantities import counted, write_duration


def sparkplug_words(population: PlannedPopulation) -> Iterator[str]:
    """Yields the part of clients in Sparkplug B."""
    mqtt = population.protocol
    match mqtt.sparkplug if isinstance(mqtt, Mqtt) else None:
        case SparkplugNode(group=group, node=node, devices=devices, metrics=metrics):
            count = 0 if devices is None else Template.parse(devices).variants
            with_devices = f" with {counted(count, 'device')}" if count else ""
            each = " each" if count > 1 else ""
            of = f"{counted(metrics, 'metric')}{each}"
            yield f"  edge nodes {group}/{node} of Sparkplug B{with_devices}, {of} in births"
        case SparkplugHost(host=host, ask_again_ns=again_ns):
            again = f"asks again for births after {write_duration(again_ns)}"
            yield f"  host applications {host} of Sparkplug B: follow each node, {again}"
