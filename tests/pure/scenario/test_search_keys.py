"""The keys of a search, and the values that it tries."""

from __future__ import annotations

import pytest

from pubstorm.quantities import UnfitError
from pubstorm.scenario import Scenario, searched
from pubstorm.scenario.load import largest, smallest
from pubstorm.scenario.series import span_of
from tests.pure.scenario import varied
from tests.pure.scenario.varied import RATE

THRESHOLDS = "thresholds: [device.skipped == 0]"
SEARCH = f"{{vary: {RATE}, from: 1/s, to: 1k/s}}"


def load(search: str, *more: str, overrides: tuple[str, ...] = ()) -> Scenario:
    return varied.load(THRESHOLDS, f"search: {search}", *more, overrides=overrides)


def test_a_trial_is_the_scenario_with_a_value_and_without_the_search() -> None:
    scenario = load(SEARCH, overrides=("populations.device.clients=7",))
    trial = searched(scenario, 12.5)
    assert trial.search is None
    assert trial.populations["device"].flows[0].rate == 12.5
    assert trial.populations["device"].clients == 7
    assert trial.source_text.endswith(f"# with --set search=null\n# with --set {RATE}=12.5/s\n")
    assert smallest(scenario).populations["device"].flows[0].rate == 1
    assert largest(scenario).populations["device"].flows[0].rate == 1000
    assert largest(trial) is trial


def test_the_defaults_look_three_times_to_within_two_percent() -> None:
    search = load(SEARCH).search
    assert search is not None
    assert (search.grow, search.precision, search.repeat, search.retries) == (2, 0.02, 3, 2)
    assert (search.confidence, search.growth, search.broker) == (0.95, 0.02, "fresh")
    assert search.figure is None


@pytest.mark.parametrize(
    ("low", "high", "tried", "written"),
    [
        (10, "10k", 7680, "7680"),
        ("1k/s", "1M/s", 43_600, "43600/s"),
        ("0.1/s", "10/s", 0.25, "1/4 Hz"),
        ("100B", "1MB", 12_300, "12300B"),
        ("10ms", "1s", 25_000_000, "25ms"),
        ("1Mbit/s", "1Gbit/s", 12_000_000, "12Mbit/s"),
        ("10%", "200%", 0.5, "0.5"),
    ],
)
def test_quantities_of_every_kind_can_be_searched(
    low: object, high: object, tried: float, written: str
) -> None:
    measure = span_of(low, high).measure
    assert measure.written(tried) == written
    assert float(measure.parse(written)) == tried


def test_quantities_of_two_kinds_are_no_span() -> None:
    with pytest.raises(UnfitError):
        span_of("1k/s", 1000)


def test_a_sweep_varies_other_values_than_its_searches() -> None:
    steps = load(SEARCH, "sweep: {vary: {populations.device.clients: [1, 2]}}").steps
    assert [step.scenario.search is not None for step in steps] == [True, True]
    assert searched(steps[1].scenario, 5).populations["device"].clients == 2
