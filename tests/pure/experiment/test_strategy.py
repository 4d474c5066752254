"""The strategy of a search on simulated systems: sharp and noisy limits, figures that saturate, a
generator that is the limit, systems that break in between."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

import pytest

from pubstorm.experiment.search.strategy import (
    LIMIT_PRECISION,
    Candidate,
    Facts,
    Settings,
    State,
    Strategy,
    TrialOutcome,
    digits_for,
)

System = Callable[[Candidate], TrialOutcome]
TRIES_MAX = 400
RATES = Settings(low=1000, high=10_000_000)
CLIENTS = Settings(low=10, high=100_000, whole=True)
ONCE = replace(RATES, repeat=1)


def played(settings: Settings, system: System) -> tuple[Facts, list[Candidate]]:
    """A search to its end; it must have one, and never leave its bounds."""
    strategy, tries = Strategy(settings), list[Candidate]()
    while (following := strategy.next) is not None:
        assert settings.low / 1000 <= following.value <= settings.high
        tries.append(following)
        assert len(tries) < TRIES_MAX, "each search ends"
        strategy.take(system(following))
    return strategy.facts, tries


def sharp(limit: float, most: float | None = None) -> System:
    """Holds up to a limit; its figure is the value, up to a largest one."""

    def system(each: Candidate) -> TrialOutcome:
        figure = None if most is None else min(each.value, most)
        return TrialOutcome("passed" if each.value <= limit else "failed", figure)

    return system


def stepped(*steps: tuple[float, State], final: bool = False) -> System:
    """Has one state up to each value; an uncounted one is `final` or not."""

    def system(each: Candidate) -> TrialOutcome:
        state = next(state for limit, state in steps if each.value <= limit)
        return TrialOutcome(state, min(each.value, 20_000), final=final and state == "uncounted")

    return system


def noisy(limit: float, seed: int, spread: float = 0.03) -> System:
    """A limit that is a little different each time."""
    chance = random.Random(seed)

    def system(each: Candidate) -> TrialOutcome:
        drawn = chance.gauss(limit, spread * limit)
        return TrialOutcome("passed" if each.value <= drawn else "failed", min(each.value, drawn))

    return system


def phases(tries: list[Candidate]) -> list[str]:
    return list(dict.fromkeys(each.phase for each in tries))


@pytest.mark.parametrize("limit", [1000, 1001, 43_607, 999_999, 1_234_567, 9_999_999])
def test_a_sharp_limit_is_found_within_the_precision(limit: float) -> None:
    facts, tries = played(RATES, sharp(limit))
    assert len(facts.brackets) == 3
    for bracket in facts.brackets:
        assert bracket.is_exact
        assert bracket.passed is not None
        assert bracket.beyond is not None
        assert bracket.passed <= limit < bracket.beyond
        assert bracket.beyond / bracket.passed - 1 <= RATES.precision
    assert phases(tries) == ["grow", "bisect", "repeat", "confirm"]
    assert facts.confirmations[0][1].state == "passed"


@pytest.mark.parametrize("limit", [10, 11, 12, 57, 300, 7680, 99_999])
def test_numbers_of_clients_are_whole(limit: int) -> None:
    facts, tries = played(CLIENTS, sharp(limit))
    assert all(each.value == int(each.value) for each in tries)
    passed, beyond = facts.brackets[0].passed, facts.brackets[0].beyond
    assert passed is not None
    assert beyond is not None
    assert passed <= limit < beyond
    assert beyond <= passed * 1.02 or beyond == passed + 1


def test_the_first_value_that_breaks_sends_it_down() -> None:
    facts, tries = played(ONCE, sharp(137))
    assert [each.value for each in tries[:4]] == [1000, 500, 250, 125]
    assert facts.brackets[0].passed == pytest.approx(137, rel=0.02)


def test_where_nothing_holds_it_ends_a_thousand_times_below_the_first_value() -> None:
    facts, tries = played(RATES, sharp(0))
    assert facts.best is None
    assert not facts.confirmations
    assert phases(tries) == ["grow"]
    assert min(each.value for each in tries) >= 1
    facts, tries = played(CLIENTS, sharp(0))
    assert facts.best is None
    assert [each.value for each in tries] == [10, 5, 2, 1]


def test_a_target_that_lets_no_client_in_ends_it_after_three_values() -> None:
    facts, tries = played(ONCE, lambda _: TrialOutcome("uncounted", closed=True))
    assert facts.best is None
    assert len({each.value for each in tries}) == 3


def test_a_target_that_lets_clients_in_below_a_value_is_searched_on() -> None:
    opens = 1000 / 2**1.5

    def system(each: Candidate) -> TrialOutcome:
        is_open = each.value <= opens
        return TrialOutcome("passed" if is_open else "uncounted", closed=not is_open)

    facts, _ = played(ONCE, system)
    assert facts.best == pytest.approx(opens, rel=LIMIT_PRECISION)


def test_what_holds_at_the_bound_is_a_lower_bound_and_is_confirmed() -> None:
    facts, tries = played(RATES, sharp(1e9))
    assert facts.best == RATES.high
    assert not facts.estimates[0].is_exact
    assert phases(tries) == ["grow", "confirm"]


def test_growing_goes_on_until_the_figure_grows_no_more() -> None:
    settings = replace(RATES, has_figure=True)
    facts, tries = played(settings, sharp(50_000, most=400_000))
    grown = [each.value for each in tries if each.phase == "grow"]
    assert grown == pytest.approx([1000 * 2**n for n in range(11)], rel=0.01)
    assert facts.best == pytest.approx(50_000, rel=0.02)
    assert facts.most == [400_000] * 3
    assert not facts.most_is_bound
    assert "most" in phases(tries)


def test_a_figure_that_grows_up_to_the_bound_is_a_lower_bound() -> None:
    facts, _ = played(replace(RATES, has_figure=True), sharp(50_000, most=1e9))
    assert facts.most_is_bound
    assert facts.most_value == RATES.high


def test_the_limit_of_the_generator_ends_the_growing_after_its_retries() -> None:
    facts, tries = played(ONCE, stepped((40_000, "passed"), (1e9, "uncounted")))
    above = [each for each in tries if each.phase == "grow" and each.value > 40_000]
    assert [each.attempt for each in above] == [1, 2, 3]
    bracket = facts.brackets[0]
    assert bracket.is_limit
    assert not bracket.is_exact
    assert facts.best == pytest.approx(40_000, rel=LIMIT_PRECISION)


def test_what_breaks_below_the_limit_of_the_generator_is_exact_again() -> None:
    limits = stepped((40_000, "passed"), (60_000, "failed"), (1e9, "uncounted"), final=True)
    facts, _ = played(RATES, limits)
    assert all(bracket.is_exact for bracket in facts.brackets)
    assert facts.best == pytest.approx(40_000, rel=0.02)


def test_a_retry_that_counts_is_enough() -> None:
    flaky = sharp(43_607)

    def system(each: Candidate) -> TrialOutcome:
        return TrialOutcome("uncounted") if each.attempt == 1 else flaky(each)

    facts, tries = played(ONCE, system)
    assert facts.brackets[0].is_exact
    assert {each.attempt for each in tries} == {1, 2}


def test_a_trial_that_would_be_the_same_again_is_not_retried() -> None:
    facts, tries = played(RATES, lambda _: TrialOutcome("uncounted", final=True))
    assert {each.attempt for each in tries} == {1}
    assert min(each.value for each in tries) >= 1
    assert facts.best is None


@pytest.mark.parametrize("seed", range(40))
def test_a_noisy_limit_is_found_near_where_it_is(seed: int) -> None:
    settings = replace(RATES, has_figure=True, repeat=5)
    facts, _ = played(settings, noisy(43_607, seed))
    passed = [bracket.passed for bracket in facts.estimates if bracket.passed is not None]
    assert len(passed) == 5
    assert fmean(passed) == pytest.approx(43_607, rel=0.08)
    assert len(facts.most) == 5


@pytest.mark.parametrize("seed", range(60))
def test_whatever_comes_of_the_trials_it_ends_within_its_bounds(seed: int) -> None:
    chance = random.Random(seed)
    states: list[State] = ["passed", "passed", "failed", "uncounted"]
    settings = replace(
        chance.choice([RATES, CLIENTS]),
        grow=chance.choice([1.1, 1.5, 2, 10]),
        precision=chance.choice([0.001, 0.02, 0.5]),
        has_figure=chance.random() < 0.5,
        repeat=chance.randint(1, 4),
        retries=chance.randint(0, 2),
    )

    def system(_: Candidate) -> TrialOutcome:
        return TrialOutcome(chance.choice(states), chance.choice([None, chance.random()]))

    played(settings, system)


def test_the_answer_is_the_largest_that_held_below_the_smallest_that_broke() -> None:
    island = stepped((3000, "passed"), (7000, "failed"), (9000, "passed"), (1e9, "failed"))
    facts, _ = played(replace(ONCE, has_figure=True), island)
    assert facts.best == pytest.approx(3000, rel=0.02)


def test_an_answer_that_does_not_hold_again_is_followed_by_a_smaller_one() -> None:
    stable = sharp(40_000)

    def system(each: Candidate) -> TrialOutcome:
        if each.phase == "confirm" and each.repetition == 1:
            return TrialOutcome("failed")
        return stable(each)

    facts, _ = played(RATES, system)
    (first, failed), (second, passed) = facts.confirmations
    assert (failed.state, passed.state) == ("failed", "passed")
    assert second < first


def test_the_same_trials_lead_to_the_same_next_one() -> None:
    settings = replace(RATES, has_figure=True)
    _, tries = played(settings, noisy(43_607, 7))
    _, again = played(settings, noisy(43_607, 7))
    assert tries == again


def test_a_finer_precision_tries_values_of_more_digits() -> None:
    assert [digits_for(p) for p in (0.5, 0.02, 0.01, 0.001)] == [3, 3, 3, 4]
    facts, _ = played(replace(ONCE, precision=0.001), sharp(43_607))
    assert facts.best == pytest.approx(43_607, rel=0.001)


def test_the_recovery_of_a_confirmed_answer_is_tested_from_the_smallest_value_that_failed() -> None:
    settings = replace(RATES, recovery=True)
    _, tries = played(settings, sharp(43_607))
    before, (test,) = tries[:-1], tries[-1:]
    confirmed = next(each.value for each in reversed(before) if each.phase == "confirm")
    failed = [each.value for each in before if each.value > 43_607]
    assert (test.phase, test.value, test.beyond) == ("recover", confirmed, min(failed))
    assert all(each.beyond is None for each in before)
    assert played(replace(settings, recovery=False), sharp(43_607))[1] == before


def test_a_recovery_test_that_is_not_counted_is_repeated() -> None:
    def system(each: Candidate) -> TrialOutcome:
        known: State = "passed" if each.value <= 43_607 else "failed"
        return TrialOutcome("uncounted" if each.phase == "recover" else known)

    _, tries = played(replace(ONCE, recovery=True, retries=2), system)
    assert [each.attempt for each in tries if each.phase == "recover"] == [1, 2, 3]


@pytest.mark.parametrize(
    "system",
    [sharp(1e9), sharp(0), stepped((20_000, "passed"), (1e9, "uncounted"))],
    ids=["no value failed", "no value passed", "the host was the limit"],
)
def test_without_an_answer_and_a_value_that_failed_there_is_no_recovery_test(
    system: System,
) -> None:
    _, tries = played(replace(ONCE, recovery=True), system)
    assert "recover" not in phases(tries)


def test_an_answer_that_failed_again_is_not_loaded_further() -> None:
    def system(each: Candidate) -> TrialOutcome:
        is_good = each.value <= 43_607 and each.phase != "confirm"
        return TrialOutcome("passed" if is_good else "failed")

    _, tries = played(replace(ONCE, recovery=True), system)
    assert phases(tries)[-1] == "confirm"
