"""Receivers of AMQP 1.0 from scenario to plan: addresses, queues, logins and ports of brokers."""

from __future__ import annotations

import pytest

from pubstorm.contract.amqp import Amqp1Protocol, Amqp1Source
from pubstorm.contract.target import Amqp1Target, parse_target
from pubstorm.errors import ScenarioError
from pubstorm.scenario import parse_scenario
from tests.pure.scenario.bases import plan_of

TARGET = """\
target: amqp1s://broker.example
populations:
  reader:
    clients: 2
    username: "user-{n}"
    password: secret
    hostname: "vhost:{n}"
    keep_alive: 30s
    tls: {verify: false}
    subscriptions: ["device.{n}.{red|green}", {address: jobs, settled: true, credit: 5}]
stages: [connect, {hold: 1s}]
"""
STARTED = """\
topology:
  brokers:
    hub: {kind: command, command: [run, "{port}", "{amqp1_port}"]}
    rabbit: {kind: rabbitmq, plugins: [rabbitmq_amqp1_0]}
    mqtt: {kind: mosquitto}
  services:
    bridge: {kind: command, command: [carry, "{hub.amqp1}", "{rabbit.amqp1}"]}
populations:
  sensor: {clients: 9, at: hub, publications: [{topic: "device/{n}/state", rate: 1/s, size: 40B}]}
  reader: {protocol: amqp1, clients: 2, at: hub, subscriptions: [device.*.state]}
  worker:
    {protocol: amqp1, clients: 2, at: rabbit, subscriptions: [{address: /queue/jobs, type: queue}]}
flows:
  - {from: "device/{n}/state", of: sensor, to: "device.{n}.state", at: reader}
  - {from: "device/{n}/state", of: sensor, to: /queue/jobs, at: worker}
stages: [connect, {publish: 1s}]
"""


def test_a_client_at_a_target_of_amqp_1_0_is_a_receiver() -> None:
    plan = plan_of(TARGET)
    reader = plan.populations[0]
    assert plan.targets[0] == Amqp1Target(host="broker.example", port=5671, tls=True)
    assert str(plan.targets[0]) == "amqp1s://broker.example:5671"
    assert str(parse_target("amqp1://broker.example")) == "amqp1://broker.example:5672"
    assert reader.protocol == Amqp1Protocol(
        container_id="reader-{n}",
        hostname="vhost:{n}",
        mechanism="plain",
        sources=(
            Amqp1Source(address="device.{n}.{red|green}", credit=1000),
            Amqp1Source(address="jobs", settled=True, credit=5),
        ),
    )
    assert (reader.player, reader.keep_alive_s, reader.is_publisher) == ("proton", 30, False)
    assert [each.filter for each in reader.subscriptions] == ["device.{n}.{red|green}", "jobs"]
    assert reader.tls is not None
    assert not reader.tls.verify


def test_a_broker_of_a_run_has_a_port_of_amqp_1_0_for_clients_and_programs() -> None:
    plan = plan_of(STARTED)
    assert [{*target.ports} for target in plan.targets] == [{"amqp1"}, {"amqp", "amqp1"}, set()]
    assert [(flow.to, flow.at) for flow in plan.flows] == [
        ("device.{n}.state", 1),
        ("/queue/jobs", 2),
    ]


@pytest.mark.parametrize(
    ("subscription", "found"),
    [
        ("orders", "orders"),
        ("{address: orders, type: topic}", "orders"),
        ("{address: orders, type: queue}", "$share/orders/orders"),
        ("{address: orders, shared: true}", "$share/orders/orders"),
        ("{address: orders, type: queue, shared: false}", "orders"),
        ("{address: 'orders-{n}', type: queue}", "orders-{n}"),
        ("{address: /queue/orders, type: queue}", "$share/.queue.orders//queue/orders"),
        ("'device.*.state::jobs'", "$share/jobs/device.*.state"),
        ("'device.{n}.state::work-{n}'", "device.{n}.state"),
        ("device.#", "device.#"),
    ],
)
def test_clients_with_one_queue_share_its_messages(subscription: str, found: str) -> None:
    override = f"populations.reader.subscriptions=[{subscription}]"
    plan = plan_of(TARGET, override)
    assert [each.filter for each in plan.populations[0].subscriptions] == [found]


READER = "populations.reader"


@pytest.mark.parametrize(
    ("override", "path", "found"),
    [
        (f"{READER}.subscriptions=['a..b']", "subscriptions.0", "words between dots"),
        (f"{READER}.subscriptions=['']", "subscriptions.0", "words between dots"),
        (f"{READER}.subscriptions=['a b']", "subscriptions.0", "without spaces"),
        (f"{READER}.subscriptions=['a.#.b']", "subscriptions.0", "# as the last word only"),
        (f"{READER}.subscriptions=['a.x*']", "subscriptions.0", "fill a whole word"),
        (f"{READER}.subscriptions=['a::']", "subscriptions.0", "ADDRESS::QUEUE"),
        (f"{READER}.subscriptions=['a::b::c']", "subscriptions.0", "ADDRESS::QUEUE"),
        (f"{READER}.subscriptions=['a.{{n}}{{1..2}}']", "subscriptions.0", "one variable"),
        (f"{READER}.subscriptions=['a::q', b]", "subscriptions", "a shared queue at 1 of 2"),
        (f"{READER}.subscriptions=['a.{{n}}::q']", "subscriptions.0", "without variables"),
        (f"{READER}.subscriptions=['a::q-{{n%2}}']", "subscriptions.0", "without variables"),
        (
            f"{READER}.subscriptions=[{{address: a, type: topic, shared: true}}]",
            "subscriptions.0.shared",
            "shared with type: topic",
        ),
        (f"{READER}.subscriptions=[{{address: a, credit: 0}}]", "0.credit", "found 0"),
        (f"{READER}.subscriptions=[{{address: a, qos: 1}}]", "0.qos", "qos"),
        (f"{READER}.publications=[{{topic: a, rate: 1/s}}]", "publications", "publications"),
        (f"{READER}.virtual_host=a", "virtual_host", "virtual_host"),
        (f"{READER}.lifetime=1s", "lifetime", "lifetime"),
        (f'{READER}.password="a\\0b"', "password", "found NUL"),
        (f"{READER}.mechanism=anonymous", "username", "username with mechanism: anonymous"),
        (f"{READER}.mechanism=external", "username", "username with mechanism: external"),
        (f"{READER}.tls={{resume: 50%}}", "tls.resume", "found resume, allowed are alpn, ca"),
        (f"{READER}.tls={{psk: {{file: a}}}}", "tls.psk", "found psk, allowed are alpn, ca"),
    ],
)
def test_what_a_receiver_cannot_be_is_refused(override: str, path: str, found: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        parse_scenario(TARGET, "s.yaml", (override,))
    problems = [each for each in refused.value.problems if each.path.endswith(path)]
    assert problems, refused.value.problems
    assert any(found in each.message for each in problems), problems


@pytest.mark.parametrize(
    ("override", "path", "found"),
    [
        ("populations.reader.at=mqtt", "populations.reader", "clients of AMQP 1.0 at kind mosq"),
        (
            "topology.brokers.rabbit.plugins=[]",
            "populations.worker",
            "rabbitmq with plugins: [rabbitmq_amqp1_0]",
        ),
        ("topology.brokers.hub.command=[run, '{port}']", "populations.reader", "{amqp1_port}"),
        ("topology.services.bridge.command=[a, '{mqtt.amqp1}']", "command.1", "{mqtt.amqp1}"),
        (
            "populations.reader={protocol: amqp1, clients: 2, at: rabbit, subscriptions: "
            "[{address: /queue/jobs, type: queue}]}",
            "worker.subscriptions.0",
            "which another population has too",
        ),
        ("flows.0.to='device.*.state'", "flows.0.to", "without the wildcards"),
        ("flows.0.to='device.{n}::q'", "flows.0.to", "without ::"),
        ("flows.0.to='device..{n}'", "flows.0.to", "words between dots"),
        ("flows.0.to='device.{1..5}'", "flows.0.to", "found {1..5}"),
    ],
)
def test_a_flow_into_amqp_1_0_needs_a_broker_that_speaks_it(
    override: str, path: str, found: str
) -> None:
    with pytest.raises(ScenarioError) as refused:
        parse_scenario(STARTED, "s.yaml", (override,))
    problems = [each for each in refused.value.problems if each.path.endswith(path)]
    assert problems, refused.value.problems
    assert any(found in each.message for each in problems), problems


def test_a_login_by_certificate_needs_one() -> None:
    changes = ["username", "password"]
    overrides = (*(f"{READER}.{each}=null" for each in changes), f"{READER}.mechanism=external")
    with pytest.raises(ScenarioError) as refused:
        parse_scenario(TARGET, "s.yaml", overrides)
    (problem,) = refused.value.problems
    assert problem.path == "populations.reader.mechanism"
    secured = (*overrides, f"{READER}.tls={{certificate: a.crt, key: a.key}}")
    assert parse_scenario(TARGET, "s.yaml", secured).populations
