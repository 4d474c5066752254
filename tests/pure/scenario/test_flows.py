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
        ("flows.1.to='..'", "flows.1.to", "'..'"),
        (f"flows.1.to='{'a' * 247}{{red|green}}'", "flows.1.to", "up to 252 bytes"),
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
        (
            "populations.reader.subscriptions=[{topic: a, group: 'g-{n%2}'}]",
            "subscriptions.0.group",
            "one group for all",
        ),
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


GROUPED = """\
target: kafka://log.example
populations:
  worker: {clients: 2, subscriptions: [{topic: "a-{n}", group: g}]}
  helper: {clients: 2, subscriptions: [{topic: "TOPIC", group: g}]}
stages: [connect, {hold: 1s}]
"""


def test_members_of_several_populations_have_the_same_topics_with_variables() -> None:
    assert plan_of(GROUPED.replace("TOPIC", "a-{n}"))
    assert plan_of(GROUPED.replace("TOPIC", "b").replace("a-{n}", "a"))
    with pytest.raises(ScenarioError) as refused:
        parse_scenario(GROUPED.replace("TOPIC", "a-1"), "s.yaml")
    paths = [problem.path for problem in refused.value.problems]
    assert paths == ["populations.worker.subscriptions", "populations.helper.subscriptions"]


INTO_AMQP = """\
topology:
  brokers: {mqtt: {kind: mosquitto}, rabbit: {kind: rabbitmq}, server: {kind: nats}}
  exchanges: {orders: {type: topic}}
populations:
  sensor:
    {clients: 10, at: mqtt, publications: [{topic: "device/{n}/state", rate: 1/s, size: 100B}]}
  shop:
    protocol: amqp
    clients: 2
    at: rabbit
    shares: {slow: 50%}
    publications:
      - {exchange: orders, key: "order.{n}", rate: 1/s, size: 100B}
      - {exchange: amq.topic, key: "order.{n}", rate: 1/s, size: 100B}
  backend:
    protocol: amqp
    clients: 2
    at: rabbit
    subscriptions: [{exchange: amq.topic, key: device.#}, {queue: jobs}]
  customer:
    protocol: amqp
    clients: 2
    at: rabbit
    virtual_host: "vh-{n}"
    subscriptions: [{exchange: orders, key: "#"}]
    publications: [{exchange: amq.topic, key: data, rate: 1/s, size: 100B}]
  service: {protocol: nats, clients: 1, at: server, subscriptions: [order.>]}
flows: [{from: "device/{n}/state", of: sensor, to: "amq.topic/device.{n}.state", at: backend}]
stages: [connect, {publish: 1s}]
"""


def flow(source: str, of: str, to: str, at: str) -> str:
    """The first flow as an override."""
    return f"flows.0={{from: '{source}', of: {of}, to: '{to}', at: {at}}}"


@pytest.mark.parametrize(
    ("override", "planned"),
    [
        ("name=a", [(0, 0, "/amq.topic/device.{n}.state")]),
        (flow("device/{n}/state", "sensor", "jobs", "backend"), [(0, 0, "//jobs")]),
        (
            flow("device/{n}/state", "sensor", "/orders/a.{n}", "customer"),
            [(0, 0, "/orders/a.{n}")],
        ),
        (
            flow("device/{n}/state", "sensor", "vh-{n}/orders/a", "customer"),
            [(0, 0, "vh-{n}/orders/a")],
        ),
        (
            flow("orders/order.{n}", "shop", "order.{n}", "service"),
            [(1, 0, "order.{n}"), (2, 0, "order.{n}")],
        ),
        (
            flow("amq.topic/order.{n}", "shop", "order.{n}", "service"),
            [(1, 1, "order.{n}"), (2, 1, "order.{n}")],
        ),
        (
            flow("amq.topic/data", "customer", "amq.topic/of.{n}", "backend"),
            [(4, 0, "/amq.topic/of.{n}")],
        ),
    ],
)
def test_a_name_of_amqp_has_an_exchange_and_a_virtual_host(
    override: str, planned: list[tuple[int, int, str]]
) -> None:
    found = plan_of(INTO_AMQP, override).flows
    assert [(each.population, each.publication, each.to) for each in found] == planned


@pytest.mark.parametrize(
    ("to", "at", "found"),
    [
        ("device/{n}/state", "backend", "EXCHANGE/KEY, VHOST/EXCHANGE/KEY or QUEUE"),
        ("amq.topic/device/{n}/state", "backend", "EXCHANGE/KEY, VHOST/EXCHANGE/KEY or QUEUE"),
        ("amq.topic/device.*", "backend", "EXCHANGE/KEY, VHOST/EXCHANGE/KEY or QUEUE"),
        ("amq.topic/device..{n}", "backend", "EXCHANGE/KEY, VHOST/EXCHANGE/KEY or QUEUE"),
        ("/", "backend", "an exchange or a key"),
        ("amq.topic/a.{1..3}", "backend", "found {1..3}"),
        ("device/state", "backend", "the unknown exchange 'device'"),
        ("orders/a.{n}", "customer", "virtual hosts vh-{n}, needed is the virtual host in front"),
    ],
)
def test_a_name_that_amqp_does_not_have_is_refused(to: str, at: str, found: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        parse_scenario(INTO_AMQP, "s.yaml", (flow("device/{n}/state", "sensor", to, at),))
    (problem,) = refused.value.problems
    assert problem.path == "flows.0.to"
    assert found in problem.message


def test_a_topic_of_amqp_is_found_by_its_exchange_and_key() -> None:
    with pytest.raises(ScenarioError) as refused:
        parse_scenario(INTO_AMQP, "s.yaml", (flow("order.{n}", "shop", "a", "service"),))
    (problem,) = refused.value.problems
    assert problem.path == "flows.0.from"
    assert "/orders/order.{n}" in problem.message


def test_what_rabbitmq_gives_amq_topic_itself_is_refused() -> None:
    whole = ("populations.sensor.at=rabbit", "topology.brokers.mqtt={kind: mosquitto}")
    with pytest.raises(ScenarioError) as refused:
        parse_scenario(INTO_AMQP, "s.yaml", whole)
    (problem,) = refused.value.problems
    assert "which the broker itself gives" in problem.message
    elsewhere = flow("device/{n}/state", "sensor", "orders/device.{n}.state", "backend")
    assert plan_of(INTO_AMQP, *whole, elsewhere).flows


@pytest.mark.parametrize(("publishing", "expects"), [("sensor", True), ("shop", False)])
def test_consumers_of_amqp_at_the_end_of_a_flow_have_the_defaults_of_receivers(
    publishing: str, expects: bool
) -> None:
    changes = (
        "populations.customer.subscriptions=[]",
        "populations.service.subscriptions=[]",
        "populations.backend.subscriptions=[{exchange: amq.topic, key: device.#}]",
        f"stages.1={{publish: {{for: 1s, populations: [{publishing}]}}}}",
    )
    defaults = conditions_of(parse_scenario(INTO_AMQP, "s.yaml", changes))
    assert any("lost == 0" in each.source for each in defaults) == expects
