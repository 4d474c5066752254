"""Targets with names: brokers that already run, of one protocol or several, up to the plan."""

from __future__ import annotations

import pytest

from pubstorm.cli.describe.plan import plan_in_words
from pubstorm.errors import ScenarioError
from pubstorm.plan import provisional_plan, targets_by_name
from pubstorm.scenario import parse_scenario
from tests.pure.scenario.bases import plan_of

NAMED = """\
target:
  {mqtt: [mqtt://one, mqtt://two], log: kafka://log, queue: amqp://rabbit/shop, feed: zmq://h:5}
populations:
  sensor:
    {clients: 10, at: mqtt, publications: [{topic: "d/{n}", rate: 1/s, qos: 1, size: 100B}]}
  reader: {clients: 2, at: log, subscriptions: [telemetry]}
  worker: {clients: 2, at: queue, subscriptions: [{exchange: amq.topic, key: "#"}]}
  watcher: {clients: 1, at: feed, subscriptions: [""]}
  second: {clients: 1, at: {brokers: mqtt, first: 1}, subscriptions: [d/#]}
flows:
  - {from: "d/{n}", of: sensor, to: telemetry, at: reader}
  - {from: "d/{n}", of: sensor, to: "amq.topic/d.{n}", at: worker}
stages: [connect, {publish: 1s}]
"""


def test_a_name_of_targets_decides_protocol_and_place_of_a_population() -> None:
    plan = plan_of(NAMED)
    found = {each.name: (each.protocol.name, each.at) for each in plan.populations}
    assert {name: (own, at.first, at.count) for name, (own, at) in found.items()} == {
        "sensor": ("mqtt-3.1.1", 0, 2),
        "reader": ("kafka", 2, 1),
        "worker": ("amqp", 3, 1),
        "watcher": ("zmtp-3.1", 4, 1),
        "second": ("mqtt-3.1.1", 1, 1),
    }
    assert plan.flows[1].to == "shop/amq.topic/d.{n}"
    assert [str(target) for target in plan.targets] == [
        *("one:1883", "two:1883", "kafka://log:9092"),
        *("amqp://rabbit:5672/shop", "zmq://h:5"),
    ]


def test_targets_are_called_by_their_names() -> None:
    scenario = parse_scenario(NAMED, "s.yaml")
    assert targets_by_name(scenario) == {
        "mqtt": range(2),
        "log": range(2, 3),
        "queue": range(3, 4),
        "feed": range(4, 5),
    }
    names = [(source.name, source.group) for source in scenario.target_sources]
    assert names[:3] == [("mqtt-0", "mqtt"), ("mqtt-1", "mqtt"), ("log-0", "log")]
    words = plan_in_words(scenario, provisional_plan(scenario))
    line = next(line for line in words if line.startswith("targets"))
    assert line.startswith("targets      mqtt (one:1883, two:1883); log (kafka://log:9092)")


def test_targets_without_names_are_brokers() -> None:
    scenario = parse_scenario(PLAIN, "s.yaml")
    assert [source.name for source in scenario.target_sources] == ["broker-0"]


PLAIN = """\
target: mqtt://one
populations: {sensor: {clients: 1, publications: [{topic: t, rate: 1/s}]}}
stages: [connect, {publish: 1s}]
"""
BESIDE = """\
target: {mqtt: mqtt://one}
topology:
  brokers: {server: {kind: nats}}
  services:
    bridge: {kind: command, command: [b, "{mqtt.host}:{mqtt.port}", "{server.nats}"]}
populations:
  sensor: {clients: 1, at: mqtt, publications: [{topic: "d/{n}", rate: 1/s, size: 100B}]}
  backend: {clients: 1, at: server, protocol: nats, subscriptions: [d.*]}
flows: [{from: "d/{n}", of: sensor, to: "d.{n}", at: backend}]
stages: [connect, {publish: 1s}]
thresholds: ["mqtt.cpu.max < 90%", "server.cpu.max < 90%"]
"""


def test_targets_and_brokers_of_the_run_are_places_of_one_scenario() -> None:
    scenario = parse_scenario(BESIDE, "s.yaml")
    assert targets_by_name(scenario) == {"mqtt": range(1), "server": range(1, 2)}
    plan = provisional_plan(scenario)
    assert [each.at.first for each in plan.populations] == [0, 1]


@pytest.mark.parametrize(
    ("text", "override", "path", "found"),
    [
        (NAMED, "populations.sensor.at=null", "populations.sensor", "Kafka"),
        (NAMED, "populations.sensor.at=mqt", "populations.sensor.at", "unknown broker 'mqt'"),
        (NAMED, "populations.sensor.at=target", "populations.sensor.at", "unknown broker 'target'"),
        (NAMED, "populations.sensor.at=log", "populations.sensor.publications", "Kafka consumers"),
        (NAMED, "populations.reader.at=mqtt", "target.log", "no population connects to"),
        (
            NAMED,
            "target={mqtt: mqtt://one, log: log}",
            "target",
            "found 'log', allowed for log is mqtt",
        ),
        (NAMED, "target={a b: mqtt://one}", "target", "found 'a b', allowed are letters"),
        (NAMED, "target={}", "target", "allowed is mqtt"),
        (NAMED, "target={log: []}", "target", "or a list of them"),
        (NAMED, "target={log: [kafka://a, mqtt://b]}", "target", "targets of one protocol"),
        (NAMED, "target={target: mqtt://one}", "target.target", "the name target"),
        (NAMED, "target={sensor: mqtt://one}", "populations.sensor", "which is also a target"),
        (NAMED, "target={host: mqtt://one}", "target.host", "which is also a word"),
        (PLAIN, "target={log-1: mqtt://a, log: [mqtt://b, mqtt://c]}", "target.log-1", "log-1"),
        (BESIDE, "populations.sensor.at=null", "populations.sensor", "topology.brokers, and no at"),
        (BESIDE, "target={server: mqtt://one}", "topology.brokers.server", "also a target"),
        (
            BESIDE,
            "target={mqtt: [mqtt://one, mqtt://two]}",
            "services.bridge.command.1",
            "mqtt.host",
        ),
        (BESIDE, "thresholds=[broker.cpu < 1]", "thresholds.0", "subject 'broker'"),
        (BESIDE, "thresholds=[mqtt-1.balance < 2]", "thresholds.0", "mqtt-1"),
        (
            BESIDE,
            "monitors.sources={mqtt: {process: {pid: 1}}}",
            "monitors.sources.mqtt",
            "a target",
        ),
    ],
)
def test_targets_that_do_not_fit_are_refused(
    text: str, override: str, path: str, found: str
) -> None:
    with pytest.raises(ScenarioError) as refused:
        parse_scenario(text, "s.yaml", (override,))
    problems = [each for each in refused.value.problems if each.path.endswith(path)]
    assert problems, refused.value.problems
    assert any(found in each.message for each in problems), problems


def test_targets_of_several_virtual_hosts_need_a_place() -> None:
    text = PLAIN.replace("mqtt://one", "{a: amqp://h/one, b: amqp://h/two}")
    text = text.replace("topic: t", "exchange: amq.topic, key: t")
    with pytest.raises(ScenarioError) as refused:
        parse_scenario(text, "s.yaml")
    (problem,) = refused.value.problems
    assert (problem.path, problem.hint) == ("populations.sensor", "write at: a")


def test_brokers_of_two_names_have_queues_of_one_name() -> None:
    text = """\
target: {a: amqp://one, b: amqp://two}
populations:
  one: {clients: 1, at: a, subscriptions: [{queue: jobs}]}
  two: {clients: 1, at: b, subscriptions: [{queue: jobs}]}
stages: [connect, {hold: 1s}]
"""
    assert plan_of(text)
    with pytest.raises(ScenarioError):
        parse_scenario(text.replace("at: b", "at: a"), "s.yaml")


def test_a_population_without_a_place_connects_to_all_targets_of_one_protocol() -> None:
    plan = plan_of(PLAIN.replace("mqtt://one", "{east: mqtt://one, west: mqtt://two}"))
    assert plan.populations[0].at.count == 2


FLOW = """\
topology:
  brokers: {mqtt: {kind: mosquitto}, server: {kind: nats}}
  services: {bridge: {kind: command, command: [b, "{mqtt.host}", "{server.nats}"]}}
populations:
  sensor: {clients: 1, at: mqtt, publications: [{topic: "d/{n}", rate: 1/s, size: 100B}]}
  backend: {clients: 1, at: server, protocol: nats, subscriptions: [d.*]}
flows: [{from: "d/{n}", of: sensor, to: "d.{n}", at: backend}]
stages: [connect, {publish: 1s}]
thresholds: ["mqtt.cpu.max < 90%", "server-0.cpu.max < 90%", "bridge.cpu.max < 90%"]
"""


@pytest.mark.parametrize(
    ("target", "targets", "brokers", "services"),
    [
        ("mqtt=mqtt://one", {"mqtt": range(1), "server": range(1, 2)}, ["server"], ["bridge"]),
        (
            "mqtt=mqtt://one server=nats://two server=nats://three",
            {"mqtt": range(1), "server": range(1, 3)},
            [],
            [],
        ),
    ],
)
def test_a_target_of_the_command_line_takes_the_place_of_a_name(
    target: str, targets: dict[str, range], brokers: list[str], services: list[str]
) -> None:
    if "three" in target:
        text = FLOW.replace("at: server", "at: {brokers: server, count: 1}")
    else:
        text = FLOW
    scenario = parse_scenario(text, "s.yaml", target=target)
    assert targets_by_name(scenario) == targets
    assert [*scenario.topology.brokers] == brokers
    assert [*scenario.topology.services] == services
    conditions = [each.source for each in scenario.thresholds]
    assert conditions[:2] == ["mqtt.cpu.max < 90%", "server-0.cpu.max < 90%"]
    assert len(scenario.source.left_out) == (not services)
    options = " ".join(f"--target {each}" for each in target.split())
    assert f"# with {options}\n" in scenario.source_text


def test_a_target_of_the_command_line_replaces_one_of_the_file() -> None:
    scenario = parse_scenario(BESIDE, "s.yaml", target="mqtt=mqtts://other")
    assert [(each.name, str(each)) for each in scenario.target] == [("mqtt", "mqtts://other:8883")]
    assert [*scenario.topology.brokers] == ["server"]
    with pytest.raises(ScenarioError) as refused:
        parse_scenario(BESIDE, "s.yaml", target="mqtt=mqtt://other lgo=mqtt://third")
    (problem,) = refused.value.problems
    assert problem.path == "target.lgo"


def test_an_address_without_a_name_takes_the_place_of_all_names() -> None:
    text = PLAIN.replace("mqtt://one", "{east: mqtt://one, west: mqtt://two}")
    text = text.replace("clients: 1", "clients: 1, at: west").replace("east: mqtt://one, ", "")
    text += "thresholds: [west.cpu.max < 90%]\n"
    scenario = parse_scenario(text, "s.yaml", target="mqtt://other")
    assert [(each.name, each.host) for each in scenario.target] == [("target", "other")]
    assert [each.source for each in scenario.thresholds] == ["broker.cpu.max < 90%"]
