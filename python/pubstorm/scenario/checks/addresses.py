"""Checks the addresses of targets and of clients: families of source addresses, and names whose
addresses are given."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address

from pubstorm.contract.target import Target
from pubstorm.scenario.document import Finding
from pubstorm.scenario.model import Scenario


def check_addresses(scenario: Scenario) -> Iterator[Finding]:
    """Yields source addresses from which no client can connect to some target, and addresses of
    names that no target has."""
    yield from _check_sources(scenario)
    addresses = scenario.addresses
    if addresses is None:
        return
    hosts = [target.host for target in scenario.target]
    for name in addresses.names:
        if name not in hosts:
            allowed = ", ".join(dict.fromkeys(hosts)) or "hosts of target"
            message = f"found {name}, which is the host of no target, allowed are {allowed}"
            yield ("addresses", "names", name), message, "the name is the HOST of mqtt://HOST"


def _check_sources(scenario: Scenario) -> Iterator[Finding]:
    """Yields a target that no source reaches, or a source that reaches no target."""
    targets = scenario.target
    if scenario.fleet.on == "local" and (scenario.topology.brokers or scenario.publishers):
        targets = (*targets, Target(host="127.0.0.1", port=0))
    sources = {ip_address(source).version: source for source in reversed(scenario.sources or ())}
    if not sources or not targets:
        return
    for target in targets:
        versions = _versions(scenario, target)
        if versions and not versions & sources.keys():
            yield _unfit(next(iter(sources.items())), target, versions)
            return
    reached = [_versions(scenario, target) for target in targets]
    for version, source in sources.items():
        if all(reached) and not any(version in versions for versions in reached):
            yield _unfit((version, source), targets[0], reached[0])


def _unfit(source: tuple[int, str], target: Target, versions: set[int]) -> Finding:
    version, address = source
    allowed = " and ".join(f"IPv{each}" for each in sorted(versions))
    found = f"found {address} of IPv{version} for a target at {target.host}"
    message = f"{found}, allowed are addresses of {allowed}"
    return ("sources",), message, "a connection has one family at both ends"


def _versions(scenario: Scenario, target: Target) -> set[int]:
    """Returns the families of a target's addresses; empty if the resolver decides."""
    if target.ip_version is not None:
        return {target.ip_version}
    given = {} if scenario.addresses is None else scenario.addresses.names
    return {ip_address(address).version for address in given.get(target.host, ())}
