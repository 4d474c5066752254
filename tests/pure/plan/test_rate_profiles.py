"""Rate profiles of publish stages: the points of a plan."""

from __future__ import annotations

from math import cos, tau
from pathlib import Path

import pytest

from pubstorm.cli.describe.plan import plan_in_words
from pubstorm.contract.plan import Plan, PlannedRatePoint, PublishAction
from pubstorm.host.binaries import offered_load
from pubstorm.plan import provisional_plan
from pubstorm.scenario import parse_scenario
from tests.pure.scenario.bases import RATED

SECOND_NS = 10**9
PROFILE = "stages.1.publish.rate_profile"


def plan(*overrides: str) -> Plan:
    return provisional_plan(parse_scenario(RATED, "s.yaml", overrides))


def points(*overrides: str) -> list[tuple[float, float]]:
    """Seconds and factors."""
    action = plan(*overrides).stages[1].action
    assert isinstance(action, PublishAction)
    return [(point.after_ns / SECOND_NS, point.factor) for point in action.rate_profile]


def test_without_a_profile_there_are_no_points() -> None:
    assert points() == []


def test_factors_are_taken_as_they_are_written() -> None:
    written = "{points: [{at: 0s, factor: 0}, {at: 5s, factor: 2}, {at: 5s, factor: 0.5}]}"
    assert points(f"{PROFILE}={written}") == [(0, 0), (5, 2), (5, 0.5)]
    assert points(f"{PROFILE}={written}", f"{PROFILE}.factor=3") == [(0, 0), (5, 6), (5, 1.5)]


def test_rates_are_those_of_all_active_clients_together() -> None:
    """100 clients with 2/s and 25 with 4/s are 300/s."""
    written = "{points: [{at: 0s, rate: 150/s}, {at: 10s, rate: 600/s}]}"
    assert points(f"{PROFILE}={written}") == [(0, 0.5), (10, 2)]
    alone = "stages.1.publish.populations=[device]"
    assert points(f"{PROFILE}={written}", alone) == [(0, 0.75), (10, 3)]


def test_a_sine_begins_at_its_lowest_and_comes_back_each_period() -> None:
    found = points(f"{PROFILE}={{sine: {{period: 4s, low: 0.5, high: 1.5}}}}")
    assert found[0] == (0, 0.5)
    assert [found[n][0] for n in (32, 64, -1)] == [2, 4, 10]
    for at_s, factor in found:
        assert factor == pytest.approx(1 - 0.5 * cos(tau * at_s / 4))


@pytest.mark.parametrize(
    ("column", "expected"), [("rate", [0.5, 2.0, 1.0]), ("factor", [150, 600, 300])]
)
def test_a_file_is_replayed_from_its_first_row(
    tmp_path: Path, column: str, expected: list[float]
) -> None:
    file = tmp_path / "day.csv"
    file.write_text(f"time,site,{column}\n1000,a,150\n1002.5,b,600\n1004,c,300\n")
    found = points(f"{PROFILE}={{csv: {file}}}")
    assert [at_s for at_s, _ in found] == [0, 2.5, 4]
    assert [factor for _, factor in found] == pytest.approx(expected)


def test_the_path_of_a_file_is_from_the_folder_of_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text("time,factor\n0,1\n")
    where = str(tmp_path / "s.yaml")
    read = parse_scenario(RATED, where, [f"{PROFILE}={{csv: day.csv}}"])
    action = provisional_plan(read).stages[1].action
    assert isinstance(action, PublishAction)
    assert action.rate_profile == (PlannedRatePoint(after_ns=0, factor=1.0),)


def test_the_offered_load_has_a_mean_and_a_peak() -> None:
    ramp = "{points: [{at: 0s, factor: 0}, {at: 10s, factor: 3}]}"
    read = parse_scenario(RATED, "s.yaml", [f"{PROFILE}={ramp}"])
    planned = provisional_plan(read)
    (phase,) = offered_load(planned).stages[1].phases
    assert phase.sent_per_s == pytest.approx(450)
    assert phase.peak == pytest.approx(2)
    assert offered_load(planned).peak_per_s == pytest.approx(2 * 900)
    assert offered_load(planned).stages[1].sent_total == pytest.approx(4500)
    words = "\n".join(plan_in_words(read, planned))
    assert "about 450 sent/s and 450 delivered/s in the mean, 900 and 900 at the peak" in words
