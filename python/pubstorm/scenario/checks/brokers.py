"""Checks what surrounds the clients: brokers and their kinds, bridges with their networks, services
and the users written to them. The host checks that keys and programs exist, and that it can make
networks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from pubstorm.contract import split_member
from pubstorm.contract.target import TARGET
from pubstorm.contract.template import Template
from pubstorm.quantities import describe
from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.expressions import unknown
from pubstorm.scenario.faults import BRIDGE_FAULTS, Fault, victims_of
from pubstorm.scenario.fields import BROKER_VALUES, WEBSOCKET_PORT, asked_for
from pubstorm.scenario.kinds import MqttClients, MqttDifference
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import Attachment, Population
from pubstorm.scenario.services import Program
from pubstorm.scenario.topology import (
    Bridge,
    Broker,
    Command,
    InstalledBroker,
    Mosquitto,
    Rabbitmq,
    kinds_that_speak,
)

CLUSTER_MIN, CLUSTER_MAX = 2, 32


def check_brokers(scenario: Scenario) -> Iterator[Finding]:
    """Yields what does not fit together."""
    for name, broker in scenario.topology.brokers.items():
        path: Path = ("topology", "brokers", name)
        yield from check_broker(path, broker)
        if isinstance(broker, Rabbitmq):
            yield from _check_rabbitmq(path, broker, scenario)
    for name, population in scenario.populations.items():
        path = ("populations", name)
        at = population.attached_to
        if at is not None and at.shift and at.choice == "random":
            message = "found shift with choice random, allowed is shift with choice turn"
            yield (*path, "at", "shift"), message, "clients at random targets have no neighbours"
        brokers = [scenario.topology.brokers[group] for group in _at(scenario, name)]
        if population.can.has_broker:
            yield from _check_place(path, population, brokers, scenario)
        yield from _check_stores(path, population, scenario)
        if not isinstance(population, MqttClients):
            continue
        lowest = min(brokers, key=lambda broker: broker.QOS_MAX, default=None)
        if lowest is not None:
            yield from _check_qos(path, population, lowest)
            for share, each in population.shares.items():
                yield from _check_qos((*path, "shares", share), each, lowest)
        strangers = sorted(broker.kind for broker in brokers if broker.REFUSES_BRIDGES)
        if population.bridge and strangers:
            message = f"found bridge with kind {strangers[0]}, allowed with mosquitto"
            yield (*path, "bridge"), message, "other brokers refuse a client that says it is one"
    for name, bridge in scenario.topology.bridges.items():
        main = scenario.topology.brokers.get(bridge.to)
        if main is not None:
            path = ("topology", "bridges", name, "topics")
            found = [((*path, n), each.qos) for n, each in enumerate(bridge.topics)]
            yield from _too_high(found, main)


def check_broker(path: Path, broker: Broker) -> Iterator[Finding]:
    """Yields what does not fit together in a broker alone."""
    if isinstance(broker, Command):
        yield from _check_command(path, broker)
    if isinstance(broker, InstalledBroker):
        for key, message, hint in broker.unfit_settings():
            yield (*path, "settings", key), message, hint


def _check_place(
    path: Path, population: Population, brokers: Iterable[Broker], scenario: Scenario
) -> Iterator[Finding]:
    """Yields clients at brokers and targets that do not speak their protocol, and at targets with
    several virtual hosts."""
    can, targets = population.can, scenario.targets_of(population)
    others = {f"kind {broker.kind}" for broker in brokers if can.title not in broker.speaks}
    others |= {str(target) for target in targets if can.title != target.can.title}
    hosts = {getattr(target, "virtual_host", ""): target.name for target in targets}
    if len(hosts) > 1:
        message = f"found targets with the virtual hosts {' and '.join(hosts)}, and no at"
        yield path, f"{message}, needed is one of them", f"write at: {min(hosts.values())}"
    if others:
        kinds, address = " and ".join(kinds_that_speak(can.title)), f"{can.scheme}HOST"
        message = f"found clients of {can.title} at {min(others)}"
        hint = f"write at: and a broker of kind {kinds}, or target: {address}"
        yield path, f"{message}, allowed are brokers of kind {kinds} and {address}", hint


def _check_stores(path: Path, population: Population, scenario: Scenario) -> Iterator[Finding]:
    """Yields what does not go with the rest of the run, and streams and exchanges that no broker of
    the run has."""
    around, topology = scenario.around(population), scenario.topology
    for place, message, hint in population.rules_within(around):
        yield (*path, *place), message, hint
    if around.is_at_target:
        return
    known = {"stream": [*topology.streams], "exchange": [*topology.exchanges]}
    for place, noun, name in population.named_stores():
        if name not in known[noun]:
            yield (*path, *place), *unknown(noun, name, known[noun])


def _check_rabbitmq(path: Path, broker: Rabbitmq, scenario: Scenario) -> Iterator[Finding]:
    if broker.passwords and broker.federation is not None:
        message = "found federation with passwords, allowed is one of them"
        yield (*path, "passwords"), message, "customers log in as guest"
    if broker.cluster:
        yield from _check_cluster(path, broker, scenario)


def _check_cluster(path: Path, broker: Rabbitmq, scenario: Scenario) -> Iterator[Finding]:
    if not CLUSTER_MIN <= broker.count <= CLUSTER_MAX:
        message = f"found a cluster of {broker.count}"
        yield (
            (*path, "cluster"),
            f"{message}, allowed are {CLUSTER_MIN} to {CLUSTER_MAX} nodes",
            None,
        )
    if broker.federation is not None:
        message = "found federation in a cluster, allowed is one of them"
        yield (*path, "federation"), message, "its links would be on any of the nodes"
    others = [name for name in scenario.topology.brokers if name != path[-1]]
    others += scenario.target_sizes
    if others and not scenario.topology.joined:
        message = f"found a cluster beside {' and '.join(others)}, allowed is one alone"
        hint = "with topology.joined: true all of them count as one cluster"
        yield (*path, "cluster"), message, hint


def _check_command(path: Path, broker: Command) -> Iterator[Finding]:
    wrong = [*check_command((*path, "command"), broker.command, BROKER_VALUES)]
    for key in ("files", "environment"):
        for name, text in getattr(broker, key).items():
            wrong += _check_words((*path, key, name), text, BROKER_VALUES)
    if broker.version:
        wrong += check_command((*path, "version"), broker.version, BROKER_VALUES)
    yield from wrong
    values = set[str]() if wrong else {each for text in broker.texts for each in asked_for(text)}
    if not wrong and "port" not in values and (broker.port is None or broker.count > 1):
        message = "found a command without {port}, needed is {port}, or port and a count of 1"
        hint = "the program has to listen on the port that the run chooses"
        yield (*path, "command"), message, hint
    if not wrong and broker.serves_websocket and WEBSOCKET_PORT not in values:
        message = f"found transport: websocket and a command without {{{WEBSOCKET_PORT}}}"
        yield (*path, "command"), message, "the program has to listen there too, for WebSocket"


def _check_words(path: Path, text: str, allowed: Sequence[str]) -> Iterator[Finding]:
    """Yields a text that asks for a value that it cannot have."""
    try:
        wrong = [f"{{{value}}}" for value in asked_for(text) if value not in allowed]
    except ValueError:
        wrong = [text]
    if wrong:
        values = [f"{{{value}}}" for value in allowed]
        message = f"found {describe(wrong[0])}, allowed are {', '.join(values[:-1])}"
        yield path, f"{message} and {values[-1]}", "write {{ and }} for braces"


def check_command(path: Path, command: Sequence[str], allowed: Sequence[str]) -> Iterator[Finding]:
    """Yields the first word of a command that is wrong, by the values that it may ask for."""
    if not command:
        hint = 'write command: [PROGRAM, --port, "{port}"]'
        yield path[:-1], "found kind command without command, needed is the program", hint
    for number, word in enumerate(command):
        wrong = [*_check_words((*path, number), word, allowed)]
        yield from wrong
        if wrong:
            return


def _at(scenario: Scenario, name: str) -> Iterator[str]:
    """Groups of brokers that clients of a population may connect to."""
    at = scenario.populations[name].attached_to
    for group in scenario.topology.brokers:
        if at is None or at.brokers == group:
            yield group


def _check_qos(
    path: Path, population: MqttClients | MqttDifference, broker: Broker
) -> Iterator[Finding]:
    if isinstance(population, MqttDifference) and population.qos is not None:
        yield from _too_high([(path, population.qos)], broker)
    for key, entries in (
        ("subscriptions", [entry.qos for entry in population.subscriptions or ()]),
        ("publications", [entry.qos for entry in population.publications or ()]),
    ):
        found = [((*path, key, n), qos) for n, qos in enumerate(entries)]
        yield from _too_high(found, broker)
    if population.will is not None:
        yield from _too_high([((*path, "will"), population.will.qos)], broker)


def _too_high(found: Iterable[tuple[Path, int]], broker: Broker) -> Iterator[Finding]:
    for path, qos in found:
        if qos > broker.QOS_MAX:
            allowed = " and ".join(map(str, range(broker.QOS_MAX + 1)))
            message = f"found QoS {qos} with kind {broker.kind}, allowed are {allowed}"
            hint = f"such a broker disconnects a client that publishes with QoS {qos}"
            yield (*path, "qos"), message, hint


NOT_OF_BRIDGES = (
    *("server_name", "ciphers", "suites", "groups", "alpn"),
    *("passphrase", "reread", "resume", "early_data", "key_log"),
)
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
    targets = scenario.targets_called(bridge.to)
    if bridge.to == TARGET or targets:
        count = len(targets)
        if count != 1:
            message = f"found a bridge to {bridge.to} and {count or 'no'} targets, needed is one"
            yield (*path, "to"), message, f"write {bridge.to}: mqtt://HOST:PORT"
        return
    main = brokers.get(bridge.to)
    if main is None:
        given = scenario.target_sizes or [TARGET]
        yield (*path, "to"), *unknown("broker", bridge.to, [*brokers, *given])
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
    targets = scenario.targets_called(bridge.to)
    for target in targets:
        others = {"WebSocket": target.websocket is not None, "QUIC": target.quic}
        others |= {target.can.title: not target.speaks_mqtt}
        for noun in (noun for noun, is_so in others.items() if is_so):
            message = f"found a bridge to a target over {noun}, allowed is one over TCP"
            yield (*path, "to"), message, "write mqtt:// or mqtts://: mosquitto's bridges use TCP"
    if bridge.tls is None:
        return
    place = (*path, "tls")
    if bridge.to != TARGET and not targets:
        message = "found tls for a broker that the run starts, allowed is tls to target"
        yield place, message, f"set tls of {bridge.to} in topology.brokers: keys are made"
        return
    if targets and not targets[0].tls:
        yield place, "found tls, and a target that is not under TLS", "write mqtts://"
    for key in NOT_OF_BRIDGES:
        if getattr(bridge.tls, key):
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
    sizes = {**scenario.target_sizes, **sizes}
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


def check_networks(scenario: Scenario) -> Iterator[Finding]:
    """Yields what does not fit together."""
    for name, bridge in scenario.topology.bridges.items():
        if bridge.network is None:
            continue
        path = ("topology", "bridges", name, "network")
        yield from _check_reached(path, name, scenario)
        if scenario.sources is not None:
            message = "found sources and a network, which they cannot reach, allowed is one of them"
            yield ("sources",), message, "write sources: auto"
    for n, stage in enumerate(scenario.stages):
        for number, fault in enumerate(stage.faults):
            place = ("stages", n, stage.verb, "faults", number)
            yield from _check_fault(place, fault, scenario)


def _check_reached(path: Path, name: str, scenario: Scenario) -> Iterator[Finding]:
    """The brokers at both ends: who can be reached from inside the network."""
    topology = scenario.topology
    bridge = topology.bridges[name]
    main = topology.brokers.get(bridge.to)
    if bridge.to == TARGET or scenario.targets_called(bridge.to):
        hint = "leave network out, or put the delay on the way to that broker with tc there"
        message = "found a network whose link would lead to target, allowed is a broker of the run"
        yield path, message, hint
    elif main is not None and main.kind != "mosquitto":
        message = f"found a network whose link leads to a broker of kind {main.kind}"
        yield path, f"{message}, allowed is mosquitto", "only it listens at a second address"
    for other_name, other in topology.bridges.items():
        if other_name != name and other.from_ == bridge.from_:
            message = f"found a network for {bridge.from_}, and another bridge from it"
            hint = f"{describe(other_name)} would have to leave the network: give it brokers"
            yield path, f"{message}, allowed is one bridge", f"{hint} of its own"


def _check_fault(path: Path, fault: Fault, scenario: Scenario) -> Iterator[Finding]:
    """Links that are unplugged, and bridges that cannot be cut in another way."""
    if fault.kind not in BRIDGE_FAULTS:
        return
    try:
        name, _ = victims_of(scenario, fault)
    except KeyError:
        return
    if scenario.topology.bridges[name].network is None:
        if fault.how == "unplug":
            message = f"found unplug for bridge {name}, which has no network"
            hint = f"add network: {{}} to topology.bridges.{name}, or write how: stall"
            yield (*path, "how"), f"{message}, allowed are close and stall", hint
    elif fault.kind == "delay":
        message = f"found delay for bridge {name}, which has a network"
        hint = "its link has a delay for the whole run: network: {delay: ...}"
        yield (*path, "delay"), f"{message}, allowed is cut with how: unplug", hint
    elif fault.how != "unplug":
        message = f"found {fault.how} for bridge {name}, which has a network"
        yield (*path, "how"), f"{message}, allowed is how: unplug", None
    elif fault.count is not None or name != fault.victims:
        found = f"a part of {name}" if fault.count is None else str(fault.count)
        message = f"found {found}, allowed is unplug for all: bridges of {name} share one link"
        yield (*path, "cut" if fault.count is None else "count"), message, None


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
        for n, population in enumerate(service.seeded_populations or ()):
            if population not in scenario.populations:
                names = list(scenario.populations)
                yield (*path, "seed", n), *unknown("population", population, names)
        if topology.is_seeded(name):
            yield from _check_users(path, scenario, service.users)
        if isinstance(service, Program):
            yield from _check_program(path, service, scenario)


def _check_program(path: Path, program: Program, scenario: Scenario) -> Iterator[Finding]:
    """Yields texts of a program that ask for what no broker has."""
    allowed = ["folder"]
    brokers = scenario.topology.brokers.items()
    sizes = {group: (broker.count, broker.other_ports) for group, broker in brokers}
    sizes |= {name: (count, ()) for name, count in scenario.target_sizes.items()}
    for group, (count, others) in sizes.items():
        members = [f"{group}-{number}" for number in range(count)]
        names = [group] if count == 1 else members
        allowed += [f"{name}.{key}" for name in names for key in ("host", "port", *others)]
    yield from check_command((*path, "command"), program.command, allowed)
    for name, text in program.environment.items():
        yield from _check_words((*path, "environment", name), text, allowed)


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
