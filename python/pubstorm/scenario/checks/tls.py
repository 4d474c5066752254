"""Checks the keys about TLS against one another and the targets. `pubstorm.host.keys.check` checks
that the files exist and fit.
"""

from __future__ import annotations

from collections.abc import Iterator

from pubstorm.scenario.document import Finding
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import MqttClients, NatsClients


def check_tls(scenario: Scenario) -> Iterator[Finding]:
    """Yields what does not fit together."""
    yield from _check_brokers(scenario)
    brokers = scenario.topology.brokers.values()
    is_used = any(target.tls for target in scenario.target) or any(
        broker.tls_mode != "none" for broker in brokers
    )
    for name, population in scenario.populations.items():
        if not isinstance(population, MqttClients | NatsClients) or population.tls is None:
            continue
        path = ("populations", name, "tls")
        if not is_used:
            hint = "set tls of a broker in topology.brokers" if brokers else SCHEMES
            yield path, "found tls, and no target that is under TLS", hint


def _check_brokers(scenario: Scenario) -> Iterator[Finding]:
    modes: dict[str, str] = {}
    for name, broker in scenario.topology.brokers.items():
        path = ("topology", "brokers", name, "tls")
        if broker.tls_mode == "none":
            continue
        modes.setdefault("psk" if broker.tls_mode == "psk" else "certificates", name)
        if len(modes) > 1:
            message = f"found {broker.tls_mode} beside {' and '.join(_others(scenario, name))}"
            hint = "a population has pre-shared keys or certificates, not both"
            yield path, f"{message}, allowed are psk alone, or server and mutual", hint
            return


def _others(scenario: Scenario, name: str) -> list[str]:
    brokers = scenario.topology.brokers.items()
    return sorted({b.tls_mode for other, b in brokers if other != name and b.tls_mode != "none"})


SCHEMES = "write mqtts://, or wss:// for WebSocket"
