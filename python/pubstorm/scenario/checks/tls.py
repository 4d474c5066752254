"""What the keys about TLS ask of one another and of the targets. It reads no file: whether keys and
certificates are there and fit is asked of the host, in `pubstorm.keys.check`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pubstorm.scenario.document import Path
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.tls import Tls

if TYPE_CHECKING:
    from pubstorm.scenario.at import Finding


def check_tls(scenario: Scenario) -> Iterator[Finding]:
    """What does not fit together."""
    yield from _check_brokers(scenario)
    brokers = scenario.topology.brokers.values()
    is_used = any(target.tls for target in scenario.target) or any(
        broker.tls != "none" for broker in brokers
    )
    for name, population in scenario.populations.items():
        if population.tls is None:
            continue
        path = ("populations", name, "tls")
        if not is_used:
            hint = "set tls of a broker in topology.brokers" if brokers else "write mqtts://"
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
        if broker.tls == "none":
            continue
        modes.setdefault("psk" if broker.tls == "psk" else "certificates", name)
        if len(modes) > 1:
            message = f"found {broker.tls} beside {' and '.join(_others(scenario, name))}"
            hint = "a population has pre-shared keys or certificates, not both"
            yield path, f"{message}, allowed are psk alone, or server and mutual", hint
            return


def _others(scenario: Scenario, name: str) -> list[str]:
    brokers = scenario.topology.brokers.items()
    return sorted({b.tls for other, b in brokers if other != name and b.tls != "none"})


def check_credentials(path: Path, tls: Tls) -> Iterator[Finding]:
    """That keys and certificates are whole, and of one kind."""
    for one, other in (("certificate", "key"), ("key", "certificate")):
        if getattr(tls, one) is not None and getattr(tls, other) is None:
            yield (*path, one), f"found {one} without {other}, needed are both or neither", None
    if tls.psk is None:
        return
    for key in CERTIFICATE_KEYS:
        if key in tls.model_fields_set:
            message = f"found {key} and psk, allowed is one of them"
            yield (*path, key), message, "with pre-shared keys nobody shows a certificate"


CERTIFICATE_KEYS = ("certificate", "key", "ca", "verify", "server_name")
"""What is about certificates, and has no meaning with pre-shared keys."""
