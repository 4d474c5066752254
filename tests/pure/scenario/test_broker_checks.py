"""Abilities of kinds of brokers, checked before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubstorm.errors import ScenarioError
from pubstorm.host.files import check_host_files
from pubstorm.plan import compile_plan, planned_targets, provisional_plan
from pubstorm.scenario import Scenario, load_scenario, parse_scenario
from pubstorm.scenario.command_words import filled
from pubstorm.scenario.problems import HINTS
from pubstorm.scenario.shape import shape_of
from pubstorm.scenario.topology import KNOW_BRIDGES, REFUSE_BRIDGES, Command, Topology
from pubstorm.topology.adapters import ADAPTERS

SCENARIO = """\
topology: {{brokers: {{b: {broker}}}}}
populations:
  device:
    clients: 2
    publications: [{{topic: a, rate: 1/s, qos: {qos}}}]
    subscriptions: [{{topic: a, qos: {qos}}}]
"""


def problems(broker: str, qos: int = 0) -> list[str]:
    try:
        parse_scenario(SCENARIO.format(broker=broker, qos=qos), "s.yaml")
    except ScenarioError as error:
        return [str(problem).partition("topology.brokers.b.")[2] for problem in error.problems]
    return []


def test_scenarios_and_adapters_agree_about_the_kinds() -> None:
    broker = shape_of(Topology).below("brokers").below("")
    kinds = {kind.removeprefix("kind ") for kind in broker.kinds}
    assert kinds == {*ADAPTERS} == {*KNOW_BRIDGES, *REFUSE_BRIDGES, "command"}


def test_every_hint_is_about_a_key_that_a_kind_has() -> None:
    population = shape_of(Scenario).below("populations").below("")
    broker = shape_of(Topology).below("brokers").below("")
    keys = {*broker.keys, *population.keys, *population.below("publications").below(0).keys}
    assert {*HINTS} == {"", *population.kinds}
    assert {key for hints in HINTS.values() for key in hints} <= keys


@pytest.mark.parametrize(
    ("broker", "problem"),
    [
        (
            "{kind: embedded, settings: {max-quued: 5}}",
            "settings.max-quued: found the unknown setting 'max-quued', allowed are "
            "max-connections, max-queued,",
        ),
        ("{kind: nats, tls: psk}", "tls: found tls with kind nats, allowed with kind mosquitto"),
        ("{kind: nats, passwords: true}", "passwords: found passwords with kind nats"),
        (
            "{kind: rabbitmq, passwords: true, federation: {vhosts: 1, direction: out}}",
            "passwords: found federation with passwords, allowed is one of them",
        ),
        (
            "{kind: mosquitto, count: 2, cluster: true}",
            "cluster: found cluster with kind mosquitto, allowed with kind rabbitmq",
        ),
        (
            "{kind: rabbitmq, cluster: true}",
            "cluster: found a cluster of 1, allowed are 2 to 32 nodes",
        ),
        (
            "{kind: rabbitmq, count: 2, cluster: true, federation: {vhosts: 1, direction: in}}",
            "federation: found federation in a cluster, allowed is one of them",
        ),
        (
            "{kind: rabbitmq, count: 2, cluster: true}, c: {kind: embedded}",
            "cluster: found a cluster beside c, allowed is one alone",
        ),
        ("{kind: embedded, acl: [topic a]}", "acl: found acl with kind embedded"),
        (
            "{kind: mosquitto, auth: 'redis://127.0.0.1:6379/0'}",
            "auth: found auth with kind mosquitto, allowed with kind embedded",
        ),
        ("{kind: nats, plugins: [x]}", "plugins: found plugins with kind nats"),
        (
            "{kind: mosquitto, federation: {vhosts: 1, direction: out}}",
            "federation: found federation with kind mosquitto, allowed with kind rabbitmq",
        ),
        ("{kind: mosquitto, command: [x]}", "command: found command with kind mosquitto"),
        (
            '{kind: command, command: [x, "{port}"], binary: y}',
            "binary: found binary with kind command, allowed with kind embedded, kind mosquitto, "
            "kind rabbitmq, kind nats",
        ),
        ('{kind: command, command: [x, "{port}"], settings: {a: 1}}', "settings: found settings"),
        ("{kind: command, command: [x]}", "command: found a command without {port}"),
        (
            '{kind: command, command: [x, "{prot}"]}',
            "command.1: found '{prot}', allowed are {host}, {port} and {folder}",
        ),
        (
            '{kind: command, command: [x, "{port"]}',
            "command.1: found '{port', allowed are {host}, {port} and {folder}",
        ),
        (
            "{kind: nats, settings: {mqtt: 1, mqtt.ack_wait: 1s}}",
            "settings.mqtt: found mqtt beside mqtt.ack_wait, allowed is one of them",
        ),
    ],
)
def test_what_a_kind_does_not_know_is_a_problem(broker: str, problem: str) -> None:
    assert any(found.startswith(problem) for found in problems(broker)), problems(broker)


def test_a_null_key_of_another_kind_is_as_if_it_were_not_there() -> None:
    assert problems("{kind: mosquitto, federation: null, auth: null}") == []
    assert problems("{kind: mosquitto, fedration: null}")


def test_the_nodes_of_a_cluster_are_one_space_of_topics() -> None:
    alone = parse_scenario(SCENARIO.format(broker="{kind: rabbitmq, count: 2}", qos=0), "s.yaml")
    node = "{kind: rabbitmq, count: 2, cluster: true}"
    cluster = parse_scenario(SCENARIO.format(broker=node, qos=0), "s.yaml")
    joined = [provisional_plan(each).targets_joined for each in (alone, cluster)]
    assert joined == [False, True]
    beside = f"{node}, c: {{kind: embedded}}}}, joined: true, bridges: {{"
    assert parse_scenario(SCENARIO.format(broker=beside, qos=0), "s.yaml")


def test_a_command_is_needed_for_the_kind_of_that_name() -> None:
    with pytest.raises(ScenarioError, match="found kind command without command"):
        parse_scenario(SCENARIO.format(broker="{kind: command}", qos=0), "s.yaml")


def test_a_command_needs_no_port_where_its_port_is_known() -> None:
    assert problems("{kind: command, command: [x, '{{}}'], port: 1883}") == []
    assert problems("{kind: command, command: [x], port: 1883, count: 2}")


def test_nats_has_no_qos_2() -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(SCENARIO.format(broker="{kind: nats}", qos=2), "s.yaml")
    found = [str(problem) for problem in caught.value.problems]
    assert len(found) == 2
    assert all("found QoS 2 with kind nats, allowed are 0 and 1" in problem for problem in found)


def test_qos_2_is_free_for_clients_of_another_broker() -> None:
    text = SCENARIO.format(broker="{kind: nats}, c: {kind: embedded}", qos=2)
    assert parse_scenario(text.replace("clients: 2", "clients: 2\n    at: c"), "s.yaml")


BRIDGED = """\
topology:
  brokers: {main: {kind: KIND}, boxes: {kind: mosquitto, count: 2}}
  bridges: {up: {from: boxes, to: main, topics: [{topic: a/#, direction: DIRECTION, qos: QOS}]}}
populations:
  device: {clients: 2, at: main, bridge: BRIDGE, publications: [{topic: a/x, rate: 1/s}]}
"""


@pytest.mark.parametrize(
    ("kind", "direction", "qos", "bridge", "problem"),
    [
        ("rabbitmq", "both", 1, "false", "found both to a main broker of kind rabbitmq"),
        ("nats", "out", 2, "false", "topics.0.qos: found QoS 2 with kind nats"),
        ("embedded", "in", 2, "true", "device.bridge: found bridge with kind embedded"),
        ("mosquitto", "both", 2, "true", ""),
        ("rabbitmq", "out", 2, "false", ""),
    ],
)
def test_bridges_lead_to_what_takes_them(
    kind: str, direction: str, qos: int, bridge: str, problem: str
) -> None:
    text = BRIDGED.replace("KIND", kind).replace("DIRECTION", direction)
    text = text.replace("QOS", str(qos)).replace("BRIDGE", bridge)
    if not problem:
        assert parse_scenario(text, "s.yaml")
        return
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "s.yaml")
    [found] = caught.value.problems
    assert problem in str(found)


def test_words_of_a_command_are_filled_in() -> None:
    values = {"port": "1883", "folder": "/run/b"}
    assert filled("{folder}/{{x}}:{port}", values) == "/run/b/{x}:1883"
    assert filled("plain", values) == "plain"


def test_a_program_is_from_the_path_or_the_folder_of_the_scenario(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    text = SCENARIO.format(broker='{kind: command, command: [PROGRAM, "{port}"]}', qos=0)
    for program, expected in (("sh", "sh"), ("./my/broker", f"{tmp_path}/my/broker")):
        file.write_text(text.replace("PROGRAM", program))
        scenario = load_scenario(file)
        broker = scenario.topology.brokers["b"]
        assert isinstance(broker, Command) and broker.command == (expected, "{port}")
        plan = compile_plan(scenario, planned_targets(scenario), run_tag=1)
        if program == "sh":
            check_host_files(scenario, plan)
        else:
            with pytest.raises(ScenarioError, match="allowed is a program of this host"):
                check_host_files(scenario, plan)
