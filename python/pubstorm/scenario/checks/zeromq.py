"""What publishers and subscribers of ZeroMQ ask of the keys of their populations: a publisher sends
one flow and nothing else, a subscriber has what a SUB socket has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import TYPE_CHECKING

from pubstorm.scenario.at import Finding
from pubstorm.scenario.command_words import asked_for
from pubstorm.scenario.divisions import divisions_of, mean_stay_ns
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import Lifetime, Population, PopulationShare, Publication
from pubstorm.scenario.roles import publisher_of, publishers_of, speaks_zeromq
from pubstorm.scenario.stages import Publish
from pubstorm.template import Template
from pubstorm.units import PartOf, describe, write_duration, write_rate

if TYPE_CHECKING:
    from pubstorm.scenario.document import Path
    from pubstorm.scenario.zeromq import Publisher

Part = Population | PopulationShare

NOT_OF_PUBLISHERS: Mapping[str, str] = {
    "subscriber": "it says who plays subscribers: write it at a population of them",
    "high_water_mark": "write publisher: {kind: libzmq, high_water_mark: 1000}",
    "at": "each publisher listens itself, and others connect to it",
    "subscriptions": "a PUB socket only sends: give subscribers a population of their own",
    "shares": "give publishers that differ a population each",
    "lifetime": "a publisher is there for the whole run",
    "read_rate": "a PUB socket only sends",
    "tcp_acks": "a PUB socket only sends",
    "rows": "its topics have {n} and ranges",
}
"""Keys that a population of publishers does not have, and what to do instead."""
NOT_OF_ZEROMQ: Mapping[str, str] = {
    "will": "wills are MQTT's",
    "end": "a socket of ZeroMQ always closes in order",
    "tls": "ZeroMQ has security: curve at the publisher",
    "session": "sessions are MQTT's: what a subscriber missed is gone",
    "bridge": "bridges are MQTT's",
    "client_id": "a socket of ZeroMQ has no name of its own",
}
"""Keys that no population that speaks ZeroMQ has."""
NOT_OF_SOCKETS: Mapping[str, str] = {
    "read_rate": "leave subscriber out: simulated ones can be slow",
    "tcp_acks": "leave subscriber out: libzmq has no such option",
    "lifetime": "leave subscriber out: simulated ones come and go",
    "shares": "put the clients that differ into a population of their own",
    "keep_alive": "libzmq sends no heartbeats unless it is told to; simulated ones do",
}
"""Keys that real sockets do not have."""
NO_SCHEDULE: Mapping[str, str] = {
    "jitter": "a publisher sends on an even schedule, or in bursts",
    "spread": "a publisher sends on an even schedule, or in bursts",
    "window": "PUB has no feedback: what is due is sent",
    "retain": "ZeroMQ keeps no message",
    "qos": "PUB and SUB know no acknowledgement",
}
"""Keys that a publication of a publisher does not have."""


def check_zeromq(scenario: Scenario) -> Iterator[Finding]:
    """What does not fit together."""
    yield from _check_target(scenario)
    yield from _check_ports(scenario)
    for name, population in scenario.populations.items():
        path: Path = ("populations", name)
        yield from _check_rates(path, population, scenario)
        if not speaks_zeromq(scenario, population):
            yield from _check_mqtt(path, population, scenario)
            continue
        yield from _check_unfit(path, population, NOT_OF_ZEROMQ, "in ZeroMQ")
        for share, each in population.shares.items():
            yield from _check_unfit((*path, "shares", share), each, NOT_OF_ZEROMQ, "in ZeroMQ")
        if population.publisher is not None:
            yield from _check_publisher(path, population, population.publisher)
        else:
            yield from _check_subscriber(path, population, scenario)
    yield from _check_changes(scenario)


def _check_target(scenario: Scenario) -> Iterator[Finding]:
    """That a target is one for somebody, where the run starts publishers."""
    publishers = publishers_of(scenario)
    others = [each for name, each in scenario.populations.items() if name not in publishers]
    at_publishers = [publisher_of(scenario, each) is not None for each in others]
    if scenario.target and publishers and not scenario.topology.bridges and all(at_publishers):
        message = "found a target that no population connects to, allowed is one with clients"
        yield ("target",), message, "write at: target at its clients, or leave target out"


def _check_mqtt(path: Path, population: Population, scenario: Scenario) -> Iterator[Finding]:
    """Words of ZeroMQ at a population that has no publisher of it."""
    names = list(publishers_of(scenario))
    hint = f"write at: {names[0]}" if names else "give a population the key publisher"
    for key in ("subscriber", "high_water_mark"):
        if key in population.model_fields_set:
            message = f"found {key} at a population that speaks MQTT, allowed is it in ZeroMQ"
            yield (*path, key), message, hint
    if population.at is None and not scenario.target and not scenario.topology.brokers:
        message = "found no at, needed is the population of publishers that it connects to"
        yield path, message, hint


def _check_unfit(path: Path, part: Part, keys: Mapping[str, str], where: str) -> Iterator[Finding]:
    for key, hint in keys.items():
        if key in part.model_fields_set and getattr(part, key) not in (None, (), {}):
            yield (*path, key), f"found {key}, which has no meaning {where}", hint


def _check_publisher(path: Path, population: Population, publisher: Publisher) -> Iterator[Finding]:
    yield from _check_unfit(path, population, NOT_OF_PUBLISHERS, "at a publisher")
    count = len(population.publications)
    if count != 1:
        message = f"found {count or 'no'} publications, needed is one for a publisher"
        hint = 'write publications: [{topic: "", size: 32B, rate: 1k/s}]'
        if count:
            hint = "a range in its topic makes many topics of it; or write more populations"
        yield (*path, "publications"), message, hint
    for n, publication in enumerate(population.publications):
        yield from _check_publication((*path, "publications", n), publication)
    if publisher.command and publisher.kind != "command":
        message = f"found command with kind {publisher.kind}, allowed with command alone"
        yield (*path, "publisher", "command"), message, None
    if publisher.kind == "command":
        yield from _check_command((*path, "publisher"), publisher)
    yield from _check_security(path, population, publisher)


def _check_publication(path: Path, publication: Publication) -> Iterator[Finding]:
    for key, hint in NO_SCHEDULE.items():
        default = Publication.model_fields[key].default
        if key in publication.model_fields_set and getattr(publication, key) != default:
            yield (*path, key), f"found {key}, which has no meaning at a publisher", hint


def _check_command(path: Path, publisher: Publisher) -> Iterator[Finding]:
    place = (*path, "command")
    if not publisher.command:
        hint = 'write command: [PROGRAM, --port, "{port}"]'
        yield path, "found kind command without command, needed is the program", hint
    for number, word in enumerate(publisher.command):
        try:
            values = asked_for(word)
        except ValueError:
            values = [word]
        wrong = [value for value in values if value not in COMMAND_VALUES]
        if wrong:
            allowed = "{host}, {port} and {folder}"
            message = f"found {describe(word)}, allowed are {allowed}"
            yield (*place, number), message, "write {{ and }} for braces"


def _check_security(path: Path, population: Population, publisher: Publisher) -> Iterator[Finding]:
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


def _check_subscriber(path: Path, population: Population, scenario: Scenario) -> Iterator[Finding]:
    publishers = publisher_of(scenario, population)
    for where, part in _parts(path, population):
        if part.publications:
            message = "found publications at subscribers of ZeroMQ, allowed are subscriptions"
            yield (*where, "publications"), message, "a SUB socket only receives"
        if isinstance(part, PopulationShare) and part.qos:
            yield (*where, "qos"), f"found QoS {part.qos}, allowed is 0", NO_SCHEDULE["qos"]
        for n, subscription in enumerate(part.subscriptions or ()):
            place = (*where, "subscriptions", n)
            if subscription.qos:
                message = f"found QoS {subscription.qos}, allowed is 0"
                yield (*place, "qos"), message, NO_SCHEDULE["qos"]
            if publishers is not None:
                yield from _check_prefix((*place, "topic"), subscription.topic, publishers)
    if population.subscriber == "simulated":
        if population.high_water_mark is not None:
            message = "found high_water_mark at simulated subscribers, which queue nothing"
            hint = "write subscriber: libzmq for real sockets; that of the publisher is its own"
            yield (*path, "high_water_mark"), message, hint
    else:
        yield from _check_unfit(path, population, NOT_OF_SOCKETS, "at real sockets")
    yield from _check_login(path, population, publishers)


def _check_login(
    path: Path, population: Population, publishers: Population | None
) -> Iterator[Finding]:
    """That subscribers can say who they are in the words of their publisher."""
    written = [key for key in ("username", "password") if getattr(population, key) is not None]
    if len(written) == 1:
        missing = "password" if written == ["username"] else "username"
        yield (*path, written[0]), f"found {written[0]} without {missing}, needed are both", None
    if publishers is None or publishers.publisher is None:
        return
    security = publishers.publisher.security
    if security == "curve" and population.subscriber != "pyzmq":
        message = f"found {population.subscriber} subscribers at a publisher with security curve"
        hint = "neither the engine nor the libzmq in Pubstorm has the ciphers: subscriber: pyzmq"
        yield (*path, "subscriber"), f"{message}, allowed are pyzmq", hint
    if security == "plain" and not written:
        message = "found no username at a publisher with security plain, needed is who they are"
        yield path, message, "write username and password"
    if security != "plain" and written:
        message = f"found {written[0]} at a publisher with security {security}"
        hint = "write publisher: {security: plain}"
        yield (*path, written[0]), f"{message}, allowed is it with plain", hint


def _check_prefix(path: Path, prefix: str, publishers: Population) -> Iterator[Finding]:
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
    publishers = publisher_of(scenario, population)
    for where, part in _parts(path, population):
        if isinstance(part.read_rate, PartOf):
            place, found = (*where, "read_rate"), f"found {part.read_rate}"
            if publishers is None:
                message = f"{found}, allowed in percent is what a publisher of the run sends"
                yield place, message, "write a rate such as 100/s"
            elif any(each.rate_per_s is None for each in publishers.publications):
                message = f"{found} of a rate that nobody knows, needed is a rate in numbers"
                yield place, message, "the publisher sends at rate max: write a rate such as 100/s"
        if part.lifetime is not None:
            yield from _check_lifetime((*where, "lifetime"), part.lifetime)
    for division in divisions_of(scenario).values():
        lifetime = division.population.lifetime
        if division.whole == path[1] and lifetime is not None and lifetime.rate is not None:
            stay_ns = mean_stay_ns(scenario, division)
            if stay_ns <= 0:
                share = () if division.share is None else ("shares", division.share)
                message = f"found {write_rate(lifetime.rate)} of {division.clients:,} clients"
                again = write_duration(lifetime.again or 0)
                hint = f"they would have to be back sooner than after {again}"
                yield (*path, *share, "lifetime"), f"{message}, needed is a lower rate", hint
                return


def _check_lifetime(path: Path, lifetime: Lifetime) -> Iterator[Finding]:
    given = [key for key, value in (("from", lifetime.from_), ("rate", lifetime.rate)) if value]
    if len(given) != 1:
        found = " and ".join(given) or "neither from nor rate"
        yield path, f"found {found}, needed is one of from and rate", None
    elif lifetime.rate is not None and lifetime.to is not None:
        message = "found to with rate, allowed is to with from"
        yield (*path, "to"), message, "the rate says how long they stay"


def _check_changes(scenario: Scenario) -> Iterator[Finding]:
    """Real sockets are there from the beginning to the end; only the rate of publishers changes."""
    staying = {
        name
        for name, each in scenario.populations.items()
        if each.publisher is not None or each.subscriber != "simulated"
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


def _check_ports(scenario: Scenario) -> Iterator[Finding]:
    """Ports that publishers are given: each its own, and none that a broker has."""
    ranges: list[tuple[Path, str, range]] = [
        ((), name, range(broker.port, broker.port + broker.count))
        for name, broker in scenario.topology.brokers.items()
        if broker.port is not None
    ]
    for name, population in publishers_of(scenario).items():
        publisher = population.publisher
        if publisher is not None and publisher.port is not None:
            place: Path = ("populations", name, "publisher", "port")
            ports = range(publisher.port, publisher.port + population.clients)
            ranges.append((place, name, ports))
    for path, _, ports in ranges:
        if path and ports.stop > PORTS_END:
            message = f"found {ports.start} for {len(ports)} publishers"
            yield path, f"{message}, allowed is at most {PORTS_END - len(ports)}", FREE_HINT
    for (_, one_name, one), (path, _, other) in combinations(ranges, 2):
        both = range(max(one.start, other.start), min(one.stop, other.stop))
        if path and both:
            message = f"found port {both.start} also for {one_name}, allowed is one for each"
            yield path, message, FREE_HINT


def _parts(path: Path, population: Population) -> Iterator[tuple[Path, Part]]:
    """A population and its shares, each with its path."""
    yield path, population
    yield from (((*path, "shares", name), share) for name, share in population.shares.items())


COMMAND_VALUES = ("host", "port", "folder")
PORTS_END = 65_536
FREE_HINT = "leave port out: then free ones are taken"
