"""Checks the keys of brokers, and the clients against the kinds of their brokers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pubstorm.contract.target import NatsTarget
from pubstorm.quantities import describe
from pubstorm.scenario.command_words import COMMAND_VALUES, WEBSOCKET_PORT, asked_for
from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import TARGET, MqttClients, MqttDifference, NatsClients
from pubstorm.scenario.topology import Broker, Command, InstalledBroker, Rabbitmq

CLUSTER_MIN, CLUSTER_MAX = 2, 32


def check_brokers(scenario: Scenario) -> Iterator[Finding]:
    """Yields what does not fit together."""
    for name, broker in scenario.topology.brokers.items():
        path: Path = ("topology", "brokers", name)
        if isinstance(broker, Command):
            yield from _check_command((*path, "command"), broker)
        if isinstance(broker, Rabbitmq):
            yield from _check_rabbitmq(path, broker, scenario)
        if isinstance(broker, InstalledBroker):
            for key, message, hint in broker.unfit_settings():
                yield (*path, "settings", key), message, hint
    for name, population in scenario.populations.items():
        path = ("populations", name)
        at = population.attached_to
        if at is not None and at.shift and at.choice == "random":
            message = "found shift with choice random, allowed is shift with choice turn"
            yield (*path, "at", "shift"), message, "clients at random targets have no neighbours"
        brokers = [scenario.topology.brokers[group] for group in _at(scenario, name)]
        if isinstance(population, NatsClients):
            yield from _check_nats(path, population, brokers, scenario)
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


def _check_nats(
    path: Path, population: NatsClients, brokers: Iterable[Broker], scenario: Scenario
) -> Iterator[Finding]:
    """Yields clients of NATS at what speaks no NATS, and a token without the key that signs."""
    others = {f"kind {broker.kind}" for broker in brokers if broker.kind != "nats"}
    if population.attached_to is None or population.attached_to.brokers == TARGET:
        targets = scenario.target
        others |= {str(each) for each in targets if not isinstance(each, NatsTarget)}
    if others:
        message = f"found clients of NATS at {min(others)}"
        hint = "write at: and a broker of kind nats, or target: nats://HOST"
        yield path, f"{message}, allowed are brokers of kind nats and nats://HOST", hint
    if population.jwt is not None and population.nkey is None:
        yield (*path, "jwt"), "found jwt without nkey, needed is the key that signs", None


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
    if scenario.target:
        others.append("target")
    if others and not scenario.topology.joined:
        message = f"found a cluster beside {' and '.join(others)}, allowed is one alone"
        hint = "with topology.joined: true all of them count as one cluster"
        yield (*path, "cluster"), message, hint


def _check_command(path: Path, broker: Command) -> Iterator[Finding]:
    own = (WEBSOCKET_PORT,) if broker.serves_websocket else ()
    wrong = [*check_command(path, broker.command, (*COMMAND_VALUES, *own))]
    yield from wrong
    values = set[str]() if wrong else {each for word in broker.command for each in asked_for(word)}
    if not wrong and "port" not in values and (broker.port is None or broker.count > 1):
        message = "found a command without {port}, needed is {port}, or port and a count of 1"
        yield path, message, "the program has to listen on the port that the run chooses"
    if not wrong and own and WEBSOCKET_PORT not in values:
        message = f"found transport: websocket and a command without {{{WEBSOCKET_PORT}}}"
        yield path, message, "the program has to listen there too, for WebSocket"


def check_command(path: Path, command: Sequence[str], allowed: Sequence[str]) -> Iterator[Finding]:
    """Yields the first word of a command that is wrong, by the values that it may ask for."""
    if not command:
        hint = 'write command: [PROGRAM, --port, "{port}"]'
        yield path[:-1], "found kind command without command, needed is the program", hint
    values = [f"{{{value}}}" for value in allowed]
    for number, word in enumerate(command):
        try:
            wrong = [f"{{{value}}}" for value in asked_for(word) if value not in allowed]
        except ValueError:
            wrong = [word]
        if wrong:
            message = f"found {describe(wrong[0])}, allowed are {', '.join(values[:-1])}"
            yield (*path, number), f"{message} and {values[-1]}", "write {{ and }} for braces"
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
