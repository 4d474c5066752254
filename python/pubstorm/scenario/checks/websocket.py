"""Checks the keys about WebSocket against one another and the targets."""

from __future__ import annotations

from collections.abc import Iterator

from pubstorm.scenario.document import Finding
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import MqttClients


def check_websocket(scenario: Scenario) -> Iterator[Finding]:
    """Yields what does not fit together."""
    for name, broker in scenario.topology.brokers.items():
        if broker.serves_websocket and broker.tls_mode == "psk":
            place = ("topology", "brokers", name, "transport")
            message = "found websocket with tls: psk, allowed are none, server and mutual"
            yield place, message, "mosquitto's WebSocket has no pre-shared keys"
    brokers = scenario.topology.brokers.values()
    is_used = any(target.websocket is not None for target in scenario.target) or any(
        broker.serves_websocket for broker in brokers
    )
    if is_used:
        return
    for name, population in scenario.populations.items():
        if isinstance(population, MqttClients) and population.headers:
            hint = "set transport of a broker in topology.brokers" if brokers else "write ws://"
            path = ("populations", name, "headers")
            yield path, "found headers, and no target over WebSocket", hint
