"""What a search says: intervals, lower bounds, who set the limit, and what a point is worth."""

from __future__ import annotations

import pytest

from pubstorm.quantity import THIN_SPACE
from pubstorm.result import LimitedBy, SearchAnswer, SearchPoint, Status
from pubstorm.search.answer import Terms, answer_of
from pubstorm.search.point import in_words, outcome_of, unfit, without_measurement
from pubstorm.search.strategy import Outcome, Settings, State, Strategy
from pubstorm.search.student import interval, t_quantile

TERMS = Terms("per_s", 1.0, "backend.received_per_s", "per_s", 0.95)
EVIDENCE = "device.lost == 0: found 7"


def point(number: int, value: float, outcome: Outcome) -> SearchPoint:
    """A point as a run with this outcome leaves it."""
    status = Status.PASS if outcome.state == "held" else Status.FAIL
    return SearchPoint(
        number=number,
        value=value,
        written=f"{value}/s",
        folder=f"points/{number:03}",
        phase="grow",
        figure=outcome.figure,
        status=status,
        limited_by=LimitedBy.BROKER if outcome.state == "broken" else LimitedBy.HOST,
        counted=outcome.state != "uncounted",
        why="this host was the limit: it was full" if outcome.state == "uncounted" else None,
        evidence=(EVIDENCE,) if outcome.state == "broken" else (),
    )


def answered(settings: Settings, limit: float, host: float = 1e12) -> SearchAnswer:
    """The answer on a system that breaks at a limit, on a host that is full beyond another."""
    strategy, points = Strategy(settings), list[SearchPoint]()
    while (following := strategy.next) is not None:
        value = following.value
        state: State = "held" if value <= limit else "broken"
        state = "uncounted" if value > host else state
        outcome = Outcome(state, min(value, 20_000) if settings.has_figure else None)
        points.append(point(len(points) + 1, value, outcome))
        strategy.take(outcome)
    answer = answer_of(points, strategy.facts, TERMS)
    return answer.model_copy(update={"text": answer.text.replace(THIN_SPACE, " ")})


@pytest.mark.parametrize(
    ("confidence", "degrees", "t"),
    [(0.95, 1, 12.706), (0.95, 2, 4.303), (0.95, 9, 2.262), (0.99, 4, 4.604), (0.9, 30, 1.697)],
)
def test_quantiles_are_those_of_the_tables(confidence: float, degrees: int, t: float) -> None:
    assert t_quantile(confidence, degrees) == pytest.approx(t, abs=0.0006)


def test_the_interval_of_repeats_is_that_of_student() -> None:
    assert interval([10.0, 12.0, 14.0], 0.95) == pytest.approx((12, 7.0317, 16.9683), abs=1e-3)
    assert interval([5.0], 0.95) == (5.0, 5.0, 5.0)


def test_an_answer_has_its_interval_its_limit_and_what_broke() -> None:
    answer = answered(Settings(1000, 1_000_000), 43_607)
    assert answer.best is not None
    assert answer.best.bound == "exact"
    assert answer.best.repeats == 3
    assert answer.best.low <= answer.best.value <= answer.best.high
    assert answer.limited_by is LimitedBy.BROKER
    assert answer.confirmed
    assert answer.best_point == answer.points
    assert answer.text.startswith("43")
    assert "holds (3 repeats, 95 % confidence); " in answer.text
    assert f"/s breaks, limited by broker: {EVIDENCE}; played again, " in answer.text


def test_an_answer_that_breaks_again_is_the_value_below_it_that_held() -> None:
    strategy, points = Strategy(Settings(1000, 1_000_000)), list[SearchPoint]()
    while (following := strategy.next) is not None:
        limit = 43_607 if following.phase != "confirm" else 42_700
        outcome = Outcome("held" if following.value <= limit else "broken")
        points.append(point(len(points) + 1, following.value, outcome))
        strategy.take(outcome)
    answer = answer_of(points, strategy.facts, TERMS)
    confirmed = points[-1]
    assert answer.best is not None
    assert answer.confirmed
    assert answer.best.value == answer.confirmed_at == confirmed.value
    assert answer.best_point == confirmed.number
    assert answer.best.low == confirmed.value < answer.best.high
    assert answer.best.bound == "none"
    said = answer.text.replace(THIN_SPACE, " ")
    assert said.startswith(f"the limit is {answer.best.text}".replace(THIN_SPACE, " "))
    assert " did not hold and " in said


def test_an_answer_that_never_holds_again_is_not_confirmed() -> None:
    strategy, points = Strategy(Settings(1000, 1_000_000)), list[SearchPoint]()
    while (following := strategy.next) is not None:
        held = following.phase != "confirm" and following.value <= 43_607
        outcome = Outcome("held" if held else "broken")
        points.append(point(len(points) + 1, following.value, outcome))
        strategy.take(outcome)
    answer = answer_of(points, strategy.facts, TERMS)
    assert (answer.confirmed, answer.confirmed_at) == (False, None)


def test_an_answer_looked_for_once_is_a_bracket() -> None:
    answer = answered(Settings(1000, 1_000_000, repeat=1), 43_607)
    assert answer.best is not None
    assert answer.best.bound == "none"
    assert answer.best.low <= 43_607 < answer.best.high
    assert " … " in answer.best.text
    assert answer.text.startswith("the limit is 43")


def test_where_the_host_is_the_limit_the_answer_is_a_lower_bound() -> None:
    answer = answered(Settings(1000, 1_000_000), 1e12, host=43_607)
    assert answer.best is not None
    assert answer.best.bound == "at_least"
    assert answer.best.text.startswith("≥ 41")
    assert answer.limited_by is LimitedBy.HOST
    assert "is not counted: this host was the limit: it was full" in answer.text


def test_where_nothing_breaks_nobody_is_the_limit() -> None:
    answer = answered(Settings(1000, 8000), 1e12)
    assert answer.limited_by is LimitedBy.NONE
    assert answer.text == "≥ 8 000/s holds; the search goes no further; played again, 8 000/s held"


def test_where_nothing_holds_the_answer_says_at_what_it_broke_last() -> None:
    answer = answered(Settings(1000, 8000), 0)
    assert answer.best is None
    assert answer.confirmed is None
    assert answer.text.startswith("no value was found that holds; ")
    assert answer.limited_by is LimitedBy.BROKER


def test_the_largest_figure_has_an_interval_of_its_own() -> None:
    answer = answered(Settings(1000, 1_000_000, has_figure=True), 10_000)
    assert answer.most is not None
    assert (answer.most.value, answer.most.repeats, answer.most.bound) == (20_000, 3, "exact")
    assert "the largest backend.received_per_s is 20 000/s, at " in answer.text
    assert answer.most_point is not None


def test_a_point_that_does_not_fit_is_not_tried_again_and_one_that_failed_to_start_is() -> None:
    empty = point(1, 1000, Outcome("held")).model_copy(update={"status": None, "limited_by": None})
    small, broken = unfit(empty, "it needs 2 GB"), without_measurement(empty, "no broker")
    assert outcome_of(small) == Outcome("uncounted", final=True)
    assert outcome_of(broken) == Outcome("uncounted")
    assert in_words(broken) == "is not counted: no broker"
