"""Default thresholds: which a scenario gets, and what replaces them."""

from __future__ import annotations

import pytest

from pubstorm.scenario import parse_scenario
from pubstorm.scenario.defaults import conditions_of, default_thresholds
from pubstorm.scenario.load import searched

BASE = """
target: mqtt://localhost:1883
populations:
  fast: {clients: 2, subscriptions: ["a/#"]}
  slow: {clients: 4, subscriptions: ["a/#"]}
  device: {clients: 9, publications: [{topic: "a/{n}", rate: 1/s}]}
"""
ALL = ("never_ready == 0", "lost == 0", "skipped == 0")


def defaults(*lines: str, base: str = BASE, overrides: tuple[str, ...] = ()) -> tuple[str, ...]:
    scenario = parse_scenario("\n".join((base, *lines)), "some.yaml", overrides)
    found = default_thresholds(scenario)
    assert all(each.is_default and (each.op, each.value) == ("==", 0) for each in found)
    return tuple(each.source for each in found)


def test_a_scenario_without_thresholds_has_all_of_them() -> None:
    assert defaults() == ALL


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("never_ready == 0", ALL[1:]),
        ("connected == 15", ALL[1:]),
        ("lost_total < 5", (ALL[0], ALL[2])),
        ("loss < 1%", (ALL[0], ALL[2])),
        ("loss@publish < 1%", (ALL[0], ALL[2])),
        ("skipped == 0", ALL[:2]),
        ("device.skipped < 7", ALL[:2]),
        ("fast.lost == 0", (ALL[0], "slow.lost == 0", ALL[2])),
        ("slow.loss < 5%", (ALL[0], "fast.lost == 0", ALL[2])),
        ("device.connected_max == 9", ("fast.never_ready == 0", "slow.never_ready == 0", *ALL[1:])),
        ("device.ack_latency.p99 < 1s", ALL),
        ("received > 0", ALL),
    ],
)
def test_a_threshold_about_the_same_figure_replaces_a_default(
    line: str, left: tuple[str, ...]
) -> None:
    assert defaults(f"thresholds: ['{line}']") == left


def test_they_come_behind_the_thresholds_of_the_scenario() -> None:
    scenario = parse_scenario(f"{BASE}thresholds: [fast.lost == 0]", "some.yaml")
    assert [each.source for each in conditions_of(scenario)] == [
        "fast.lost == 0",
        "never_ready == 0",
        "slow.lost == 0",
        "skipped == 0",
    ]


def test_they_can_be_turned_off() -> None:
    assert defaults("defaults: off") == ()
    assert defaults("defaults: on") == ALL


@pytest.mark.parametrize(
    ("overrides", "left"),
    [
        # A broker drops what a slow reader does not take.
        (("populations.slow.read_rate=1/s",), (ALL[0], "fast.lost == 0", ALL[2])),
        (("populations.slow.lifetime=5s",), (ALL[0], "fast.lost == 0", ALL[2])),
        (("populations.slow.flapping=5s",), (ALL[0], "fast.lost == 0", ALL[2])),
        (("populations.device.publications.0.late=skip",), ALL[:2]),
        (("populations.device.publications.0.rate=max",), ALL[:2]),
        # Without a publish stage there is nothing to lose or to send.
        (("stages=[{connect: {}}, {hold: 1s}]",), ALL[:1]),
        # Shares count one by one where they differ.
        (
            ("populations.slow.shares={lazy: {part: 50%, read_rate: 1/s}}",),
            (ALL[0], "fast.lost == 0", "slow/rest.lost == 0", ALL[2]),
        ),
        (
            ("populations.slow.shares={odd: 50%}", "thresholds=[slow/odd.lost == 0]"),
            (ALL[0], "fast.lost == 0", "slow/rest.lost == 0", ALL[2]),
        ),
        (
            ("populations.slow.shares={odd: 50%}", "thresholds=[fast.lost == 0]"),
            (ALL[0], "slow.lost == 0", ALL[2]),
        ),
        # A population that no stage connects has none of its own.
        (
            ("thresholds=[fast.lost == 0]", "stages=[{connect: {populations: [fast, device]}}, "
             "{publish: 1s}]"),
            ALL[::2],
        ),
    ],
)  # fmt: skip
def test_a_figure_that_is_not_zero_by_design_has_none(
    overrides: tuple[str, ...], left: tuple[str, ...]
) -> None:
    assert defaults(overrides=overrides) == left


def test_a_monitor_with_a_metric_of_the_same_name_replaces_nothing() -> None:
    bridged = """
topology:
  brokers: {main: mosquitto, boxes: {kind: mosquitto, count: 2}}
  bridges: {up: {from: boxes, to: main, topics: [{topic: "a/#", direction: out}]}}
populations:
  fast: {clients: 2, at: main, subscriptions: ["a/#"]}
  device: {clients: 9, at: boxes, publications: [{topic: "a/{n}", rate: 1/s}]}
thresholds: [up.connected.first == 2]
"""
    assert defaults(base=bridged) == ALL


def test_each_trial_of_a_search_has_them() -> None:
    search = "search: {vary: populations.device.publications.0.rate, from: 1/s, to: 9/s}"
    text = f"{BASE}{search}\nthresholds: [device.ack_latency.p99 < 1s]"
    scenario = parse_scenario(text, "some.yaml")
    assert tuple(each.source for each in default_thresholds(searched(scenario, 5.0))) == ALL
