"""Flows across protocols from scenario to plan: declared names, programs that carry messages, and
consumers of Kafka."""

from __future__ import annotations

import pytest

from pubstorm.cli.describe.plan import plan_in_words
from pubstorm.contract.protocol import KafkaProtocol, PlannedFlow
from pubstorm.contract.target import KafkaTarget, parse_target
from pubstorm.errors import ScenarioError
from pubstorm.plan import provisional_plan
from pubstorm.scenario import parse_scenario
from pubstorm.scenario.defaults import conditions_of
from tests.pure.scenario.bases import plan_of

FLOWS = """\
topology:
  brokers:
    mqtt: {kind: mosquitto}
    server: {kind: nats}
    log: {kind: kafka}
  services:
    bridge:
      kind: command
      command: [python3, bridge.py, "{mqtt.host}:{mqtt.port}", "{server.nats}"]
      environment: {LOG: "{log.port}", PLACE: "{folder}"}
      ready: subscribed
populations:
  sensor:
    clients: 10
    at: mqtt
    shares: {slow: 20%}
    publications:
      - {topic: "device/{n}/{red|green}", rate: 1/s, size: 100B}
      - {topic: "other/{n}", rate: 1/s}
  backend: {protocol: nats, clients: 2, at: server, subscriptions: [device.>]}
  reader: {protocol: kafka, clients: 2, at: log, subscriptions: [{topic: red, group: g}]}
flows:
  - {from: "device/{n}/{red|green}", of: sensor, to: "device.{n}.{red|green}", at: backend}
  - {from: "device/{n}/{red|green}", of: sensor, to: "{red|green}", at: reader}
stages: [connect, {publish: 1s}]
"""


def test_a_flow_leads_from_the_publication_of_each_share_to_the_place_of_the_subscribers() -> None:
    plan = plan_of(FLOWS)
    names = [each.name for each in plan.populations]
    assert names == ["sensor/rest", "sensor/slow", "backend", "reader"]
    ends = [(flow.population, flow.publication, flow.to, flow.at) for flow in plan.flows]
    assert sorted(ends) == [
        (0, 0, "device.{n}.{red|green}", 2),
        (0, 0, "{red|green}", 3),
        (1, 0, "device.{n}.{red|green}", 2),
        (1, 0, "{red|green}", 3),
    ]
    assert PlannedFlow.model_validate(plan.flows[0].model_dump()) == plan.flows[0]


def test_a_plan_in_words_names_flows_and_programs() -> None:
    scenario = parse_scenario(FLOWS, "s.yaml")
    lines = [*plan_in_words(scenario, provisional_plan(scenario))]
    assert "services     bridge (command), after the brokers" in lines
    wanted = "flows        device/{n}/{red|green} of sensor arrives as {red|green} at reader"
    assert wanted in lines


def test_subscribers_of_a_flow_have_the_defaults_of_receivers_while_it_is_published() -> None:
    scenario = parse_scenario(FLOWS, "s.yaml")
    defaults = {each.source for each in conditions_of(scenario)}
    assert "lost == 0" in defaults
    silent = FLOWS.replace("{publish: 1s}", "{publish: {for: 1s, populations: [other]}}").replace(
        "flows:", '  other: {clients: 1, at: mqtt, publications: [{topic: "x", rate: 1/s}]}\nflows:'
    )
    silenced = {each.source for each in conditions_of(parse_scenario(silent, "s.yaml"))}
    assert not any("lost == 0" in source for source in silenced)


BRIDGE = "topology.services.bridge"


@pytest.mark.parametrize(
    ("override", "path", "found"),
    [
        ("flows.0.of=sens", "flows.0.of", "population 'sens'"),
        ("flows.0.at=back", "flows.0.at", "population 'back'"),
        ("flows.0.from='dev/{n}'", "flows.0.from", "topic of sensor 'dev/{n}'"),
        ("flows.0.to='device.{n}.*'", "flows.0.to", "'device.{n}.*'"),
        ("flows.0.to='device..{n}'", "flows.0.to", "'device..{n}'"),
        ("flows.0.to='device.{1..5}'", "flows.0.to", "found {1..5}"),
        ("flows.1.to='a/{red|green}'", "flows.1.to", "'a/{red|green}'"),
        ("populations.sensor.publications.0.size=31B", "flows.0.from", "payload has no stamp"),
        ("topology.brokers.server.count=2", "flows.0.at", "at 2 brokers"),
        (BRIDGE + ".command=[a, '{server.mqtt}']", f"{BRIDGE}.command.1", "{server.mqtt}"),
        (BRIDGE + ".environment={A: '{logs.port}'}", f"{BRIDGE}.environment.A", "{logs.port}"),
        (BRIDGE + ".command=[]", BRIDGE, "without command"),
        (BRIDGE + ".seed=true", f"{BRIDGE}.seed", "seed"),
        ("populations.reader.subscriptions=['red/#']", "reader.subscriptions.0.topic", "red/#"),
        ("populations.reader.at=mqtt", "populations.reader", "clients of Kafka"),
        ("populations.reader.settings={group.id: x}", "settings.group.id", "group.id in settings"),
        ("populations.reader.subscriptions=[{topic: a, group: g}, b]", "subscriptions", "2 groups"),
    ],
)
def test_what_cannot_be_followed_is_refused(override: str, path: str, found: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        parse_scenario(FLOWS, "s.yaml", (override,))
    problems = [each for each in refused.value.problems if each.path.endswith(path)]
    assert problems, refused.value.problems
    assert any(found in each.message for each in problems), problems


GATEWAY = """\
topology: {brokers: {main: {kind: nats}}}
populations:
  device: {clients: 1, at: main, publications: [{topic: "a/{n}", rate: 1/s}]}
  backend: {protocol: nats, clients: 1, at: main, subscriptions: ["a.*"]}
flows: [{from: "a/{n}", of: device, to: "a.{n}", at: backend}]
stages: [connect, {publish: 1s}]
"""


def test_a_name_that_the_broker_gives_itself_is_refused() -> None:
    with pytest.raises(ScenarioError) as refused:
        parse_scenario(GATEWAY, "s.yaml")
    (problem,) = refused.value.problems
    assert problem.path == "flows.0.to"
    assert "which the broker itself gives" in problem.message
    assert plan_of(GATEWAY.replace('to: "a.{n}"', 'to: "b.{n}"')).flows


CLUSTER = """\
target: kafka://log.example
populations:
  reader:
    clients: 2
    username: u
    password: p
    settings: {fetch.wait.max.ms: 5, enable.ssl.certificate.verification: false}
    subscriptions: [telemetry]
stages: [connect, {hold: 1s}]
"""


def test_clients_at_a_target_of_kafka_are_consumers() -> None:
    plan = plan_of(CLUSTER)
    reader = plan.populations[0]
    assert plan.targets[0] == KafkaTarget(host="log.example", port=9092)
    settings = {"fetch.wait.max.ms": "5", "enable.ssl.certificate.verification": "false"}
    assert reader.protocol == KafkaProtocol(settings=settings)
    assert (reader.player, reader.keeps_session, reader.is_publisher) == (
        "librdkafka",
        False,
        False,
    )
    assert [each.filter for each in reader.subscriptions] == ["telemetry"]
    stored = plan.without_secrets().populations[0].protocol
    assert isinstance(stored, KafkaProtocol)
    assert {*stored.settings.values()}.isdisjoint(settings.values())
    assert str(parse_target("kafka://log.example:19092")) == "kafka://log.example:19092"
