"""What the keys of a broker ask of its kind, and what a kind asks of the clients. It knows no
program and starts nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

from pubstorm.scenario.command_words import COMMAND_VALUES, asked_for
from pubstorm.scenario.document import Path
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import Population, PopulationShare
from pubstorm.scenario.topology import KNOW_BRIDGES, REFUSE_BRIDGES, Broker
from pubstorm.units import describe

if TYPE_CHECKING:
    from pubstorm.scenario.at import Finding

CLUSTER_MIN, CLUSTER_MAX = 2, 32
ONLY_FOR: Mapping[str, tuple[str, ...]] = {
    "tls": ("mosquitto",),
    "passwords": ("mosquitto", "rabbitmq"),
    "acl": ("mosquitto",),
    "auth": ("embedded",),
    "plugins": ("rabbitmq",),
    "federation": ("rabbitmq",),
    "cluster": ("rabbitmq",),
    "command": ("command",),
    "binary": ("embedded", "mosquitto", "rabbitmq", "nats"),
    "settings": ("embedded", "mosquitto", "rabbitmq", "nats"),
}
"""Keys that only some kinds know."""
HINTS: Mapping[str, str] = {
    "tls": "the run makes keys for mosquitto only: use kind: mosquitto",
    "passwords": "the run makes passwords for mosquitto and rabbitmq only",
    "acl": "these are lines of mosquitto's ACL file: use kind: mosquitto",
    "auth": "mosquitto has passwords and acl; other brokers are told in settings",
    "plugins": "plugins are RabbitMQ's: use kind: rabbitmq",
    "federation": "virtual hosts and federation are RabbitMQ's: use kind: rabbitmq",
    "cluster": "RabbitMQ makes clusters; mosquitto is connected with topology.bridges",
    "command": "binary names another program of this kind",
    "binary": "the program is the first word of command",
    "settings": "what the program is told stands in command",
}


EMBEDDED_OPTIONS = (
    "max-connections",
    "max-queued",
    "max-inflight",
    "max-packet-size",
    "listen",
    "log",
)
"""Settings of the embedded broker; the run itself gives the other options."""


def check_brokers(scenario: Scenario) -> Iterator[Finding]:
    """What does not fit together."""
    for name, broker in scenario.topology.brokers.items():
        path: Path = ("topology", "brokers", name)
        yield from _check_kind(path, broker)
        if broker.passwords and broker.federation is not None:
            message = "found federation with passwords, allowed is one of them"
            yield (*path, "passwords"), message, "customers log in as guest"
        if broker.cluster:
            yield from _check_cluster(path, broker, scenario)
        if broker.kind == "command":
            yield from _check_command((*path, "command"), broker)
        if broker.kind == "embedded":
            yield from _check_options((*path, "settings"), broker.settings)
        if broker.kind == "nats":
            yield from _check_blocks((*path, "settings"), broker.settings)
    for name, population in scenario.populations.items():
        path = ("populations", name)
        at = population.at
        if at is not None and at.shift and at.choice == "random":
            message = "found shift with choice random, allowed is shift with choice turn"
            yield (*path, "at", "shift"), message, "at random nobody is next to another"
        kinds = {scenario.topology.brokers[group].kind for group in _at(scenario, name)}
        if "nats" in kinds:
            yield from _check_qos(path, population)
            for share, each in population.shares.items():
                yield from _check_qos((*path, "shares", share), each)
        strangers = sorted(kinds.intersection(REFUSE_BRIDGES))
        if population.bridge and strangers:
            message = f"found bridge with kind {strangers[0]}, allowed with {KNOW_BRIDGES[0]}"
            yield (*path, "bridge"), message, "other brokers refuse a client that says it is one"
    for name, bridge in scenario.topology.bridges.items():
        main = scenario.topology.brokers.get(bridge.to)
        if main is not None and main.kind == "nats":
            path = ("topology", "bridges", name, "topics")
            yield from _no_qos_2(((*path, n), each.qos) for n, each in enumerate(bridge.topics))


def _check_options(path: Path, settings: Mapping[str, object]) -> Iterator[Finding]:
    for key in settings:
        name = key.replace("_", "-")
        if name not in EMBEDDED_OPTIONS:
            close = get_close_matches(name, EMBEDDED_OPTIONS, n=1)
            hint = f"did you mean {close[0]}?" if close else None
            allowed = ", ".join(EMBEDDED_OPTIONS)
            yield (*path, key), f"found the unknown setting {key!r}, allowed are {allowed}", hint


def _check_kind(path: Path, broker: Broker) -> Iterator[Finding]:
    for key, kinds in ONLY_FOR.items():
        value = getattr(broker, key)
        default = Broker.model_fields[key].get_default(call_default_factory=True)
        if broker.kind not in kinds and value != default:
            allowed = ", ".join(kinds) + (" alone" if len(kinds) == 1 else "")
            message = f"found {key} with kind {broker.kind}, allowed with {allowed}"
            yield (*path, key), message, HINTS[key]


def _check_cluster(path: Path, broker: Broker, scenario: Scenario) -> Iterator[Finding]:
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


def _check_command(path: Path, broker: Broker) -> Iterator[Finding]:
    if not broker.command:
        hint = 'write command: [PROGRAM, --port, "{port}"]'
        yield path[:-1], "found kind command without command, needed is the program", hint
        return
    values: set[str] = set()
    for number, word in enumerate(broker.command):
        try:
            asked = asked_for(word)
        except ValueError:
            message = f"found {describe(word)}, allowed are {{port}} and {{folder}}"
            yield (*path, number), message, "write {{ and }} for braces"
            return
        values |= {*asked}
        for value in asked:
            if value not in COMMAND_VALUES:
                found = describe("{" + value + "}")
                message = f"found {found}, allowed are {{port}} and {{folder}}"
                yield (*path, number), message, "write {{ and }} for braces"
                return
    if "port" not in values and (broker.port is None or broker.count > 1):
        message = "found a command without {port}, needed is {port}, or port and a count of 1"
        yield path, message, "it has to listen on the port that it is told"


def _check_blocks(path: Path, settings: Mapping[str, object]) -> Iterator[Finding]:
    for key in settings:
        inner = next((other for other in settings if other.startswith(f"{key}.")), None)
        if inner is not None:
            message = f"found {key} beside {inner}, allowed is one of them"
            yield (*path, key), message, "a dot stands for a block"


def _at(scenario: Scenario, name: str) -> Iterator[str]:
    """Groups of brokers that clients of a population may connect to."""
    at = scenario.populations[name].at
    for group in scenario.topology.brokers:
        if at is None or at.brokers == group:
            yield group


def _check_qos(path: Path, population: Population | PopulationShare) -> Iterator[Finding]:
    if isinstance(population, PopulationShare) and population.qos is not None:
        yield from _no_qos_2([(path, population.qos)])
    for key, entries in (
        ("subscriptions", [entry.qos for entry in population.subscriptions or ()]),
        ("publications", [entry.qos for entry in population.publications or ()]),
    ):
        yield from _no_qos_2(((*path, key, n), qos) for n, qos in enumerate(entries))
    if population.will is not None:
        yield from _no_qos_2([((*path, "will"), population.will.qos)])


def _no_qos_2(found: Iterable[tuple[Path, int]]) -> Iterator[Finding]:
    for path, qos in found:
        if qos == 2:
            message = "found QoS 2 with kind nats, allowed are 0 and 1"
            yield (*path, "qos"), message, "NATS disconnects a client that publishes with QoS 2"
