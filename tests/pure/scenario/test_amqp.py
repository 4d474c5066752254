"""AMQP from scenario to plan: targets, kinds of populations, keys, queues, exchanges, logins."""

from __future__ import annotations

import pytest

from pubstorm.cli.describe.plan import plan_in_words
from pubstorm.contract.amqp import (
    AmqpArgument,
    AmqpExchange,
    AmqpLate,
    AmqpMultiple,
    AmqpProtocol,
    AmqpQueue,
    AmqpWord,
)
from pubstorm.contract.capabilities import ROUTING
from pubstorm.contract.offered_load import virtual_hosts
from pubstorm.contract.plan import Plan, PlannedPopulation
from pubstorm.contract.protocol import Property
from pubstorm.contract.target import AmqpTarget, Target, parse_target
from pubstorm.errors import ScenarioError
from pubstorm.plan import provisional_plan
from pubstorm.play.clean_start.declared import own_names
from pubstorm.quantities import SECOND_NS
from pubstorm.scenario import parse_scenario

PLATFORM = """\
topology:
  brokers: {main: {kind: rabbitmq}}
  exchanges:
    telemetry: {durable: true, arguments: {alternate-exchange: rest}}
    rest: {type: fanout}
    jobs: {type: direct}
populations:
  device: {clients: 10, publications: [{topic: "device/{n}/state", rate: 1/s}]}
  sensor:
    protocol: amqp
    clients: 10
    publications:
      - {exchange: telemetry, key: "device.{n}.state", rate: 1/s, confirm: true, window: 10,
         persistent: true, headers: {source: "{n}"}}
  backend:
    protocol: amqp
    clients: 2
    channels: 2
    subscriptions:
      - {exchange: amq.topic, key: device.*.state}
      - {exchange: amq.fanout}
  audit:
    protocol: amqp
    clients: 2
    subscriptions:
      - {exchange: telemetry, key: device.#, queue: "q-{n}", type: quorum, auto_delete: false,
         prefetch: 20, acknowledge: {every: 10}, arguments: {x-max-length: 1000}}
  worker:
    protocol: amqp
    clients: 4
    subscriptions: [{queue: jobs, acknowledge: {after: 1s}, refuse: 5%}]
    publications: [{key: jobs, rate: 1/s, mandatory: true}]
stages: [connect, {publish: 1s}]
"""
HOSTS = """\
topology: {brokers: {main: {kind: rabbitmq, federation: {vhosts: 3, direction: out}}}}
populations:
  customer:
    protocol: amqp
    clients: 3
    virtual_host: "customer-{n}"
    publications: [{exchange: amq.topic, key: state, rate: 1/s}]
  worker:
    protocol: amqp
    clients: 3
    virtual_host: "customer-{n}"
    subscriptions: [{exchange: amq.topic, key: state, queue: states}]
  cloud: {protocol: amqp, clients: 1, subscriptions: [{exchange: amq.topic}]}
stages: [connect, {publish: 1s}]
"""
SERVER = """\
target: amqps://broker.example/shop
populations:
  service:
    clients: 1
    mechanism: external
    tls: {ca: ca.crt, certificate: c.crt, key: c.key}
    subscriptions: [orders]
    publications: [{exchange: theirs, key: a.b, rate: 1/s}]
stages: [connect, {publish: 1s}]
"""


def plan_of(text: str, *overrides: str) -> Plan:
    """Returns the plan of a scenario."""
    return provisional_plan(parse_scenario(text, "s.yaml", overrides))


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("amqp://b", AmqpTarget(host="b", port=5672, virtual_host="/")),
        ("amqp://b:1/", AmqpTarget(host="b", port=1, virtual_host="/")),
        ("amqp://b:1/%2F", AmqpTarget(host="b", port=1, virtual_host="/")),
        ("amqps://[::1]/a%20b", AmqpTarget(host="::1", port=5671, tls=True, virtual_host="a b")),
    ],
)
def test_a_broker_has_a_scheme_a_port_and_a_virtual_host(text: str, target: Target) -> None:
    assert parse_target(text) == target
    assert parse_target(str(target)) == target
    assert not target.speaks_mqtt
    assert "virtual_host" not in target.model_dump(), "the plan has it at populations"


def options_of(population: PlannedPopulation) -> AmqpProtocol:
    """Returns the options of clients of AMQP."""
    assert isinstance(population.protocol, AmqpProtocol)
    return population.protocol


def test_a_broker_of_the_run_has_a_port_for_amqp() -> None:
    plan = plan_of(PLATFORM)
    assert plan.targets == (Target(host="127.0.0.1", port=0, ports={"amqp": 0}),)
    device, sensor, backend, audit, worker = plan.populations
    assert (device.protocol.kind, sensor.mqtt) == ("mqtt", None)
    rest = AmqpExchange(name="rest", type="fanout", durable=False)
    telemetry = AmqpExchange(
        name="telemetry",
        type="topic",
        durable=True,
        arguments=(AmqpArgument(name="alternate-exchange", value="rest"),),
    )
    assert options_of(sensor) == AmqpProtocol(
        connection_name="sensor-{n}",
        virtual_host="/",
        exchanges=(rest, telemetry),
        mandatory=(False,),
        persistent=(True,),
    )
    (publication,) = sensor.publications
    assert (publication.topic, publication.qos, publication.window) == (
        "/telemetry/device.{n}.state",
        1,
        10,
    )
    header = Property(name="user_property", key="source", value="{n}")
    assert publication.properties == (header,)
    assert [each.filter for each in backend.subscriptions] == [
        "/amq.topic/device.*.state",
        "/amq.fanout/#",
    ]
    assert [each.filter for each in audit.subscriptions] == ["/telemetry/device.#"]
    assert [each.filter for each in worker.subscriptions] == ["$share/jobs///jobs"]
    assert [(each.topic, each.qos) for each in worker.publications] == [("//jobs", 0)]


def test_a_queue_has_the_settings_that_its_name_and_type_suggest() -> None:
    _, _, backend, audit, worker = plan_of(PLATFORM).populations
    own, _ = options_of(backend).queues
    (quorum,) = options_of(audit).queues
    assert own == AmqpQueue(
        name="",
        type="classic",
        durable=False,
        exclusive=True,
        auto_delete=True,
        acknowledge=AmqpWord(kind="each"),
    )
    assert quorum == AmqpQueue(
        name="q-{n}",
        type="quorum",
        durable=True,
        exclusive=False,
        auto_delete=False,
        arguments=(AmqpArgument(name="x-max-length", value=1000),),
        prefetch=20,
        acknowledge=AmqpMultiple(every=10),
    )
    (jobs,) = options_of(worker).queues
    assert (jobs.durable, jobs.exclusive, jobs.auto_delete) == (True, False, True)
    assert (jobs.acknowledge, jobs.refused) == (AmqpLate(delay_ns=SECOND_NS), 0.05)
    stream = "populations.worker.subscriptions=[{queue: log, type: stream, acknowledge: never}]"
    (log,) = options_of(plan_of(PLATFORM, stream).populations[4]).queues
    assert (log.durable, log.auto_delete, log.prefetch) == (True, False, 100)
    assert log.acknowledge == AmqpWord(kind="never")
    existing = "populations.worker.subscriptions=[{queue: theirs, declare: false}]"
    (theirs,) = options_of(plan_of(PLATFORM, existing).populations[4]).queues
    assert (theirs.exists, theirs.exclusive, theirs.auto_delete) == (True, False, False)


def test_queues_are_described_in_words() -> None:
    scenario = parse_scenario(PLATFORM, "s.yaml")
    words = "\n".join(plan_in_words(scenario, plan_of(PLATFORM)))
    for expected in (
        "AMQP, virtual host /, 2 channels, heartbeats every 60s",
        "bound to telemetry by device.#",
        "the quorum queue q-{n} (one acknowledgement for 10 deliveries, prefetch 20)",
        "the classic queue jobs (acknowledgements after 1s, 5% refused) of the default exchange",
        "confirmed, persistent",
    ):
        assert expected in words, words


def test_virtual_hosts_keep_messages_apart_and_federation_joins_them() -> None:
    customer, worker, cloud = plan_of(HOSTS).populations
    assert customer.publications[0].topic == "customer-{n}/amq.topic/state"
    assert worker.subscriptions[0].filter == "$share/states/customer-{n}/amq.topic/state"
    assert cloud.subscriptions[0].filter == "*/amq.topic/#"
    apart = "populations.cloud.subscriptions=[{exchange: amq.topic, federated: false}]"
    assert plan_of(HOSTS, apart).populations[2].subscriptions[0].filter == "/amq.topic/#"


def test_populations_at_a_target_have_its_virtual_host_and_may_use_its_exchanges() -> None:
    (service,) = plan_of(SERVER).populations
    amqp = options_of(service)
    assert (amqp.virtual_host, amqp.mechanism, amqp.exchanges) == ("shop", "external", ())
    assert service.publications[0].topic == "shop/theirs/a.b"
    own = "populations.service.virtual_host=other"
    assert options_of(plan_of(SERVER, own).populations[0]).virtual_host == "other"


def test_a_queue_keeps_messages_unless_it_ends_with_its_client() -> None:
    for override, keeps in (
        ("populations.worker.subscriptions=[jobs]", False),
        ("populations.worker.subscriptions=[{queue: jobs, auto_delete: false}]", True),
        ("populations.worker.subscriptions=[{queue: jobs, type: quorum}]", True),
        ("populations.worker.subscriptions=[{queue: jobs, type: stream}]", False),
    ):
        worker = parse_scenario(PLATFORM, "s.yaml", (override,)).populations["worker"]
        assert worker.keeps_session is keeps, override
        assert plan_of(PLATFORM, override).populations[4].keeps_session is keeps, override


SUBSCRIPTION = "populations.worker.subscriptions"


@pytest.mark.parametrize(
    ("override", "path"),
    [
        (f"{SUBSCRIPTION}=[{{exchange: amq.topic, key: a/b}}]", "worker.subscriptions.0.key"),
        (f"{SUBSCRIPTION}=[{{exchange: amq.topic, key: a..b}}]", "worker.subscriptions.0.key"),
        (f"{SUBSCRIPTION}=[{{exchange: amq.topic, key: a.b*}}]", "worker.subscriptions.0.key"),
        (f"{SUBSCRIPTION}=[{{exchange: amq.topic, key: '#.#.#.#'}}]", "subscriptions.0.key"),
        (f"{SUBSCRIPTION}=[{{exchange: amq.topic, key: 'a.{{n}}{{n}}'}}]", "subscriptions.0.key"),
        (f"{SUBSCRIPTION}=[{{exchange: jobs, key: 'a.*'}}]", "worker.subscriptions.0.key"),
        (f"{SUBSCRIPTION}=[{{exchange: jobs}}]", "worker.subscriptions.0.key"),
        (f"{SUBSCRIPTION}=[{{exchange: rest, key: a}}]", "worker.subscriptions.0.key"),
        (f"{SUBSCRIPTION}=[{{exchange: amq.headers}}]", "worker.subscriptions.0.exchange"),
        (f"{SUBSCRIPTION}=[{{exchange: telemtry, key: a}}]", "worker.subscriptions.0.exchange"),
        (f"{SUBSCRIPTION}=[{{exchange: a/b, key: a}}]", "worker.subscriptions.0.exchange"),
        (f"{SUBSCRIPTION}=[{{key: a}}]", "worker.subscriptions.0"),
        (f"{SUBSCRIPTION}=[{{queue: jobs, key: a}}]", "worker.subscriptions.0.key"),
        (f"{SUBSCRIPTION}=[{{queue: a/b}}]", "worker.subscriptions.0.queue"),
        (f"{SUBSCRIPTION}=[{{queue: amq.gen-1}}]", "worker.subscriptions.0.queue"),
        (f"{SUBSCRIPTION}=[jobs, jobs]", "worker.subscriptions.1.queue"),
        (f"{SUBSCRIPTION}=[{{queue: jobs, exclusive: true}}]", "subscriptions.0.exclusive"),
        (f"{SUBSCRIPTION}=[{{exchange: amq.topic, type: quorum}}]", "subscriptions.0.type"),
        (f"{SUBSCRIPTION}=[{{queue: j, type: quorum, exclusive: true}}]", "0.exclusive"),
        (f"{SUBSCRIPTION}=[{{queue: j, type: quorum, durable: false}}]", "0.durable"),
        (f"{SUBSCRIPTION}=[{{queue: j, type: stream, auto_delete: true}}]", "0.auto_delete"),
        (f"{SUBSCRIPTION}=[{{queue: j, type: stream, acknowledge: none}}]", "0.acknowledge"),
        (f"{SUBSCRIPTION}=[{{queue: j, type: stream, prefetch: 0}}]", "0.prefetch"),
        (f"{SUBSCRIPTION}=[{{queue: j, type: stream, refuse: 1%}}]", "0.refuse"),
        (f"{SUBSCRIPTION}=[{{queue: j, acknowledge: never, refuse: 1%}}]", "0.refuse"),
        (f"{SUBSCRIPTION}=[{{queue: j, acknowledge: none, prefetch: 5}}]", "0.prefetch"),
        (f"{SUBSCRIPTION}=[{{queue: j, acknowledge: {{every: 6}}, prefetch: 5}}]", "0.acknowledge"),
        (f"{SUBSCRIPTION}=[{{queue: j, acknowledge: {{every: 6, after: 1s}}}}]", "0.acknowledge"),
        (f"{SUBSCRIPTION}=[{{queue: j, acknowledge: late}}]", "0.acknowledge"),
        (f"{SUBSCRIPTION}=[{{queue: a, acknowledge: {{every: 9}}}}, b]", "1.acknowledge"),
        (f"{SUBSCRIPTION}=[{{queue: j, arguments: {{x: 1.5}}}}]", "0.arguments"),
        (f"{SUBSCRIPTION}=[{{queue: j, arguments: {{x-message-ttl: 1s}}}}]", "0.arguments"),
        (f"{SUBSCRIPTION}=[{{queue: j, arguments: {{x-max-length: -1}}}}]", "0.arguments"),
        (f"{SUBSCRIPTION}=[{{queue: j, arguments: {{x-expires: true}}}}]", "0.arguments"),
        (f"{SUBSCRIPTION}=[{{queue: j, arguments: {{x-overflow: 5}}}}]", "0.arguments"),
        (f"{SUBSCRIPTION}=[{{queue: j, arguments: {{x-queue-type: quorum}}}}]", "0.arguments"),
        (f"{SUBSCRIPTION}=[{{queue: j, auto_delete: false}}, k]", "worker.subscriptions"),
        (f"{SUBSCRIPTION}=[{{queue: j, exchange: amq.topic, key: 'a.{{n}}'}}]", "0.key"),
        (
            f"{SUBSCRIPTION}=[{{queue: 'q-{{n%2}}', exchange: amq.topic, key: 'a.{{n%3}}'}}]",
            "0.key",
        ),
        (f"{SUBSCRIPTION}=[{{queue: 'q-{{n%2}}', exchange: amq.topic, key: 'a.{{n%2}}'}}]", None),
        (f"{SUBSCRIPTION}=[{{queue: 'q-{{n}}'}}]", "worker.subscriptions.0.queue"),
        (f"{SUBSCRIPTION}=[a/b]", "worker.subscriptions.0"),
        (f"{SUBSCRIPTION}=[{{queue: j, declare: false, durable: true}}]", "0.durable"),
        (f"{SUBSCRIPTION}=[{{exchange: amq.topic, key: a, declare: false}}]", "0.declare"),
        ("populations.worker.publications=[{key: 'a.*', rate: 1/s}]", "publications.0.key"),
        ("populations.worker.publications=[{rate: 1/s}]", "publications.0"),
        ("populations.worker.publications=[{exchange: jobs, rate: 1/s}]", "publications.0.key"),
        ("populations.worker.publications=[{key: a, rate: 1/s, window: 5}]", "0.window"),
        ("populations.worker.publications=[{topic: a, rate: 1/s}]", "publications.0.topic"),
        (
            "populations.worker.publications="
            "[{key: a, rate: 1/s}, {key: b, rate: 1/s, confirm: true}]",
            "publications.1.confirm",
        ),
        ("populations.worker.publications.0.qos=1", "publications.0.qos"),
        ("populations.worker.virtual_host=a/b", "worker.virtual_host"),
        ("populations.worker.channels=0", "worker.channels"),
        ("populations.worker.mechanism=external", None),
        (
            "populations.worker={protocol: amqp, clients: 1, mechanism: external, username: u}",
            "worker.username",
        ),
        ("populations.device.virtual_host=a", "device.virtual_host"),
        ("topology.brokers.main={kind: mosquitto}", "populations.sensor"),
        ("topology.exchanges={amq.x: {}}", "exchanges"),
        ("topology.exchanges.rest.type=headers", "exchanges.rest.type"),
    ],
)
def test_keys_that_do_not_fit_are_errors(override: str, path: str | None) -> None:
    if path is None:
        parse_scenario(PLATFORM, "s.yaml", (override,))
        return
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(PLATFORM, "s.yaml", (override,))
    assert path in str(caught.value)


def test_a_queue_of_two_populations_is_shared_by_both() -> None:
    second = (
        """  second: {protocol: amqp, clients: 2, subscriptions: [{queue: "q-{n}"}]}\nstages:"""
    )
    text = PLATFORM.replace("stages:", second)
    first = "populations.audit.subscriptions=[{queue: 'q-{n}'}]"
    with pytest.raises(ScenarioError, match=r"second.subscriptions.0.queue"):
        parse_scenario(text, "s.yaml", (first,))
    first = "populations.audit.subscriptions=[{queue: 'q-{n}', shared: true}]"
    with pytest.raises(ScenarioError, match=r"second.subscriptions.0.queue"):
        parse_scenario(text, "s.yaml", (first,))
    both = (first, "populations.second.subscriptions.0.shared=true")
    _, _, _, audit, _, third = plan_of(text, *both).populations
    assert audit.subscriptions[0].filter == "$share/q-{n}///q-{n}"
    assert third.subscriptions == audit.subscriptions
    other = "populations.second.subscriptions=[{queue: 'q-{n}', shared: true, exchange: amq.topic}]"
    with pytest.raises(ScenarioError, match=r"subscriptions.0.queue"):
        parse_scenario(text, "s.yaml", (first, other))


def test_names_of_amq_topic_are_topics_of_mqtt() -> None:
    for name, topic in (
        ("/amq.topic/device.{n}.state", "device/{n}/state"),
        ("*/amq.topic/a.*.#", "a/+/#"),
        ("/orders/a.b", "/orders/a/b"),
        ("vh-1/amq.topic/a.b", "vh-1/amq.topic/a/b"),
    ):
        assert ROUTING.twin(name) == topic
    assert ROUTING.flow("demo/+") == {"exchange": "amq.topic", "key": "demo.*"}


def test_a_broker_gets_the_virtual_hosts_of_its_clients() -> None:
    plan = plan_of(HOSTS)
    assert virtual_hosts(plan, 0) == ["customer-0", "customer-1", "customer-2", "/"]
    assert virtual_hosts(plan_of(PLATFORM), 0) == ["/"]


def test_names_that_outlive_their_clients_have_a_mark() -> None:
    (own,) = own_names(plan_of(PLATFORM), 0)
    assert [*own.names] == [
        ("exchange", "rest"),
        ("exchange", "telemetry"),
        ("queue", "q-0"),
        ("queue", "q-1"),
        ("queue", "jobs"),
    ]
    (other,) = own_names(plan_of(PLATFORM, "populations.audit.clients=3"), 0)
    assert own.mark != other.mark
    (same,) = own_names(plan_of(PLATFORM, "populations.backend.clients=9"), 0)
    assert own.mark == same.mark
    hosts = [(each.host, [*each.names]) for each in own_names(plan_of(HOSTS), 0)]
    assert hosts == [(f"customer-{n}", [("queue", "states")]) for n in range(3)]


def test_a_default_exchange_needs_no_declaration() -> None:
    assert own_names(plan_of(SERVER, "populations.service.subscriptions=[]"), 0) == []
