"""Checks bridges against the brokers, one another and the populations. The host checks that keys
exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from pubstorm.contract.template import Template
from pubstorm.quantities import describe
from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.expressions import unknown
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import TARGET, Attachment
from pubstorm.scenario.topology import Bridge, Mosquitto

NOT_OF_BRIDGES = ("server_name", "ciphers")
"""Keys of `tls` that mosquitto's bridges have no word for."""


def check_bridges(scenario: Scenario) -> Iterator[Finding]:
    """Yields what does not fit together."""
    bridges = scenario.topology.bridges
    for name, bridge in bridges.items():
        path: Path = ("topology", "bridges", name)
        yield from _check_ends(path, bridge, scenario)
        yield from _check_client_id(path, bridge, scenario)
        yield from _check_loops(path, bridge, scenario)
        yield from _check_tls(path, bridge, scenario)
    yield from _check_chains(scenario)
    yield from _check_ids_of_two(scenario)
    yield from _check_populations(scenario)
    if bridges and scenario.topology.joined:
        hint = "bridges say themselves what crosses"
        yield ("topology", "joined"), "found joined and bridges, allowed is one of them", hint


def _check_ends(path: Path, bridge: Bridge, scenario: Scenario) -> Iterator[Finding]:
    brokers = scenario.topology.brokers
    small = brokers.get(bridge.from_)
    if small is None:
        yield (*path, "from"), *unknown("broker", bridge.from_, list(brokers))
    elif not isinstance(small, Mosquitto):
        message = f"found bridges from {bridge.from_} of kind {small.kind}, allowed is mosquitto"
        yield (*path, "from"), message, "the main broker may be of any kind"
    if bridge.to == TARGET:
        count = len(scenario.target)
        if count != 1:
            message = f"found a bridge to target and {count or 'no'} targets, needed is one"
            yield (*path, "to"), message, "write target: mqtt://HOST:PORT"
        return
    main = brokers.get(bridge.to)
    if main is None:
        yield (*path, "to"), *unknown("broker", bridge.to, [*brokers, TARGET])
    elif bridge.to == bridge.from_:
        message = f"found bridges from {bridge.from_} to itself, allowed is another broker"
        yield (*path, "to"), message, None
    elif main.count != 1:
        message = f"found bridges to {bridge.to}, which stands for {main.count} brokers"
        yield (*path, "to"), f"{message}, allowed is one main broker", None


def _check_client_id(path: Path, bridge: Bridge, scenario: Scenario) -> Iterator[Finding]:
    small = scenario.topology.brokers.get(bridge.from_, Mosquitto(kind="mosquitto"))
    if bridge.client_id is not None:
        template = Template.parse(bridge.client_id)
        if len({template.text(number) for number in range(small.count)}) < small.count:
            message = f"found the same client id for some of {small.count} bridges"
            hint = "a broker disconnects the first when the second comes: use {n}"
            yield (*path, "client_id"), f"{message}, allowed is one each", hint
    if bridge.password is not None and bridge.username is None and not _wants(bridge, scenario):
        message = "found a password without a username, needed are both or neither"
        yield (*path, "password"), message, None


def _wants(bridge: Bridge, scenario: Scenario) -> bool:
    """Returns True if the main broker wants a password."""
    main = scenario.topology.brokers.get(bridge.to)
    return main is not None and main.has_passwords


def _check_loops(path: Path, bridge: Bridge, scenario: Scenario) -> Iterator[Finding]:
    """Yields topics that a main broker of another kind would send back."""
    main = scenario.topology.brokers.get(bridge.to)
    if main is None or main.KNOWS_BRIDGES:
        return
    for number, topic in enumerate(bridge.topics):
        if topic.direction == "both":
            message = f"found both to a main broker of kind {main.kind}, allowed are out and in"
            hint = "it sends a message back over the bridge by which it came"
            yield (*path, "topics", number, "direction"), message, hint


def _check_tls(path: Path, bridge: Bridge, scenario: Scenario) -> Iterator[Finding]:
    if bridge.to == TARGET and scenario.target and scenario.target[0].websocket is not None:
        message = "found a bridge to a target over WebSocket, allowed is one over TCP"
        yield (*path, "to"), message, "write mqtt:// or mqtts://: mosquitto's bridges use TCP"
    if bridge.tls is None:
        return
    place = (*path, "tls")
    if bridge.to != TARGET:
        message = "found tls for a broker that the run starts, allowed is tls to target"
        yield place, message, f"set tls of {bridge.to} in topology.brokers: keys are made"
        return
    if scenario.target and not scenario.target[0].tls:
        yield place, "found tls, and a target that is not under TLS", "write mqtts://"
    for key in NOT_OF_BRIDGES:
        if getattr(bridge.tls, key) is not None:
            message = f"found {key}, which mosquitto's bridges have no setting for"
            yield (*place, key), message, "leave it out"


def _check_chains(scenario: Scenario) -> Iterator[Finding]:
    mains = {bridge.to for bridge in scenario.topology.bridges.values()}
    for name, bridge in scenario.topology.bridges.items():
        if bridge.from_ in mains and bridge.from_ != bridge.to:
            message = f"found bridges from {bridge.from_}, to which other bridges lead"
            hint = "a broker is a main one or a small one"
            yield ("topology", "bridges", name, "from"), f"{message}, allowed is one step", hint


def _check_ids_of_two(scenario: Scenario) -> Iterator[Finding]:
    """Yields bridges to one main broker that have the same client identifier."""
    brokers = scenario.topology.brokers

    def ids(name: str, bridge: Bridge) -> set[str]:
        template = Template.parse(bridge.client_id or f"{name}-{{n}}")
        count = brokers[bridge.from_].count if bridge.from_ in brokers else 0
        return {template.text(number) for number in range(count)}

    for (name, one), (other_name, other) in combinations(scenario.topology.bridges.items(), 2):
        twice = ids(name, one) & ids(other_name, other) if one.to == other.to else None
        if twice:
            message = f"found the client id {describe(min(twice))} of bridge {name} again"
            path = ("topology", "bridges", other_name, "client_id")
            yield path, f"{message}, allowed is one bridge each", "set client_id"


def _check_populations(scenario: Scenario) -> Iterator[Finding]:
    topology = scenario.topology
    sizes = {name: broker.count for name, broker in topology.brokers.items()}
    if scenario.target:
        sizes = {TARGET: len(scenario.target), **sizes}
    sizes |= {name: each.clients for name, each in scenario.publishers.items()}
    for name, population in scenario.populations.items():
        path = ("populations", name)
        if population.attached_to is not None:
            yield from _check_attachment((*path, "at"), population.attached_to, sizes)
        elif topology.bridges and not population.is_publisher:
            message = "found no at, needed with bridges is where the clients connect"
            yield path, message, f"write at: and one of {', '.join(sizes)}"


def _check_attachment(path: Path, at: Attachment, sizes: dict[str, int]) -> Iterator[Finding]:
    size = sizes.get(at.brokers)
    if size is None:
        return
    if at.first >= size:
        message = f"found first {at.first}, allowed are 0 to {size - 1}"
        yield (*path, "first"), message, f"there are {size} of {at.brokers}"
    elif at.count is not None and at.first + at.count > size:
        message = f"found {at.count} from number {at.first} on, allowed are {size - at.first}"
        yield (*path, "count"), message, f"there are {size} of {at.brokers}"
