"""NATS from scenario to plan: targets, kinds of populations, subjects, queue groups, logins."""

from __future__ import annotations

import pytest

from pubstorm.cli.describe.plan import plan_in_words
from pubstorm.contract.plan import PlannedPopulation
from pubstorm.contract.protocol import (
    NatsProtocol,
    PlannedConsumer,
    PlannedStream,
    PlannedSubscription,
    Property,
)
from pubstorm.contract.target import NatsTarget, Target, parse_target
from pubstorm.errors import ScenarioError
from pubstorm.plan import provisional_plan
from pubstorm.quantities import SECOND_NS
from pubstorm.scenario import parse_scenario
from pubstorm.scenario.document import redacted_text
from tests.pure.scenario.bases import changed, plan_of

GATEWAY = """\
topology: {brokers: {main: {kind: nats}}}
populations:
  device: {clients: 10, publications: [{topic: "a/{n}", rate: 1/s}]}
  backend:
    protocol: nats
    clients: 2
    echo: false
    subscriptions: [a.*, {topic: "a.{n}.>", group: workers}]
    publications: [{topic: "b.{1..5}", rate: 1/s, headers: {source: "{n}"}}]
stages: [connect, {publish: 1s}]
"""
STREAMS = """\
topology:
  brokers: {main: {kind: nats}}
  streams: {ORDERS: {subjects: [order.>], storage: memory}, OTHER: {subjects: [other.>]}}
populations:
  shop:
    protocol: nats
    clients: 2
    publications: [{topic: "order.{n}", rate: 1/s, stream: ORDERS, window: 10}]
  audit:
    protocol: nats
    clients: 3
    echo: false
    subscriptions: [{topic: order.*, stream: ORDERS}]
  worker:
    protocol: nats
    clients: 2
    subscriptions: [{topic: order.*, stream: ORDERS, group: workers, ack_wait: 1s}]
stages: [connect, {publish: 1s}]
"""
SERVER = """\
target: nats://user.example
populations:
  service: {clients: 1, nkey: SUSECRET, subscriptions: [a.b]}
stages: [connect]
"""
PUBLISHERS = """\
populations:
  service: {clients: 1, subscriptions: [a.b]}
  feed: {clients: 1, publisher: libzmq, publications: [{topic: "", rate: 1/s}]}
stages: [connect]
"""
"""There is no broker to connect to."""


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("nats://b", NatsTarget(host="b", port=4222)),
        ("nats://b:1", NatsTarget(host="b", port=1)),
        ("natss://[::1]:9", NatsTarget(host="::1", port=9, tls=True)),
    ],
)
def test_a_server_has_a_scheme_and_a_port(text: str, target: Target) -> None:
    assert parse_target(text) == target
    assert parse_target(str(target)) == target
    assert not target.speaks_mqtt


def test_a_broker_of_the_run_has_a_port_for_each_protocol() -> None:
    plan = plan_of(GATEWAY)
    assert plan.targets == (Target(host="127.0.0.1", port=0, ports={"nats": 0}),)
    device, backend = plan.populations
    assert (device.protocol.kind, backend.mqtt) == ("mqtt", None)
    assert backend.protocol == NatsProtocol(client_name="backend-{n}", echo=False)
    assert backend.subscriptions == (
        PlannedSubscription(filter="a.*", qos=0),
        PlannedSubscription(filter="$share/workers/a.{n}.>", qos=0),
    )
    header = Property(name="user_property", key="source", value="{n}")
    assert backend.publications[0].properties == (header,)
    words = "\n".join(plan_in_words(parse_scenario(GATEWAY, "s.yaml"), plan))
    assert "NATS without echo, heartbeats every 60s" in words
    assert "a.{n}.> in queue group workers" in words
    assert "publishes to b.{1..5}: 100B, every 1s from each client" in words


def test_a_closed_loop_of_nats_has_no_window() -> None:
    scenario = parse_scenario(GATEWAY, "s.yaml", ("populations.backend.publications.0.rate=max",))
    words = "\n".join(plan_in_words(scenario, provisional_plan(scenario)))
    assert "publishes to b.{1..5}: 100B, as fast as the socket takes them" in words


def test_an_override_reaches_the_keys_of_each_kind() -> None:
    """Lists of MQTT clients have no such keys."""
    overrides = (
        "populations.backend.subscriptions.0.group=g",
        "populations.backend.publications.0.headers.more=x",
        "populations.backend.shares={odd: {part: 50%, subscriptions: [a.b]}}",
        "populations.backend.shares.odd.subscriptions.0.group=h",
    )
    backend = parse_scenario(GATEWAY, "s.yaml", overrides).populations["backend"]
    assert backend.filters[0].filter == "$share/g/a.*"
    assert backend.flows[0].beside == {"source": "{n}", "more": "x"}
    assert backend.differing["odd"].filters[0].filter == "$share/h/a.b"


def test_populations_at_a_server_speak_nats_and_their_keys_are_stored_nowhere() -> None:
    plan = plan_of(SERVER)
    assert plan.populations[0].protocol == NatsProtocol(
        client_name="service-{n}", echo=True, seed="SUSECRET"
    )
    assert "SUSECRET" not in plan.without_secrets().model_dump_json()
    assert "SUSECRET" not in redacted_text(SERVER)


@pytest.mark.parametrize(
    ("text", "override", "path"),
    [
        (GATEWAY, "topology.brokers.main={kind: embedded}", "populations.backend"),
        (GATEWAY, "populations.backend.subscriptions=[a..b]", "subscriptions.0"),
        (GATEWAY, "populations.backend.subscriptions=['a.>.b']", "subscriptions.0"),
        (GATEWAY, "populations.backend.subscriptions=[a b]", "subscriptions.0"),
        (GATEWAY, "populations.backend.subscriptions=['a.{n}{n}']", "subscriptions.0"),
        (GATEWAY, "populations.backend.publications.0.topic=a.*", "publications.0.topic"),
        (GATEWAY, "populations.backend.publications.0.qos=1", "publications.0.qos"),
        (GATEWAY, "populations.device.echo=false", "populations.device.echo"),
        (
            GATEWAY,
            "populations.backend.subscriptions=[{topic: a, group: '{row.g}'}]",
            "subscriptions.0.group",
        ),
        (PUBLISHERS, "populations.service.protocol=nats", "populations.service"),
        (GATEWAY, "populations.backend.subscriptions.1.group=others", None),
        (GATEWAY, "populations.backend.publications.0.headers={a: b}", None),
        (GATEWAY, "populations.backend.publications.0.headres=x", "headers"),
        (SERVER, "populations.service.jwt=x", None),
        (SERVER, "populations.service={clients: 1, jwt: x}", "populations.service.jwt"),
        (SERVER, "target=[nats://a, mqtt://b]", "target"),
    ],
    ids=lambda value: value if len(value or "") < 80 else "",
)
def test_keys_that_do_not_fit_are_errors(text: str, override: str, path: str | None) -> None:
    if path is None:
        parse_scenario(text, "s.yaml", (override,))
        return
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "s.yaml", (override,))
    assert path in str(caught.value)


def test_a_subject_may_have_ranges_with_dots() -> None:
    text = changed(GATEWAY, "populations.backend.publications.0.topic: 'c.{1..9}.{n}'")
    assert plan_of(text).populations[1].publications[0].topic == "c.{1..9}.{n}"


def options_of(population: PlannedPopulation) -> NatsProtocol:
    """Returns the options of clients of NATS."""
    assert isinstance(population.protocol, NatsProtocol)
    return population.protocol


def test_streams_acknowledge_publications_and_keep_messages_of_subscribers() -> None:
    plan = plan_of(STREAMS)
    shop, audit, worker = plan.populations
    orders = PlannedStream(name="ORDERS", subjects=("order.>",), in_memory=True, replicas=1)
    assert [options_of(each).streams for each in plan.populations] == [(orders,)] * 3
    assert [(each.qos, each.window) for each in shop.publications] == [(1, 10)]
    waits = [options_of(each).consumers for each in (shop, audit, worker)]
    second = PlannedConsumer(stream="ORDERS", ack_wait_ns=SECOND_NS)
    assert waits == [(), (second.model_copy(update={"ack_wait_ns": 3 * SECOND_NS}),), (second,)]
    assert [each.keeps_session for each in plan.populations] == [False, True, True]
    words = "\n".join(plan_in_words(parse_scenario(STREAMS, "s.yaml"), plan))
    assert "order.* in queue group workers through durable consumers of ORDERS" in words


OF_GROUP = "{topic: '%s', stream: ORDERS, group: workers}"
"""A subscription through the durable consumer of the group."""


@pytest.mark.parametrize(
    ("override", "path"),
    [
        ("populations.shop.publications.0.stream=ORDER", "shop.publications.0.stream"),
        ("populations.audit.subscriptions.0.stream=ORDER", "audit.subscriptions.0.stream"),
        ("populations.audit.subscriptions=[{topic: a, stream: ORDERS}, b]", "audit.subscriptions"),
        ("populations.audit.flapping=1s", "audit.flapping"),
        ("populations.worker.subscriptions.0.ack_wait=5s", "worker.subscriptions.0.ack_wait"),
        ("drain=1s", "worker.subscriptions.0.ack_wait"),
        ("populations.shop.publications=[{topic: a, rate: 1/s, window: 1}]", "0.window"),
        ("topology.streams.ORDERS.subjects=['order.{n}']", "streams.ORDERS.subjects.0"),
        ("topology.streams.ORDERS.subjects=[]", "streams.ORDERS.subjects"),
        ("topology.streams.ORDERS.replicas=6", "streams.ORDERS.replicas"),
        (f"populations.worker.subscriptions=[{OF_GROUP % 'order.{n}'}]", "worker.{0}.group"),
        (f"populations.audit.subscriptions=[{OF_GROUP % 'order.a'}]", "audit.{0}.group"),
        (
            f"populations.worker.subscriptions=[{OF_GROUP % 'order.a'}, {OF_GROUP % 'order.b'}]",
            "worker.{0}.group",
        ),
    ],
)
def test_streams_that_do_not_fit_are_errors(override: str, path: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(STREAMS, "s.yaml", (override,))
    assert path.format("subscriptions.0") in str(caught.value)


def test_a_stream_at_a_target_may_exist_already() -> None:
    text = SERVER.replace("subscriptions: [a.b]", "subscriptions: [{topic: a.b, stream: KNOWN}]")
    nats = options_of(plan_of(text).populations[0])
    assert nats.streams == ()
    assert [each.stream for each in nats.consumers] == ["KNOWN"]
