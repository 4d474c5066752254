"""Checks the keys about TLS against one another and the targets. `pubstorm.host.keys.check` checks
that the files exist and fit.
"""

from __future__ import annotations

from collections.abc import Iterator

from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import MqttClients, NatsClients
from pubstorm.scenario.tls import Tls


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
        yield from check_credentials(path, population.tls)
        if population.tls.min_version > population.tls.max_version:
            found = f"found {population.tls.min_version}"
            message = f"{found}, allowed is at most max_version: {population.tls.max_version}"
            yield (*path, "min_version"), message, None


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


def check_credentials(path: Path, tls: Tls) -> Iterator[Finding]:
    """Yields keys and certificates that are incomplete, or of two kinds."""
    for one, other in (("certificate", "key"), ("key", "certificate")):
        if getattr(tls, one) is not None and getattr(tls, other) is None:
            yield (*path, one), f"found {one} without {other}, needed are both or neither", None
    if tls.psk is None:
        return
    for key in CERTIFICATE_KEYS:
        if key in tls.model_fields_set:
            message = f"found {key} and psk, allowed is one of them"
            yield (*path, key), message, "with pre-shared keys no side shows a certificate"


SCHEMES = "write mqtts://, or wss:// for WebSocket"
CERTIFICATE_KEYS = ("certificate", "key", "ca", "verify", "server_name")
"""Keys about certificates, which have no meaning with pre-shared keys."""
