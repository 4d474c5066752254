"""Shipped scenarios against a broker elsewhere: expressions that named their own brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubstorm.experiment.invocation import Invocation
from pubstorm.scenario import Scenario, parse_scenario
from pubstorm.scenario.kinds import StartedPublishers

SCENARIOS = Path(__file__).parents[3] / "scenarios"
ELSEWHERE = "mqtt://10.0.0.9:1883"


def retargeted(name: str, target: str = ELSEWHERE) -> Scenario:
    file = SCENARIOS / f"{name}.yaml"
    return parse_scenario(file.read_text(), str(file), target=target)


@pytest.mark.parametrize("name", ["mosquitto-fixed-rate", "mosquitto-bridges", "device-mobile"])
@pytest.mark.parametrize("target", [ELSEWHERE, "mqtt://127.0.0.1:1883"])
def test_each_takes_a_target(name: str, target: str) -> None:
    scenario = retargeted(name, target)
    assert [str(each) for each in scenario.target] == [target.removeprefix("mqtt://")]
    own = parse_scenario((SCENARIOS / f"{name}.yaml").read_text(), f"{name}.yaml")
    assert list(scenario.table) == list(own.table)
    assert len(scenario.steps) == len(own.steps)


def test_figures_of_the_main_broker_are_those_of_the_target() -> None:
    table = retargeted("mosquitto-bridges").table
    assert table["CPU"] == "broker.cpu"
    assert table["packets in"] == "broker.$SYS/messages/received.rate"
    assert table["CPU of all boxes"] == "boxes.cpu"
    assert retargeted("device-mobile").table["balance"] == "target.balance"


def test_a_population_that_is_called_almost_like_the_main_broker_keeps_its_figures() -> None:
    text = TEXT.replace("  device:", "  node-app: {clients: 1}\n  device:")
    scenario = parse_scenario(
        f"{text}  - node-app.connected == 1\n".replace(
            "thresholds: [redis.cpu < 1, node.cpu.max < 100%]", "thresholds:"
        ),
        "s.yaml",
        target=ELSEWHERE,
    )
    assert [each.source for each in scenario.thresholds] == ["node-app.connected == 1"]


def test_a_profile_needs_a_broker_of_this_machine() -> None:
    elsewhere = retargeted("mosquitto-fixed-rate")
    assert elsewhere.profile is None
    assert elsewhere.source.left_out == ("profile: the broker is not on this machine",)
    here = retargeted("mosquitto-fixed-rate", "mqtt://127.0.0.1:1883")
    assert here.profile is not None
    assert here.source.left_out == ()


def test_a_condition_on_the_balance_of_one_target_is_left_out() -> None:
    scenario = retargeted("device-mobile")
    assert all("balance" not in threshold.source for threshold in scenario.thresholds)
    assert scenario.source.left_out == ("node.balance < 105%: one target has no balance",)


TEXT = """\
topology:
  brokers: {node: {kind: rabbitmq, count: 2}}
  services: {redis: redis}
populations:
  device: {clients: 10, publications: [{topic: "d/{n}", rate: 1/s}]}
stages: [connect: {}, publish: 10s]
table:
  redis: redis.cpu
  first: node-1.cpu
thresholds: [redis.cpu < 1, node.cpu.max < 100%]
"""


def test_figures_of_a_service_are_left_out() -> None:
    scenario = parse_scenario(TEXT, "s.yaml", target=ELSEWHERE)
    assert dict(scenario.table) == {"first": "broker.cpu"}
    assert [each.source for each in scenario.thresholds] == ["broker.cpu.max < 100%"]
    assert scenario.source.left_out == (
        "table.redis: redis is not started",
        "redis.cpu < 1: redis is not started",
    )


def test_several_targets_take_the_place_of_a_cluster() -> None:
    file = SCENARIOS / "device-mobile.yaml"
    both = f"{ELSEWHERE} mqtt://10.0.0.10:1883"
    scenario = parse_scenario(file.read_text(), str(file), target=both)
    assert [each.host for each in scenario.target] == ["10.0.0.9", "10.0.0.10"]
    assert scenario.topology.is_joined
    assert any(each.source == "target.balance < 105%" for each in scenario.thresholds)
    assert scenario.source.left_out == ()
    assert "# with --target mqtt://10.0.0.9:1883 --target mqtt://10.0.0.10:1883" in (
        scenario.source_text
    )
    asked = Invocation("device-mobile", (), both)
    assert asked.command().endswith("--target mqtt://10.0.0.9:1883 --target mqtt://10.0.0.10:1883")
    assert asked.load().target == scenario.target


def test_brokers_that_are_no_cluster_are_separate_targets() -> None:
    scenario = parse_scenario(TEXT, "s.yaml", target=f"{ELSEWHERE} mqtt://10.0.0.10:1883")
    assert len(scenario.target) == 2
    assert not scenario.topology.is_joined


def on_cluster(name: str, *overrides: str) -> Scenario:
    file = SCENARIOS / f"{name}.yaml"
    return parse_scenario(file.read_text(), str(file), ("fleet.on=ray", *overrides))


@pytest.mark.parametrize(
    ("name", "hosts"),
    [
        ("mosquitto-fixed-rate", ["topology.brokers.broker.hosts"]),
        ("mosquitto-variants", ["topology.brokers.broker.hosts"]),
        ("mosquitto-perturbation", ["topology.brokers.broker.hosts"]),
        ("mosquitto-bridges", ["topology.brokers.cloud.hosts", "topology.brokers.boxes.hosts"]),
        ("bridge-faults", ["topology.brokers.cloud.hosts", "topology.brokers.boxes.hosts"]),
        ("device-mobile", ["topology.brokers.node.hosts"]),
        ("zmq-pubsub-scale", ["populations.feed.hosts"]),
        ("zmq-slow-subscribers", ["populations.feed.hosts"]),
        ("zmq-quickstart", ["populations.feed.hosts"]),
    ],
)
def test_each_is_played_on_a_cluster_with_brokers_on_their_hosts(
    name: str, hosts: list[str]
) -> None:
    scenario = on_cluster(name, *(f"{key}=broker" for key in hosts))
    for step in scenario.steps or ():
        for feed in step.scenario.publishers.values():
            assert (feed.hosts is None) == bool(step.scenario.source.left_out)
            assert feed.hosts is None or feed.publisher.kind == "libzmq"


def test_a_profile_on_a_cluster_needs_a_broker_of_the_controllers_host() -> None:
    away = on_cluster("mosquitto-fixed-rate", "topology.brokers.broker.hosts=broker")
    assert away.profile is None
    why = "profile: perf runs on the controller's host, and the broker on another"
    assert away.source.left_out == (why,)
    assert [step.scenario.source.left_out for step in away.steps] == [(why,)] * 12
    here = on_cluster("mosquitto-fixed-rate")
    assert (here.profile is None, here.source.left_out) == (False, ())
    local = parse_scenario(
        (SCENARIOS / "mosquitto-fixed-rate.yaml").read_text(),
        "s.yaml",
        ("topology.brokers.broker.hosts=broker",),
    )
    assert (local.profile is None, local.source.left_out) == (False, ())


def test_publishers_whose_clock_is_the_controllers_stay_there() -> None:
    scenario = on_cluster("zmq-pubsub-scale", "populations.feed.hosts=broker")
    by_variant = {}
    for step in scenario.steps:
        feed = step.scenario.populations["feed"]
        assert isinstance(feed, StartedPublishers)
        by_variant[step.variation.variant] = (feed.hosts, len(step.scenario.source.left_out))
    assert by_variant["cpp"] == ("broker", 0)
    assert by_variant["python"] == by_variant["python reconnecting"] == (None, 1)


def test_conditions_that_end_a_run_follow_the_target() -> None:
    text = """\
topology: {services: {users: redis}, brokers: {main: {kind: embedded}}}
populations: {device: {clients: 10}}
stages: [connect]
abort_when: [main.rss.max > 900MB, users.keys > 9, device.connected < 50%]
"""
    scenario = parse_scenario(text, "s.yaml", target=ELSEWHERE)
    lines = [each.source for each in scenario.abort_when]
    assert lines == ["broker.rss.max > 900MB", "device.connected < 5"]
    assert "users.keys > 9: users is not started" in scenario.source.left_out
