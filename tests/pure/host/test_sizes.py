"""Sizes of a fleet on a cluster: arithmetic on a plan, and in words."""

from __future__ import annotations

from typing import Any

import pytest

from pubstorm.cli.describe import servers_in_words, sizes_in_words
from pubstorm.contract.capabilities import CAPABILITIES, ProtocolName
from pubstorm.contract.offered_load import Opening
from pubstorm.contract.plan import Plan
from pubstorm.host.calibration import SHIPPED, Calibration, CalibrationFigure, Costs
from pubstorm.host.preflight.engines import clients_bytes
from pubstorm.host.sizing import PlannedRuns, Resource, Sizes, sizes_of
from pubstorm.host.sizing.servers import server_hosts
from pubstorm.host.sizing.traffic import Bytes, Layers, connection, message, moments, ping
from pubstorm.plan import provisional_plan
from pubstorm.scenario import parse_scenario
from pubstorm.scenario.fleet import FleetHost, ScenarioFleet
from pubstorm.topology.adapters import appetite_of
from tests.pure.host import test_calibration

PORTS = 28_232
COSTS = Costs.of(None)
LARGE = FleetHost().model_copy(update={"addresses": 100})

OVER_WEBSOCKET, UNDER_TLS = Layers(websocket=True), Layers(tls=True)


def plan_of(clients: int, more: str = "", stages: str = "", target: str = "mqtt://b") -> Plan:
    text = f"""\
target: {target}
populations:
  c: {{clients: {clients}{more}}}
stages: [{stages or "connect: {rate: 100/s}, hold: 1min"}]
"""
    return provisional_plan(parse_scenario(text, "s.yaml"))


def sizes(plan: Plan, *, agents: int | None = None, spread: str = "strict", **host: Any) -> Sizes:
    chosen = {"agents": agents, "spread": spread, "host": LARGE.model_copy(update=host)}
    fleet = ScenarioFleet(on="ray").model_copy(update=chosen)
    return sizes_of(plan, fleet, COSTS, PORTS, PlannedRuns([(plan, 1)]))


def row(found: Sizes, what: str) -> Resource:
    return next(resource for resource in found.resources if resource.what == what)


@pytest.mark.parametrize(
    ("clients", "host", "hosts", "first"),
    [
        (1, {}, 1, "ports to a target"),
        (2_000_000, {"addresses": 1}, 71, "ports to a target"),
        (2_000_000, {"addresses": 8}, 9, "ports to a target"),
        (2_000_000, {"descriptors": 20_000}, 102, "open files"),
        (2_000_000, {"memory": 2**30}, 11, "memory"),
    ],
)
def test_what_is_shortest_sets_the_number_of_hosts(
    clients: int, host: dict[str, Any], hosts: int, first: str
) -> None:
    found = sizes(plan_of(clients), **host)
    assert (found.hosts, found.agents, found.resources[0].what) == (hosts, hosts, first)
    assert found.clients * found.agents >= clients


@pytest.mark.parametrize(
    ("more", "moment", "hosts"),
    [
        # 500 000 messages a second are 3.6 processors, at half of one for each agent.
        (", publications: [{topic: t, rate: 50/s}]", "publish", 8),
        # 10 000 keep-alives a second cost a tenth of a processor.
        (", keep_alive: 1s", "connect", 1),
    ],
)
def test_processors_are_counted_in_the_busiest_moment(more: str, moment: str, hosts: int) -> None:
    stages = "connect: {rate: 100/s}, publish: 10s" if "rate" in more else ""
    found = row(sizes(plan_of(10_000, more, stages)), "processors")
    assert found.hosts == hosts
    assert f"busiest in {moment}" in found.reason


def test_an_engine_for_each_processor_is_packed_as_the_load_asks_for() -> None:
    busy = plan_of(10_000, ", publications: [{topic: t, rate: 50/s}]", "connect, publish: 10s")
    found = sizes(busy, spread="pack")
    assert (found.hosts, found.agents) == (2, 8)
    words = "  agents       8, of up to 1,250 clients each: --set fleet.agents=8"
    assert words in words_of(found)
    idle = sizes(plan_of(10_000), spread="pack")
    assert (idle.hosts, idle.agents) == (1, 1)


def test_a_given_number_of_engines_is_kept_and_shortages_are_reported() -> None:
    found = sizes(plan_of(2_000_000), agents=20, addresses=1)
    assert (found.hosts, found.agents, found.clients) == (20, 20, 100_000)
    words = list(sizes_in_words(found, PORTS))
    assert "  short  ports to a target: 71 hosts would do" in words
    assert sizes(plan_of(10), agents=20, spread="pack").hosts == 5


def test_time_and_price_follow_from_the_stages() -> None:
    plan = plan_of(1000, stages="connect: {rate: 100/s}, hold: 1min, disconnect: {rate: 50/s}")
    found = sizes(plan)
    assert found.seconds == pytest.approx(90)
    assert found.price == 0
    priced = sizes(plan, price=2)
    assert priced.price_per_hour == 4
    assert priced.price == pytest.approx(0.1)
    assert any("0.10: 2 hosts at 2 an hour are 4.00 an hour" in w for w in words_of(priced))


def words_of(found: Sizes) -> list[str]:
    return list(sizes_in_words(found, PORTS))


def test_clients_that_are_there_already_do_not_connect_again() -> None:
    stages = (
        "connect: {name: half, clients: 50%, rate: 100/s}, connect: {name: all, rate: 100/s}, "
        "hold: 1s"
    )
    assert sizes(plan_of(1000, stages=stages)).seconds == pytest.approx(11)


@pytest.mark.parametrize(
    ("size", "qos", "found"),
    [
        (100, 0, Bytes(166, 66)),
        (100, 1, Bytes(100 + 66 + 66, 70)),
        (100, 2, Bytes(100 + 66 + 70 + 66, 140)),
        (3000, 0, Bytes(3000 + 3 * 66, 2 * 66)),
    ],
)
def test_a_message_takes_its_headers_and_its_answers(size: int, qos: int, found: Bytes) -> None:
    assert message(size, qos) == found
    assert message(size, qos).turned() == Bytes(found.into, found.out)
    framed, secure = (message(size, qos, layers) for layers in (OVER_WEBSOCKET, UNDER_TLS))
    assert found.out < framed.out < secure.out


def test_pings_and_connections_take_a_few_segments() -> None:
    assert ping() == Bytes(134, 68)
    assert ping(OVER_WEBSOCKET) == Bytes(134 + 8, 68 + 8)
    alone = Opening(connect_bytes=30, subscribe_bytes=0, suback_bytes=0)
    both = Opening(connect_bytes=30, subscribe_bytes=10, suback_bytes=5)
    idle, subscribed = connection(alone), connection(both)
    upgraded, secured = (connection(both, each) for each in (OVER_WEBSOCKET, UNDER_TLS))
    assert idle.out < subscribed.out < upgraded.out < secured.out
    assert idle.into == 74 + 2 * 66 + 4


def test_publishers_that_send_often_need_no_keep_alive() -> None:
    stages = "connect: {rate: 1/s}, publish: 10s, hold: 1s"

    def cpu(every: str) -> tuple[float, float]:
        more = f", keep_alive: 10s, publications: [{{topic: t, interval: {every}}}]"
        _, publish, hold = moments(plan_of(1000, more, stages), COSTS)
        return publish.cpu_s, hold.cpu_s

    often, idle = cpu("9s")
    assert often == pytest.approx(1000 / 9 * COSTS.sent[0].value / 1e6)
    assert idle == pytest.approx(1000 / 10 * COSTS.ping.value / 1e6)
    seldom, _ = cpu("100s")
    assert seldom == pytest.approx(1000 / 100 * COSTS.sent[0].value / 1e6 + idle)


def test_deliveries_count_at_the_lower_qos_and_clients_that_come_back_as_connections() -> None:
    more = (
        ", keep_alive: 0s, lifetime: {from: 5s, to: 5s, offline: 5s}, subscriptions: [t], "
        "publications: [{topic: t, rate: 1/s, qos: 1}]"
    )
    _, publish = moments(plan_of(10, more, "connect: {rate: 1/s}, publish: 10s"), COSTS)
    sent = 10 * 0.5 * COSTS.sent[1].value
    received = 10 * 0.5 * 10 * COSTS.received[0].value
    back = 10 / 10 * (COSTS.connect.value + COSTS.sent[1].value)
    assert publish.cpu_s == pytest.approx((sent + received + back) / 1e6)


def test_flapping_clients_send_requests() -> None:
    more = ", keep_alive: 0s, subscriptions: [t], flapping: {from: 4s, to: 6s, unsubscribed: 5s}"
    _, hold = moments(plan_of(1000, more, "connect: {rate: 1/s}, hold: 10s"), COSTS)
    # 100 clients a second: UNSUBSCRIBE has 7 bytes, SUBSCRIBE 8, UNSUBACK 4 and SUBACK 5.
    assert hold.cpu_s == pytest.approx(200 * COSTS.sent[1].value / 1e6)
    assert hold.wire.out == pytest.approx(100 * (7 + 8) + 200 * 2 * 66)
    assert hold.wire.into == pytest.approx(100 * (4 + 5) + 200 * 66)


def test_tls_costs_memory_and_handshakes() -> None:
    plain, secure = (
        sizes(plan_of(10_000, target=target)) for target in ("mqtt://b", "mqtts://b:8883")
    )
    assert row(secure, "memory").needed > 4 * row(plain, "memory").needed
    assert row(secure, "processors").needed > 5 * row(plain, "processors").needed
    assert any("handshake of TLS" in line for line in secure.costs)


def test_quic_costs_other_memory_and_handshakes_than_tls_and_neither_ports_nor_files() -> None:
    secure, quic = (
        sizes(plan_of(10_000, target=target)) for target in ("mqtts://b:8883", "quic://b")
    )
    assert row(quic, "ports to a target").needed == row(quic, "open files").needed == 0
    client = COSTS.client.value + COSTS.quic_client.value
    assert row(quic, "memory").needed == row(secure, "memory").needed + 10_000 * (
        client - COSTS.client.value - COSTS.end.value - COSTS.tls_client.value
    )
    assert any("handshake of QUIC" in line for line in quic.costs)
    assert not any("TLS" in line for line in quic.costs)


@pytest.mark.parametrize("name", ["amqp", "nats"])
def test_a_client_of_another_protocol_needs_more_memory_than_one_of_mqtt(
    name: ProtocolName,
) -> None:
    mqtt, other = (sizes(plan_of(10_000, target=f"{each}://b")) for each in ("mqtt", name))
    more = row(other, "memory").needed - row(mqtt, "memory").needed
    assert more == 10_000 * CAPABILITIES[name].session_bytes > 0
    for found, has in ((other, True), (mqtt, False)):
        assert any(f"{name.upper()} of a client" in line for line in found.costs) is has


def test_a_payload_of_text_is_as_long_as_it_is_when_sent() -> None:
    stages = "connect: {rate: 1/s}, publish: 10s"

    def out(payload: str) -> float:
        more = f", keep_alive: 0s, publications: [{{topic: t, rate: 1/s, {payload}}}]"
        return list(moments(plan_of(1, more, stages), COSTS))[1].wire.out

    assert out("payload: 'v={hex 30}'") == out("size: 32B")


def test_the_ledger_counts_each_stream_at_each_receiver() -> None:
    more = ", subscriptions: ['t/#'], publications: [{topic: 't/{1..3}', rate: 1/s}]"
    pairs = clients_bytes(plan_of(10, more), COSTS) - clients_bytes(plan_of(10), COSTS)
    assert pairs == 10 * 3 * 10 * COSTS.pair.value


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (plan_of(10, ", publications: [{topic: t, rate: max}]", "connect, publish: 1s"), "closed"),
        (plan_of(10, stages="connect"), "without a rate"),
        (plan_of(10, target="mqtt://127.0.0.1"), "do not reach the targets"),
        (plan_of(20_000), "beyond 14,116 connections"),
    ],
)
def test_what_is_not_known_is_said(plan: Plan, words: str) -> None:
    assert any(words in remark for remark in sizes(plan, addresses=1).remarks)
    assert not any(words in remark for remark in sizes(plan_of(10)).remarks)


def calibration(received_qos1: CalibrationFigure | None) -> Calibration:
    sent = test_calibration.figure(100_000)
    update = {
        "calibrated": "2026-11-22T12:00:00",
        "sent_qos0": sent,
        "received_qos1": received_qos1,
    }
    return test_calibration.calibration().model_copy(update=update)


def test_a_calibration_takes_the_place_of_shipped_figures_and_an_old_one_is_to_be_made_anew() -> (
    None
):
    shipped = Costs.of(None, "the calibration of then is of another host")
    assert shipped.word == "the calibration of then is of another host"
    assert shipped.sent[0].source == SHIPPED
    assert "pubstorm calibrate" in Costs.of(None).word
    old = Costs.of(calibration(None))
    assert (old.sent[0].value, old.client.value) == (10, 300)
    assert old.sent[0].source == "calibrated 2026-11-22 on this host"
    assert old.received[1].source == SHIPPED
    assert "run `pubstorm calibrate` again" in old.word
    new = Costs.of(calibration(CalibrationFigure(median=50_000, low=1, high=2)))
    assert (new.received[1].value, new.word) == (20, "")


def test_the_words_name_hosts_reasons_and_sources() -> None:
    words = "\n".join(words_of(sizes(plan_of(2_000_000), addresses=1)))
    assert (
        "hosts        71, and one for the controller; ports to a target set their number" in words
    )
    assert "agents       71, of up to 28,170 clients each" in words
    assert "1 × 28,232 ports on each host" in words
    assert "--set fleet.host.price=0.20" in words
    assert f"µs {SHIPPED}" in words


PLACED = """
topology:
  brokers:
    main: {kind: mosquitto, hosts: broker}
    node: {kind: rabbitmq, count: 2, cluster: true, hosts: rabbits}
    here: {kind: embedded}
  joined: true
populations:
  phone: {clients: 2M, at: main, subscriptions: [a]}
  device: {clients: 1000, at: node, subscriptions: [a]}
  lamp: {clients: 1M, at: here, subscriptions: [a]}
stages: [connect: {rate: 10000/s}]
fleet: {on: ray}
"""


@pytest.mark.parametrize(
    ("brokers", "hosts", "is_enough"),
    [
        # A broker of 60 000 clients needs 0.32 GB, and a host gives 0.8 GB.
        ("a: {kind: mosquitto, count: 6, hosts: broker}", 3, True),
        ("a: {kind: mosquitto, count: 6, hosts: x}, b: {kind: mosquitto, hosts: x}", 3, True),
        ("a: {kind: mosquitto, hosts: x}, b: {kind: mosquitto, hosts: x}", 1, False),
        ("a: {kind: rabbitmq, count: 3, cluster: true, hosts: x}", 3, False),
        ("a: {kind: embedded, count: 2, hosts: x}", 2, False),
    ],
)
def test_a_broker_is_on_one_host_as_a_whole(brokers: str, hosts: int, *, is_enough: bool) -> None:
    text = f"""\
topology: {{brokers: {{{brokers}}}, joined: true}}
populations: {{p: {{clients: 360k, at: a, subscriptions: [x]}}}}
stages: [connect: {{rate: 10000/s}}]
fleet: {{on: ray}}
"""
    scenario = parse_scenario(text, "s.yaml")
    (found,) = server_hosts(scenario, provisional_plan(scenario), COSTS, 10**9, appetite_of)
    assert (found.hosts, found.is_enough) == (hosts, is_enough)


def test_labels_of_services_and_publishers_have_a_host_each() -> None:
    text = """\
topology:
  services: {users: {kind: redis, hosts: store}}
  brokers: {main: {kind: embedded, auth: users, hosts: broker}}
populations: {a: {clients: 1, subscriptions: [x], username: u, password: p}}
stages: [connect]
fleet: {on: ray}
"""
    scenario = parse_scenario(text, "s.yaml")
    found = [*server_hosts(scenario, provisional_plan(scenario), COSTS, 10**9, appetite_of)]
    assert [(each.label, each.brokers, each.hosts) for each in found] == [
        ("broker", 1, 1),
        ("store", 0, 1),
    ]


def test_time_and_price_are_those_of_all_runs_on_all_hosts() -> None:
    plan, other = plan_of(1000), plan_of(2000)
    fleet = ScenarioFleet(on="ray").model_copy(
        update={"host": LARGE.model_copy(update={"price": 0.5})}
    )
    alone = sizes_of(other, fleet, COSTS, PORTS, PlannedRuns([(other, 1)]))
    found = sizes_of(other, fleet, COSTS, PORTS, PlannedRuns([(plan, 3), (other, 3)], servers=2))
    assert (alone.seconds, alone.runs, alone.price_per_hour) == (80, 1, 1.0)
    assert (found.seconds, found.runs, found.price_per_hour) == (3 * (70 + 80), 6, 2.0)
    words = "\n".join(words_of(found))
    assert "1, 2 hosts for brokers, and one for the controller" in words
    assert "7 min 30 s at least, for 6 runs" in words


@pytest.mark.parametrize(("on", "sources"), [("local", 3), ("ray", 0)])
def test_addresses_of_this_host_are_no_sources_of_agents_on_others(on: str, sources: int) -> None:
    text = f"""\
topology: {{brokers: {{a: {{kind: mosquitto}}}}}}
populations: {{p: {{clients: 30k, subscriptions: [x]}}}}
stages: [connect]
fleet: {{on: {on}}}
"""
    assert len(provisional_plan(parse_scenario(text, "s.yaml")).sources) == sources


def test_hosts_of_brokers_are_counted_by_label() -> None:
    scenario = parse_scenario(PLACED, "s.yaml")
    plan = provisional_plan(scenario)
    found = {h.label: h for h in server_hosts(scenario, plan, COSTS, 8 * 10**9, appetite_of)}
    assert (found["broker"].brokers, found["broker"].hosts) == (1, 1)
    assert found["broker"].largest == 2_000_000
    assert (found["rabbits"].brokers, found["rabbits"].hosts) == (2, 2)
    assert found[""].hosts == 1
    assert [h.label for h in found.values() if not h.is_enough] == ["", "broker"]
    words = "\n".join(servers_in_words(list(found.values()), descriptors=1_000_000))
    assert "memory: a host of broker needs 10.6 GB for brokers and gives 6.4 GB" in words
    assert "a broker has 2,000,000 connections and 1,000,000 files" in words
    assert "place brokers (topology.brokers.NAME.hosts)" in words
    assert [*servers_in_words([], descriptors=1)] == []
