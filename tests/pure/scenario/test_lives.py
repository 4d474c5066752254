"""Populations that take connections over, from scenario to plan."""

from __future__ import annotations

import pytest

from pubstorm.cli.describe.plan import plan_in_words
from pubstorm.contract.plan import Plan
from pubstorm.errors import ScenarioError
from pubstorm.plan import compile_plan, planned_targets
from pubstorm.scenario import parse_scenario

BASE = """\
target: mqtt://broker
populations:
  device: {{clients: 10, first: 5{device}}}
  thief: {{clients: 4, takes_over: device{thief}}}
  idle: {{clients: 1{idle}}}
stages: [connect]
"""


def scenario_text(device: str = "", thief: str = "", idle: str = "") -> str:
    return BASE.format(device=device, thief=thief, idle=idle)


def plan_of(**keys: str) -> Plan:
    scenario = parse_scenario(scenario_text(**keys), "s.yaml")
    return compile_plan(scenario, planned_targets(scenario), run_tag=1)


@pytest.mark.parametrize("client_id", ["device-{n}", "d{n}x"])
def test_a_taker_has_the_identifiers_and_numbers_of_its_victims(client_id: str) -> None:
    plan = plan_of(device=f", client_id: '{client_id}'")
    device, thief, idle = plan.populations
    assert (thief.client_id, thief.first, thief.takes_over) == (client_id, 5, 0)
    assert (device.takes_over, idle.takes_over) == (None, None)
    assert plan.contested == {0, 1}


def test_a_plan_in_words_names_the_victims() -> None:
    scenario = parse_scenario(scenario_text(), "s.yaml")
    assert "takes connections over from device" in "\n".join(plan_in_words(scenario, plan_of()))


@pytest.mark.parametrize(
    ("keys", "path", "found"),
    [
        ({"idle": ", takes_over: devices"}, "idle.takes_over", "found the unknown population"),
        ({"idle": ", takes_over: idle"}, "idle.takes_over", "found idle itself"),
        ({"idle": ", takes_over: device"}, "idle.takes_over", "which thief takes over too"),
        ({"idle": ", takes_over: thief"}, "idle.takes_over", "which takes over device itself"),
        ({"thief": ", client_id: 'x-{n}'"}, "thief.client_id", "found client_id with takes_over"),
        ({"thief": ", first: 6"}, "thief.first", "found 6, allowed is 5"),
        ({"device": ", shares: {a: 10%}"}, "device.shares", "allowed are none"),
        ({"thief": ", shares: {a: 50%}"}, "thief.shares", "allowed are none"),
    ],
)
def test_takeovers_that_cannot_be_played_are_refused(
    keys: dict[str, str], path: str, found: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(scenario_text(**keys), "s.yaml")
    (problem,) = caught.value.problems
    assert f"populations.{path}: " in str(problem)
    assert found in str(problem)


def test_a_taker_has_at_most_as_many_clients_as_its_victims() -> None:
    text = scenario_text().replace("clients: 4", "clients: 11")
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "s.yaml")
    assert "found 11, allowed are up to 10 with takes_over" in str(caught.value.problems[0])
