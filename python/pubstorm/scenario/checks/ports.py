"""Ports that a scenario gives its brokers and services: that there are so many, and that no two
have the same one. It does not look whether they are free."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from pubstorm.scenario.at import Finding
from pubstorm.scenario.model import Scenario

PORTS_END = 65_536
FREE_HINT = "leave port out: then free ones are taken"


def check_ports(scenario: Scenario) -> Iterator[Finding]:
    """What is wrong with their ports."""
    ranges: dict[str, range] = {}
    for name, broker in scenario.topology.brokers.items():
        if broker.port is None:
            continue
        ranges[name] = range(broker.port, broker.port + broker.count)
        if ranges[name].stop > PORTS_END:
            most = PORTS_END - broker.count
            message = f"found {broker.port} for {broker.count} brokers, allowed is at most {most}"
            yield ("topology", "brokers", name, "port"), message, FREE_HINT
    for (name, one), (other_name, other) in combinations(ranges.items(), 2):
        both = range(max(one.start, other.start), min(one.stop, other.stop))
        if both:
            message = f"found port {both.start} also for {name}, allowed is one broker for a port"
            yield ("topology", "brokers", other_name, "port"), message, FREE_HINT
    for name, service in scenario.topology.services.items():
        taken = next((other for other, ports in ranges.items() if service.port in ports), None)
        if taken is not None:
            message = f"found port {service.port} also for {taken}, allowed is one for each"
            yield ("topology", "services", name, "port"), message, FREE_HINT
        if service.port is not None:
            ranges[name] = range(service.port, service.port + 1)
