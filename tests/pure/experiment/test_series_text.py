"""Summaries of series in one line."""

from __future__ import annotations

from pathlib import Path

from pubstorm.experiment.series import text_of
from pubstorm.result import LimitedBy, SeriesStep, Status
from tests.kit import golden

PASS, FAIL, INVALID = Status.PASS, Status.FAIL, Status.INVALID
LIMITS = {PASS: LimitedBy.NONE, FAIL: LimitedBy.BROKER, INVALID: LimitedBy.GENERATOR}


def steps(*outcomes: Status | str | None, repetitions: int = 1) -> list[SeriesStep]:
    """Steps with a verdict, a problem in words, or neither."""
    made = []
    for place, outcome in enumerate(outcomes):
        status = outcome if isinstance(outcome, Status) else None
        made.append(
            SeriesStep(
                number=place + 1,
                label=f"clients {place // repetitions + 1}k",
                values={},
                repetition=place % repetitions + 1,
                repetitions=repetitions,
                folder="",
                command="",
                note="",
                status=status,
                limited_by=None if status is None else LIMITS[status],
                evidence=("it was slow", "it was late") if status in {FAIL, INVALID} else (),
                problem=outcome if status is None else None,
            )
        )
    return made


def test_a_step_that_does_not_fit_is_none_that_broke() -> None:
    [first, second] = steps(PASS, None)
    unfit = second.model_copy(update={"unfit": "it needs 26.0 GB of memory, 22.0 GB are available"})
    assert unfit.outcome == "not run"
    needs = "clients 2k not run: it needs 26.0 GB of memory, 22.0 GB are available"
    held = "passed up to clients 1k, the last step played"
    assert text_of([first, unfit], is_ladder=True) == f"{held}; {needs}"
    assert text_of([unfit], is_ladder=True) == f"no step was played; {needs}"


OUTCOMES: tuple[tuple[Status | str | None, ...], ...] = (
    (PASS, PASS),
    (PASS, PASS, FAIL),
    (PASS, INVALID, None, None),
    (FAIL, PASS, PASS),
    (PASS, FAIL, PASS),
    (PASS, "the broker exited\nits log"),
    (None, None),
)


def test_a_ladder_says_how_far_it_held_and_what_broke() -> None:
    lines = [text_of(steps(*outcomes), is_ladder=True) for outcomes in OUTCOMES]
    golden.agree(Path(__file__).with_name("ladders.golden"), "\n".join([*lines, ""]))


def test_a_step_holds_if_all_of_its_repeats_do() -> None:
    played = steps(PASS, PASS, PASS, FAIL, repetitions=2)
    assert text_of(played, is_ladder=True) == (
        "passed up to clients 1k; clients 2k (2 of 2) failed: limited by broker: it was slow"
    )


def test_other_series_are_counted() -> None:
    assert text_of(steps(PASS, FAIL, INVALID, "no", None), is_ladder=False) == (
        "1 of 4 steps passed, 1 failed, 1 invalid, 1 without a measurement; clients 2k failed: "
        "limited by broker: it was slow; 1 of 5 steps not played"
    )


def test_each_variant_has_a_line_of_its_own() -> None:
    both = [
        step.model_copy(update={"label": f"{step.label}, {variant}", "base": step.label, **own})
        for variant, outcomes in (("fast", (PASS, FAIL)), ("slow", (PASS, None)))
        for step in steps(*outcomes)
        for own in [{"variant": variant}]
    ]
    assert text_of(both, is_ladder=True).splitlines() == [
        "fast: passed up to clients 1k; clients 2k failed: limited by broker: it was slow",
        "slow: passed up to clients 1k, the last step played; 1 of 2 steps not played",
    ]
