"""Checks publishers and subscribers of ZeroMQ: one flow for each publisher, logins and prefixes of
their subscribers, ports.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pubstorm.contract.template import Template
from pubstorm.quantities import PartOf, describe, write_duration, write_rate
from pubstorm.scenario.checks.brokers import check_command
from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import (
    MqttClients,
    Population,
    RealSubscribers,
    Simulated,
    SimulatedSubscribers,
    StartedPublishers,
)
from pubstorm.scenario.shares import MEAN_NS_MAX, mean_stay_ns, shares_of
from pubstorm.scenario.stages import Publish


def check_zeromq(scenario: Scenario) -> Iterator[Finding]:
    """Yields what does not fit together."""
    yield from _check_target(scenario)
    for name, population in scenario.populations.items():
        path: Path = ("populations", name)
        yield from _check_rates(path, population, scenario)
        match population:
            case MqttClients():
                yield from _check_place(path, population, scenario)
            case StartedPublishers():
                yield from _check_publisher(path, population)
            case SimulatedSubscribers() | RealSubscribers():
                yield from _check_subscriber(path, population, scenario)
    yield from _check_changes(scenario)
    yield from _check_keys_elsewhere(scenario) if scenario.fleet.on != "local" else ()


def _check_target(scenario: Scenario) -> Iterator[Finding]:
    """Yields a target that no population connects to, since the run starts publishers."""
    publishers = scenario.publishers
    others = [each for name, each in scenario.populations.items() if name not in publishers]
    at_publishers = [scenario.publisher_of(each) is not None for each in others]
    if scenario.target and publishers and not scenario.topology.bridges and all(at_publishers):
        message = "found a target that no population connects to, allowed is one with clients"
        yield ("target",), message, "write at: target at its clients, or leave target out"


def _check_place(path: Path, population: MqttClients, scenario: Scenario) -> Iterator[Finding]:
    """Yields a population that connects to nothing, since the scenario has publishers alone."""
    if population.at is None and not scenario.target and not scenario.topology.brokers:
        message = "found no at, needed is the population of publishers that it connects to"
        yield path, message, f"write at: {next(iter(scenario.publishers), None)}"


def _check_publisher(path: Path, population: StartedPublishers) -> Iterator[Finding]:
    publisher, count = population.publisher, len(population.publications)
    if count != 1:
        message = f"found {count or 'no'} publications, needed is one for a publisher"
        hint = 'write publications: [{topic: "", size: 32B, rate: 1k/s}]'
        if count:
            hint = "a range in its topic makes many topics of it; or write more populations"
        yield (*path, "publications"), message, hint
    if publisher.command and publisher.kind != "command":
        message = f"found command with kind {publisher.kind}, allowed with command alone"
        yield (*path, "publisher", "command"), message, None
    if publisher.kind == "command":
        place = (*path, "publisher", "command")
        yield from check_command(place, publisher.command, COMMAND_VALUES)
    yield from _check_security(path, population)


def _check_security(path: Path, population: StartedPublishers) -> Iterator[Finding]:
    publisher = population.publisher
    place = (*path, "publisher", "security")
    if publisher.security == "curve" and publisher.kind == "libzmq":
        message = "found curve with kind libzmq, allowed with pyzmq and command"
        yield place, message, "the libzmq in Pubstorm is built without libsodium: kind: pyzmq"
    written = [key for key in ("username", "password") if getattr(population, key) is not None]
    if publisher.security == "plain" and len(written) < 2:
        message = "found plain, needed are the username and the password that it takes"
        yield place, message, f"write them under {path[-1]}, and under its subscribers"
    if publisher.security != "plain":
        for key in written:
            message = f"found {key} with security {publisher.security}, allowed is it with plain"
            yield (*path, key), message, "write publisher: {security: plain}"


def _check_subscriber(
    path: Path, population: SimulatedSubscribers | RealSubscribers, scenario: Scenario
) -> Iterator[Finding]:
    publishers = scenario.publisher_of(population)
    for where, part in _wholes_and_shares(path, population):
        for n, subscription in enumerate(part.subscriptions or ()):
            place = (*where, "subscriptions", n, "topic")
            if publishers is not None:
                yield from _check_prefix(place, subscription.topic, publishers)
    yield from _check_login(path, population, publishers)


def _check_login(
    path: Path,
    population: SimulatedSubscribers | RealSubscribers,
    publishers: StartedPublishers | None,
) -> Iterator[Finding]:
    """Yields logins of subscribers that do not fit the security of their publisher."""
    written = [key for key in ("username", "password") if getattr(population, key) is not None]
    if len(written) == 1:
        missing = "password" if written == ["username"] else "username"
        yield (*path, written[0]), f"found {written[0]} without {missing}, needed are both", None
    if publishers is None:
        return
    security = publishers.publisher.security
    if security == "curve" and population.subscriber != "libzmq":
        message = f"found {population.subscriber} subscribers at a publisher with security curve"
        hint = "the engine does not encrypt: write subscriber: libzmq"
        yield (*path, "subscriber"), f"{message}, allowed are libzmq", hint
    if security == "plain" and not written:
        message = "found no username at a publisher with security plain, needed is who they are"
        yield path, message, "write username and password"
    if security != "plain" and written:
        message = f"found {written[0]} at a publisher with security {security}"
        hint = "write publisher: {security: plain}"
        yield (*path, written[0]), f"{message}, allowed is it with plain", hint


def _check_prefix(path: Path, prefix: str, publishers: StartedPublishers) -> Iterator[Finding]:
    """Wildcards of MQTT, which are ordinary characters in ZeroMQ: some topic ought to have them."""
    literal = "".join(part for part in Template.parse(prefix).parts if isinstance(part, str))
    topics = "".join(publication.topic for publication in publishers.publications)
    for wildcard in "#+":
        if wildcard in literal and wildcard not in topics:
            message = f"found {describe(prefix)}, allowed is what topics begin with"
            yield path, message, f"ZeroMQ matches prefixes: leave out the {wildcard}"
            return


def _check_rates(path: Path, population: Population, scenario: Scenario) -> Iterator[Finding]:
    """Read rates in percent, and lives by how many clients go a second."""
    if not isinstance(population, Simulated):
        return
    publishers = scenario.publisher_of(population)
    for where, part in _wholes_and_shares(path, population):
        if isinstance(part.read_rate, PartOf):
            place, found = (*where, "read_rate"), f"found {part.read_rate}"
            if publishers is None:
                message = f"{found}, allowed in percent is what a publisher of the run sends"
                yield place, message, "write a rate such as 100/s"
            elif any(each.rate_per_s is None for each in publishers.publications):
                message = f"{found} of an unknown rate, needed is a rate in numbers"
                yield place, message, "the publisher sends at rate max: write a rate such as 100/s"
    for played in shares_of(scenario, str(path[1])).values():
        lifetime = played.population.stay
        if played.whole == path[1] and lifetime is not None and lifetime.rate is not None:
            stay_ns = mean_stay_ns(scenario, played)
            if 0 < stay_ns <= MEAN_NS_MAX:
                continue
            share = () if played.share is None else ("shares", played.share)
            message = f"found {write_rate(lifetime.rate)} of {played.clients:,} clients"
            offline = write_duration(lifetime.offline or 0)
            needed, hint = "lower", f"they would have to be back sooner than after {offline}"
            if stay_ns > 0:
                needed = "higher"
                hint = f"each would stay for more than {write_duration(MEAN_NS_MAX)}"
            yield (*path, *share, "lifetime"), f"{message}, needed is a {needed} rate", hint
            return


def _check_changes(scenario: Scenario) -> Iterator[Finding]:
    """Real sockets are active for the whole run; only the rate of publishers changes."""
    staying = {
        name
        for name, each in scenario.populations.items()
        if isinstance(each, StartedPublishers | RealSubscribers)
    }
    for n, stage in enumerate(scenario.stages):
        if not isinstance(stage.step, Publish):
            continue
        for m, change in enumerate(stage.step.changes):
            if change.population in staying and change.rate is None:
                key = "remove" if change.add is None else "add"
                message = f"found {key} of real sockets, allowed is a change of a rate"
                place = ("stages", n, stage.verb, "changes", m, key)
                yield place, message, "simulated subscribers can join and leave"


def _check_keys_elsewhere(scenario: Scenario) -> Iterator[Finding]:
    """Yields real subscribers on other hosts that get no keys there."""
    for name, population in scenario.populations.items():
        if not isinstance(population, RealSubscribers) or population.hosts is None:
            continue
        publishers = scenario.publisher_of(population)
        if publishers is not None and publishers.publisher.security == "curve":
            message = "found hosts with security curve, allowed with none and plain"
            hint = "leave hosts out: then it is on the controller's host"
            yield ("populations", name, "hosts"), message, hint


def _wholes_and_shares(path: Path, population: Any) -> Iterator[tuple[Path, Any]]:
    yield path, population
    yield from (((*path, "shares", name), each) for name, each in population.differing.items())


COMMAND_VALUES = ("host", "port", "folder")
