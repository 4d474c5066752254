"""Shipped scenarios against a broker elsewhere: expressions that named their own brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubstorm.scenario import Scenario, parse_scenario

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
