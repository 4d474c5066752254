"""Sizes: what `scale` multiplies, `{each NAME}` and limits in percent."""

from __future__ import annotations

import pytest

from pubstorm.scenario import Scenario, parse_scenario, searched
from pubstorm.scenario.model import Step
from tests.pure.scenario.bases import SIZED

BRIDGED = """\
topology:
  brokers:
    cloud: {kind: mosquitto}
    boxes: {kind: mosquitto, count: 40}
  bridges:
    uplink:
      from: boxes
      to: cloud
      topics: [{topic: down/#, direction: in, remote_prefix: "box/{n}/"}]
populations:
  reader: {clients: 40, at: boxes, subscriptions: [down/#]}
  some: {clients: 10, at: {brokers: boxes, first: 20, count: 10}, subscriptions: [down/#]}
  watcher: {clients: 2, scales: false, at: cloud, subscriptions: ["box/#"]}
  writer:
    clients: 20
    at: cloud
    publications: [{topic: "box/{each boxes}/down/{n}", rate: 1/s}]
stages:
  - connect: {clients: {reader: 20, some: 50%}}
  - publish:
      for: 30s
      changes: [{at: 1s, population: reader, add: 10}]
      faults:
        - {at: 9s, kill: boxes, count: 10, for: 1s}
        - {at: 19s, cut: uplink, count: 10, for: 1s}
thresholds: [uplink.connected.first == 100%, reader.connected >= 50%, connected > 10%]
"""


def read(text: str, *settings: str) -> Scenario:
    return parse_scenario(text, "s.yaml", settings)


def sources(scenario: Scenario) -> list[str]:
    return [threshold.source for threshold in scenario.thresholds]


def test_bridged_brokers_their_clients_and_faults_follow_the_scale_together() -> None:
    tenth = read(BRIDGED, "scale=10%")
    assert {name: each.count for name, each in tenth.topology.brokers.items()} == {
        "cloud": 1,
        "boxes": 4,
    }
    clients = {name: each.clients for name, each in tenth.populations.items()}
    assert clients == {"reader": 4, "some": 1, "watcher": 2, "writer": 2}
    at = tenth.populations["some"].attached_to
    assert at is not None and (at.first, at.count) == (2, 1)
    connect, publish = tenth.stages[0].connect, tenth.stages[1].publish
    assert connect is not None and publish is not None and connect.clients is not None
    assert connect.clients["reader"] == 2
    assert publish.changes[0].add == 1
    assert [fault.count for fault in publish.faults] == [1, 1]
    (publication,) = tenth.populations["writer"].flows
    assert publication.topic == "box/{0..3}/down/{n}"
    assert sources(tenth) == [
        "uplink.connected.first == 4",
        "reader.connected >= 2",
        "connected > 0",
    ]


def test_without_a_scale_names_and_percentages_follow_the_numbers_that_are_written() -> None:
    own = read(BRIDGED, "topology.brokers.boxes.count=30", "populations.reader.clients=30")
    assert own.populations["writer"].flows[0].topic == "box/{0..29}/down/{n}"
    assert sources(own)[:2] == ["uplink.connected.first == 30", "reader.connected >= 15"]


def test_numbers_begin_where_the_population_begins() -> None:
    text = SIZED.replace("{0..99}/command", "{each device}/command").replace(
        "clients: 100", "first: 7, clients: 100"
    )
    assert read(text).populations["backend"].flows[0].topic == "device/{7..106}/command"
    literal = text.replace("{each device}", "{{each device}}")
    assert read(literal).populations["backend"].flows[0].topic == "device/{{each device}}/command"


def test_brokers_without_a_bridge_and_ranges_of_topics_keep_their_number() -> None:
    small = read(SIZED.replace("{0..99}/command", "{0..9}/command"), "scale=10%")
    assert small.topology.brokers["broker"].count == 4
    topics = [flow.topic for flow in small.populations["backend"].flows]
    assert topics == ["device/{0..9}/command", "news/{0..99}"]


def test_customers_of_a_federation_follow_the_scale() -> None:
    text = "topology: {brokers: {b: {kind: rabbitmq, federation: {vhosts: 30, direction: out}}}}\n"
    text += 'populations: {c: {clients: 30, username: "customer-{n}:g", password: g}}\n'
    text += "stages: [connect, {hold: 1s}]\n"
    broker = read(text, "scale=0.1").topology.brokers["b"]
    assert broker.model_dump()["federation"]["vhosts"] == 3


def test_a_share_keeps_a_client_and_so_does_the_rest() -> None:
    shares = "shares: {few: {part: 1%}, many: {part: 20%}}"
    text = SIZED.replace("{0..99}", "{each device}", 1).replace(
        "subscriptions: [", f"{shares}, subscriptions: ["
    )
    least = read(text, "scale=1%", "thresholds=[device/rest.connected == 100%]")
    assert least.populations["device"].clients == 3
    assert sources(least) == ["device/rest.connected == 1"]
    with_counts = read(text, "scale=10%", "thresholds=[device/many.connected == 100%]")
    assert sources(with_counts) == ["device/many.connected == 2"]


def test_steps_of_a_sweep_are_called_by_the_sizes_that_are_played() -> None:
    text = SIZED.replace("{0..99}", "{each device}", 1)
    sweep = "sweep={vary: {populations.device.clients: [50, 1k]}}"
    steps = read(text, "scale=10%", sweep).steps

    def shown(step: Step) -> tuple[str, int, object]:
        value = step.played.values["populations.device.clients"]
        return step.played.label, step.scenario.populations["device"].clients, value

    assert [shown(step) for step in steps] == [("clients 5", 5, 5), ("clients 100", 100, 100)]
    assert [*steps[1].variation.overrides.values()] == ["populations.device.clients=1k"]
    topic = steps[1].scenario.populations["backend"].flows[0].topic
    assert topic == "device/{0..99}/command"


def test_counts_of_nothing_and_upper_bounds_hold_at_any_size() -> None:
    text = SIZED.replace("{0..99}", "{each device}", 1)
    lines = ["device.connected > 0", "device.lost == 0", "device.duplicate < 5"]
    assert sources(read(text, "scale=10%", f"thresholds=[{', '.join(lines)}]")) == lines


TOTAL = """\
target: mqtt://broker
populations:
  device:
    clients: 300
    shares: {acked: {part: 20%, qos: 1}}
    publications: [{topic: "t/{n}", total_rate: 30k/s}]
stages: [connect, publish: 1s]
"""


@pytest.mark.parametrize(
    ("settings", "rate"),
    [
        ((), 100),
        (("populations.device.clients=3000",), 10),
        # A tenth of the clients has a tenth of the load.
        (("scale=10%",), 100),
        (("populations.device.publications.0.total_rate=1/min",), 1 / 60 / 300),
    ],
)
def test_a_total_rate_is_divided_among_all_clients(settings: tuple[str, ...], rate: float) -> None:
    scenario = read(TOTAL, *settings)
    (publication,) = scenario.populations["device"].flows
    assert publication.rate_per_s == pytest.approx(rate)


def test_a_search_can_vary_the_total_rate() -> None:
    vary = "populations.device.publications.0.total_rate"
    search = f"search={{vary: {vary}, from: 3k/s, to: 30k/s}}"
    scenario = read(TOTAL, search, "thresholds=[skipped == 0]")
    (publication,) = searched(scenario, 6000).populations["device"].flows
    assert publication.rate_per_s == pytest.approx(20)
