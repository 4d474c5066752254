"""Flows that a program of the user carries into a real RabbitMQ and out of it: what it drops and
doubles is known, and consumers of AMQP count the same."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from pubstorm.host.children import find
from tests.kit import carrier
from tests.kit.runs import RunMaker
from tests.kit.starved import passes

pytestmark = [
    pytest.mark.skipif(find("rabbitmq-server") is None, reason="rabbitmq-server is not installed"),
    pytest.mark.skipif(find("mosquitto") is None, reason="mosquitto is not installed"),
    pytest.mark.skipif(find("nats-server") is None, reason="nats-server is not installed"),
    pytest.mark.xdist_group("amqp"),
]

SENT = 10 * 50 * 2
BRIDGE = """\
  services:
    bridge:
      kind: command
      command: [PYTHON, CARRIER, "{FROM.host}:{FROM.port}", "TO", 'FAULTS']
      ready: carries
"""
RUN = """\
stages: [connect, {publish: 2s}, disconnect]
defaults: "off"
"""
INTO = f"""\
topology:
  brokers: {{source: {{kind: mosquitto}}, rabbit: {{kind: rabbitmq}}}}
{BRIDGE}\
populations:
  sensor:
    clients: 10
    at: source
    publications: [{{topic: "device/{{n}}/telemetry", rate: 50/s, qos: 1}}]
  backend:
    protocol: amqp
    clients: 2
    at: rabbit
    subscriptions: [{{exchange: amq.topic, key: device.*.telemetry}}]
  worker:
    protocol: amqp
    clients: 3
    at: rabbit
    subscriptions: [{{exchange: amq.topic, key: device.#, queue: work, prefetch: 10}}]
flows:
  - from: "device/{{n}}/telemetry"
    of: sensor
    to: "amq.topic/device.{{n}}.telemetry"
    at: backend
thresholds: [sensor.sent == {SENT}, backend.connected == 2, worker.connected == 3]
{RUN}"""
OUT_OF = f"""\
topology:
  brokers: {{source: {{kind: rabbitmq}}, server: {{kind: nats}}}}
{BRIDGE}\
populations:
  sensor:
    protocol: amqp
    clients: 10
    at: source
    publications:
      - {{exchange: amq.topic, key: "device.{{n}}.telemetry", rate: 50/s, confirm: true}}
  backend: {{protocol: nats, clients: 2, at: server, subscriptions: [device.*.telemetry]}}
  worker:
    protocol: nats
    clients: 3
    at: server
    subscriptions: [{{topic: device.>, group: workers}}]
flows:
  - from: "amq.topic/device.{{n}}.telemetry"
    of: sensor
    to: "device.{{n}}.telemetry"
    at: backend
thresholds: [sensor.sent == {SENT}, sensor.acked == {SENT}, backend.connected == 2]
{RUN}"""
ENDS = {INTO: "amqp://{rabbit.host}:{rabbit.amqp}", OUT_OF: "nats://{server.host}:{server.nats}"}


@dataclass(frozen=True)
class Carried:
    """A run with a bridge that has faults."""

    code: int
    result: dict[str, Any]
    counts: Mapping[str, int]
    """Messages by kind, as the bridge has counted them."""


def carried(start: RunMaker, text: str, **faults: float) -> Carried:
    """Plays a scenario with these faults of the bridge, to the end."""
    whole = text.replace("FROM", "source").replace('"TO"', f'"{ENDS[text]}"')
    run = start(carrier.bridged(whole, faults))
    code = run.finish()
    log = (run.directory / "topology/bridge/service.log").read_text()
    counts = Counter(json.loads(log.splitlines()[-1]))
    assert counts["taken"] == SENT, log
    return Carried(code, run.result(), counts)


@pytest.mark.parametrize("text", [INTO, OUT_OF], ids=["into", "out of"])
@pytest.mark.slow("RabbitMQ starts")
def test_what_the_bridge_drops_and_doubles_is_counted_at_each_consumer(
    start: RunMaker, text: str
) -> None:
    run = carried(start, text, drop=10, double=25)
    assert passes(run.code, run.result), run.result["verdict"]
    dropped, doubled = run.counts["dropped"], run.counts["doubled"]
    assert dropped == SENT // 10
    # Each 25th message is among those dropped every other time.
    assert doubled == SENT // 50
    flows = {flow["to"]: flow for flow in run.result["flows"]}
    assert {*flows} == {"backend", "worker"}
    for to, times in (("backend", 2), ("worker", 1)):
        flow = flows[to]
        assert flow["source"] == "sensor"
        assert flow["expected_total"] == SENT * times
        assert flow["lost_total"] == dropped * times
        assert flow["duplicate_total"] == doubled * times
        assert flow["received_total"] == (SENT - dropped) * times
    assert flows["backend"]["reordered_total"] == 0
    assert all(each["foreign_total"] == 0 for each in run.result["populations"].values())


@pytest.mark.slow("RabbitMQ starts")
def test_what_the_bridge_delays_and_swaps_arrives_late_and_reordered(start: RunMaker) -> None:
    run = carried(start, INTO, swap=11, delay_s=0.3)
    assert passes(run.code, run.result), run.result["verdict"]
    flow = {each["to"]: each for each in run.result["flows"]}["backend"]
    swapped = run.counts["swapped"]
    assert flow["reordered_total"] == 2 * swapped > 100
    assert flow["lost_total"] == 2 * (run.counts["held"] - swapped)
    assert flow["duplicate_total"] == 0
    assert flow["latency_us"]["intended"]["min"] >= 300_000


@pytest.mark.slow("RabbitMQ starts")
def test_no_verdict_passes_on_messages_of_amqp_whose_stamp_is_dropped(start: RunMaker) -> None:
    run = carried(start, OUT_OF, strip=10)
    populations = run.result["populations"]
    assert populations["backend"]["unstamped_total"] == 2 * run.counts["stripped"] == 2 * SENT // 10
    assert (run.code, run.result["verdict"]["status"]) == (3, "invalid")


ROUTED = """\
topology:
  brokers: {rabbit: {kind: rabbitmq}}
  exchanges:
    orders: {type: topic, arguments: {alternate-exchange: unrouted}}
    unrouted: {type: topic}
    dead: {type: topic}
populations:
  shop:
    protocol: amqp
    clients: 5
    publications:
      - {exchange: orders, key: "order.{n}", rate: 20/s, confirm: true}
      - {exchange: orders, key: "other.{n}", rate: 20/s, confirm: true}
  worker:
    protocol: amqp
    clients: 1
    subscriptions:
      - exchange: orders
        key: order.#
        queue: work
        prefetch: 1
        acknowledge: never
        arguments: {x-message-ttl: 100, x-dead-letter-exchange: dead}
  undertaker: {protocol: amqp, clients: 1, subscriptions: [{exchange: dead, key: order.#}]}
  finder: {protocol: amqp, clients: 2, subscriptions: [{exchange: unrouted, key: other.#}]}
flows:
  - {from: "orders/order.{n}", of: shop, to: "dead/order.{n}", at: undertaker}
  - {from: "orders/other.{n}", of: shop, to: "unrouted/other.{n}", at: finder}
stages: [connect, {publish: 2s}]
defaults: "off"
thresholds: [shop.sent == 400, finder.lost == 0, undertaker.lost == 1, worker.lost == 199]
"""


@pytest.mark.slow("RabbitMQ starts")
def test_messages_that_the_broker_routes_by_itself_are_flows_like_others(start: RunMaker) -> None:
    run = start(ROUTED)
    code = run.finish()
    result = run.result()
    assert passes(code, result), result["verdict"]
    received = {flow["to"]: flow["received_total"] for flow in result["flows"]}
    assert received == {"worker": 1, "undertaker": 199, "finder": 400}
    assert all(each["foreign_total"] == 0 for each in result["populations"].values())
