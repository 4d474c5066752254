"""Checks services against brokers and populations: names that exist, and passwords for users that
are written."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pubstorm.contract.source import split_member
from pubstorm.quantities import describe
from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.expressions import unknown
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.topology import Broker

REDIS = "redis://"


def check_services(scenario: Scenario) -> Iterator[Finding]:
    """Yields what does not fit together."""
    topology = scenario.topology
    for name, broker in topology.brokers.items():
        yield from _check_auth(("topology", "brokers", name, "auth"), broker, scenario)
    for name, service in topology.services.items():
        path: Path = ("topology", "services", name)
        group, number = split_member(name)
        if group in topology.brokers and number is not None:
            message = f"found the service {describe(name)}, which may also be a broker {group}"
            yield path, f"{message}, allowed is a name of its own", "rename it"
        for n, population in enumerate(service.seed if isinstance(service.seed, tuple) else ()):
            if population not in scenario.populations:
                names = list(scenario.populations)
                yield (*path, "seed", n), *unknown("population", population, names)
        if topology.is_seeded(name):
            yield from _check_users(path, scenario, service.seed)


def _check_auth(path: Path, broker: Broker, scenario: Scenario) -> Iterator[Finding]:
    auth, services = broker.user_store, list(scenario.topology.services)
    if auth is None or auth in services or _URL.match(auth):
        return
    known = ", ".join(services) or "none, since there are no services"
    message = f"found {describe(auth)}, allowed are the services ({known}) and {REDIS}HOST:PORT/DB"
    yield path, message, "start one with topology.services: {users: redis}"


def _check_users(path: Path, scenario: Scenario, seed: object) -> Iterator[Finding]:
    chosen = seed if isinstance(seed, tuple) else tuple(scenario.populations)
    populations = {n: p for n, p in scenario.populations.items() if n in chosen}
    if populations and all(p.username is None for p in populations.values()):
        names = ", ".join(populations)
        message = f"found no user names in the populations {names}, needed is one to be written"
        hint = 'write username: "device-{n}" and password: "secret-{n}", or seed: false'
        yield path, message, hint
    for name, population in populations.items():
        if population.username is not None and population.password is None:
            message = f"found a user name without a password, needed for the service {path[-1]}"
            yield ("populations", name, "username"), message, 'write password: "secret-{n}"'


_URL = re.compile(r"redis://\S+")
