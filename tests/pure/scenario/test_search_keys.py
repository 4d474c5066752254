"""The keys of a search: what is allowed, what is wrong and where, and the values that it tries."""

from __future__ import annotations

import pytest

from pubstorm.errors import ScenarioError
from pubstorm.quantities import UnfitError
from pubstorm.scenario import Scenario, searched
from pubstorm.scenario.load import largest, smallest
from pubstorm.scenario.search import span_of
from tests.pure.scenario import varied
from tests.pure.scenario.varied import RATE

THRESHOLDS = "thresholds: [device.skipped == 0]"
SEARCH = f"{{vary: {RATE}, from: 1/s, to: 1k/s}}"


def load(search: str, *more: str, overrides: tuple[str, ...] = ()) -> Scenario:
    return varied.load(THRESHOLDS, f"search: {search}", *more, overrides=overrides)


def problem(search: str, *more: str, overrides: tuple[str, ...] = ()) -> str:
    return "\n".join(varied.problems(THRESHOLDS, f"search: {search}", *more, overrides=overrides))


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


@pytest.mark.parametrize(
    ("search", "found"),
    [
        (f"{{vary: {RATE}, from: 1/s}}", "search.to: found no 'to', which is needed"),
        (f"{{vary: {RATE}, from: 1/s, to: 10}}", "is a quantity of the same kind as from: 1/s"),
        (f"{{vary: {RATE}, from: 5/s, to: 5/s}}", "allowed is more than from, which is 5/s"),
        (f"{{vary: {RATE}, from: soon, to: 5/s}}", "found 'soon', allowed is a quantity"),
        ("{vary: populations.device.rate, from: 1/s, to: 5/s}", "s.yaml:7: search.vary"),
        ("{vary: thresholds, from: 1, to: 5}", "allowed is the path of a value of the load"),
        (f"{{vary: {RATE}, from: 1, to: 5}}", f"s.yaml:7: search.from: with {RATE} 1: found 1"),
        (f"{{vary: {RATE}, from: 1/s, to: 2G/s}}", "search.to: found '2G/s'"),
        (f"{{vary: {RATE}, from: 1/s, to: 9/s, grow: 1}}", "found 1, allowed is 1.1 to 100"),
        (f"{{vary: {RATE}, from: 1/s, to: 9/s, figure: device.snet}}", "did you mean sent"),
        (f"{{vary: {RATE}, from: 1/s, to: 9/s, figure: devise.sent}}", "unknown population"),
        (f"{{vary: {RATE}, from: 1/s, to: 9/s, figure: device.sent@x}}", "unknown span 'x'"),
    ],
)
def test_what_is_wrong_with_a_search_is_reported_with_its_place(search: str, found: str) -> None:
    assert found in problem(search)


def test_a_search_needs_something_that_can_break() -> None:
    text = problem(SEARCH, overrides=("thresholds=[]",))
    assert "found a search without thresholds, needed is at least one" in text


def test_a_sweep_varies_other_values_than_its_searches() -> None:
    text = problem(SEARCH, f"sweep: {{vary: {{{RATE}: [1/s, 2/s]}}}}")
    assert f"found {RATE}, which the sweep varies too" in text
    steps = load(SEARCH, "sweep: {vary: {populations.device.clients: [1, 2]}}").steps
    assert [step.scenario.search is not None for step in steps] == [True, True]
    assert searched(steps[1].scenario, 5).populations["device"].clients == 2


def test_columns_of_a_search_need_one() -> None:
    columns = "table: {most: search.most, cpu: 'search.best:broker.cpu'}\n"
    with pytest.raises(ScenarioError) as caught:
        varied.load(THRESHOLDS, columns)
    assert [each.path for each in caught.value.problems] == ["table.cpu", "table.most"]
    assert "in a scenario without a search" in caught.value.problems[0].message
    assert load(SEARCH, columns, overrides=("search=null",)).search is None
