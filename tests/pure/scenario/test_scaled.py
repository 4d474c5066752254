"""Every ready scenario and each of its steps follows one scale: its topics name clients and brokers
that exist, and its limits can be reached."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pubstorm.errors import ScenarioError
from pubstorm.plan import provisional_plan
from pubstorm.play.oversights import oversights
from pubstorm.scenario import Scenario, load_scenario
from pubstorm.scenario.load import find_scenario, scenario_files, smallest
from pubstorm.scenario.shares import meant_by, shares_of

UNSCALED = {
    "slow-subscriber": "no size that follows it",
    "mqtt5-features": "no size that follows it",
    "sheet-retained": "no size that follows it",
    "sheet-connections": "needed is scale 1",
}
"""Scenarios that no scale fits, with the reason that they give."""
SCALED = [file.stem for file in scenario_files() if file.stem not in UNSCALED]
UNHEARD = {"connection-ladder", "device-mobile", "replay"}
"""Scenarios whose messages have no subscriber on purpose, whose last filters come with steps, or
whose smaller scale leaves recorded subscribers out."""


def steps_of(scenario: Scenario) -> Iterator[Scenario]:
    """Yields the scenarios and their steps, once for each size."""
    seen: list[object] = []
    for each in [step.scenario for step in scenario.steps] or [scenario]:
        if (key := (each.populations, each.topology)) not in seen:
            seen.append(key)
            yield smallest(each)


def size_of(scenario: Scenario, subject: str | None) -> int:
    shares = shares_of(scenario)
    bridge = scenario.topology.bridges.get(subject or "")
    if bridge is not None:
        return scenario.topology.brokers[bridge.from_].count
    names = shares if subject is None else meant_by(shares, subject)
    return sum(shares[name].clients for name in names)


@pytest.mark.parametrize("scale", ["10%", "1%"])
@pytest.mark.parametrize("name", SCALED)
def test_a_ready_scenario_follows_a_scale(name: str, scale: str) -> None:
    for step in steps_of(load_scenario(find_scenario(name), [f"scale={scale}"])):
        for threshold in step.thresholds:
            if threshold.expression.figure.of_a_size:
                assert 0 <= threshold.value <= size_of(step, threshold.expression.subject)
        found = [oversight.text for oversight in oversights(step, provisional_plan(step))]
        assert name in UNHEARD or found == []


@pytest.mark.parametrize("name", UNSCALED)
def test_a_ready_scenario_says_why_it_does_not_follow_a_scale(name: str) -> None:
    with pytest.raises(ScenarioError, match=UNSCALED[name]):
        load_scenario(find_scenario(name), ["scale=10%"])
