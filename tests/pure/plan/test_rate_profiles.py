"""Rate profiles of publish stages: the points of a plan, and what is refused."""

from __future__ import annotations

from math import cos, tau
from pathlib import Path

import pytest

from pubstorm.cli.describe.plan import plan_in_words
from pubstorm.contract.plan import Plan, PublishAction, RatePoint
from pubstorm.errors import ScenarioError
from pubstorm.host.explain import offered_load
from pubstorm.plan import provisional_plan
from pubstorm.scenario import parse_scenario

SECOND_NS = 10**9
TEXT = """\
target: mqtt://localhost
populations:
  device:
    clients: 100
    publications: [{topic: "d/{n}", rate: 2/s}]
  sensor:
    clients: 50
    publications: [{topic: "s/{n}", rate: 4/s}]
  backend:
    clients: 1
    subscriptions: ["#"]
stages:
  - connect: {clients: {device: 100%, sensor: 50%, backend: 1}}
  - publish:
      for: 10s
"""
PROFILE = "stages.1.publish.rate_profile"


def plan(*overrides: str) -> Plan:
    return provisional_plan(parse_scenario(TEXT, "s.yaml", overrides))


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
    read = parse_scenario(TEXT, where, [f"{PROFILE}={{csv: day.csv}}"])
    action = provisional_plan(read).stages[1].action
    assert isinstance(action, PublishAction)
    assert action.rate_profile == (RatePoint(after_ns=0, factor=1.0),)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("{}", "found neither points nor sine nor csv, needed is one of"),
        ("{points: [{at: 0s, factor: 1}], csv: a}", "found points and csv, needed is one of"),
        ("{points: [{at: 0s}]}", "found neither factor nor rate, needed is one of them"),
        ("{points: [{at: 0s, factor: 1, rate: 1/s}]}", "found factor and rate, needed is one"),
        (
            "{points: [{at: 0s, factor: 1}, {at: 1s, rate: 1/s}]}",
            "found factors and rates, allowed is one of them",
        ),
        (
            "{points: [{at: 2s, factor: 1}, {at: 1s, factor: 1}]}",
            "points.1.at: found 1s, allowed is 2s to 10s",
        ),
        ("{points: [{at: 11s, factor: 1}]}", "points.0.at: found 11s, allowed is 0s to 10s"),
        ("{points: [{at: 1s, factor: 2000000}]}", "found 2000000, allowed is"),
        ("{points: [{at: 0s, rate: 1M/s}], factor: 1000}", "times the rate, allowed is up to"),
        ("{points: [{at: 0s, factor: -1}]}", "points.0.factor: found -1"),
        ("{sine: {period: 1s, low: 2, high: 1}}", "sine.low: found low 2 above high 1"),
        ("{sine: {period: 1ms, high: 1}}", "found more than 100_000 points, allowed are 100_000"),
        ("{sine: {period: 0s, high: 1}}", "sine.period: found '0s'"),
        ("{sine: {period: 1s}}", "high"),
        ("{csv: /nowhere.csv}", "found /nowhere.csv, which cannot be read"),
        ("{csv: 'no\\0name'}", "rate_profile.csv"),
        ("{curve: 1}", "found the unknown key 'curve'"),
        ("7", "rate_profile"),
    ],
)
def test_what_gives_no_rates_is_refused(written: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(TEXT, "s.yaml", [f"{PROFILE}={written}"])
    found = str(caught.value)
    assert message in found
    assert "stages.1.publish" in found


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("time,load\n0,1\n", "found the columns time, load in"),
        ("time,rate,factor\n0,1,1\n", "allowed are time and one of rate and factor"),
        ("rate\n1\n", "allowed are time and one of rate and factor"),
        ("time,rate\n0,1\n5,fast\n", "found '5' and 'fast' in row 2 of"),
        ("time,rate\n0,-1\n", "allowed are seconds, and a rate of 0 or more"),
        ("time,rate\n0,nan\n", "allowed are seconds, and a rate of 0 or more"),
        ("time,rate\n2,1\n1,1\n", "found 1 s after 2 s in"),
        ("time,rate\n", "found no rows in"),
        ("", "found no rows in"),
    ],
)
def test_files_without_rates_are_refused(tmp_path: Path, rows: str, message: str) -> None:
    file = tmp_path / "day.csv"
    file.write_text(rows)
    with pytest.raises(ScenarioError, match=r"rate_profile\.csv") as caught:
        parse_scenario(TEXT, "s.yaml", [f"{PROFILE}={{csv: {file}}}"])
    assert message in str(caught.value)


def test_rates_need_clients_that_publish_from_the_start() -> None:
    written = f"{PROFILE}={{points: [{{at: 0s, rate: 1/s}}]}}"
    later = "stages.1.publish.changes=[{at: 1s, population: device, add: 100}]"
    connect = "stages.0.connect={populations: [backend]}"
    with pytest.raises(ScenarioError, match="found rates, allowed are factors"):
        parse_scenario(TEXT, "s.yaml", [written, later, connect])


def test_a_closed_loop_follows_no_profile() -> None:
    written = f"{PROFILE}={{points: [{{at: 0s, factor: 1}}]}}"
    closed = "populations.sensor.publications.0.rate=max"
    with pytest.raises(ScenarioError, match="a rate profile for sensor with rate max"):
        parse_scenario(TEXT, "s.yaml", [written, closed])
    parse_scenario(TEXT, "s.yaml", [written, closed, "stages.1.publish.populations=[device]"])


def test_publishers_of_zeromq_follow_no_profile() -> None:
    text = "populations:\n  feed: {clients: 1, publisher: libzmq, publications: "
    text += '[{topic: "", rate: 1/s}]}\nstages: [connect, {publish: {for: 1s, rate_profile: '
    text += "{points: [{at: 0s, factor: 1}]}}}]\n"
    with pytest.raises(ScenarioError, match="found a rate profile for the publishers feed"):
        parse_scenario(text, "s.yaml", [])


def test_a_search_can_vary_the_factor_of_a_profile() -> None:
    search = f"search={{vary: {PROFILE}.factor, from: 1, to: 8}}"
    profile = f"{PROFILE}={{sine: {{period: 4s, high: 2}}, factor: 1}}"
    lossless = "thresholds=[backend.lost == 0]"
    assert parse_scenario(TEXT, "s.yaml", [profile, lossless, search]).search is not None


def test_the_offered_load_has_a_mean_and_a_peak() -> None:
    ramp = "{points: [{at: 0s, factor: 0}, {at: 10s, factor: 3}]}"
    read = parse_scenario(TEXT, "s.yaml", [f"{PROFILE}={ramp}"])
    planned = provisional_plan(read)
    (phase,) = offered_load(planned).stages[1].phases
    assert phase.sent_per_s == pytest.approx(450)
    assert phase.peak == pytest.approx(2)
    assert offered_load(planned).peak_per_s == pytest.approx(2 * 900)
    assert offered_load(planned).stages[1].sent_total == pytest.approx(4500)
    words = "\n".join(plan_in_words(read, planned))
    assert "about 450 sent/s and 450 delivered/s in the mean, 900 and 900 at the peak" in words
