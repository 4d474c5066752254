"""Data sheets side by side: the differences that are shown, and those that are noise."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from pydantic import ValidationError

from pubstorm.result import Estimate, LimitedBy
from pubstorm.result.datasheet import Better, Datasheet, SheetCell, SheetDrift, SheetFigure
from pubstorm.result.datasheet_comparison import (
    SheetComparison,
    SheetRow,
    compare_sheets,
    holm,
    outcome_text,
)
from pubstorm.result.interval import estimate_of
from tests.kit.example_datasheet import ARTEMIS, MOSQUITTO, NANOMQ, sheet_of

MEAN = 1000.0
FIGURES = 20
"""Figures of a sheet."""
SEEDS = 50


def figure(name: str, estimate: Estimate | None, **more: object) -> SheetFigure:
    fields = {"name": name, "estimate": estimate, "better": "more", **more}
    return SheetFigure.model_validate(fields)


def made(
    broker: str, figures: Sequence[SheetFigure], drift: float = 0.0, **more: object
) -> Datasheet:
    """Returns a sheet of some figures, each in a cell of its own."""
    cells = tuple(
        SheetCell(
            name=each.name, section="throughput", title=each.name, state="measured", figures=(each,)
        )
        for each in figures
    )
    example = sheet_of()
    identity = example.identity.model_copy(update={"broker": broker})
    fields = {"identity": identity, "cells": cells, "drift": None, **more}
    if drift:
        fields["drift"] = SheetDrift(figure="anchor", values=(), spread=drift)
    return example.model_copy(update=fields)


def noisy(
    broker: str,
    chance: random.Random,
    *,
    factor: float = 1.0,
    noise: float = 0.03,
    of_pass: float = 0.0,
) -> Datasheet:
    """Returns a sheet of figures of three repeats each. `noise` is the share by which repeats
    spread, `of_pass` that of passes."""
    figures = []
    for number in range(FIGURES):
        middle = MEAN * factor * (1 + chance.gauss(0, of_pass))
        values = [middle * (1 + chance.gauss(0, noise)) for _ in range(3)]
        figures.append(figure(f"figure {number}", estimate_of(values, "per_s")))
    return made(broker, figures)


def pair_of(chance: random.Random) -> list[Datasheet]:
    return [noisy(name, chance) for name in "ab"]


def five_of(chance: random.Random) -> list[Datasheet]:
    return [noisy(name, chance) for name in "abcde"]


def passes_of(chance: random.Random) -> list[Datasheet]:
    """Two passes of three brokers, in ABBA order, that differ by more than repeats do."""
    names = [*"abc", *reversed("abc")]
    sheets = [noisy(name, chance, of_pass=0.05) for name in names]
    return [
        sheet.model_copy(update={"started": f"2026-11-21T12:{minute:02}:00+00:00"})
        for minute, sheet in enumerate(sheets)
    ]


@pytest.mark.parametrize("play", [pair_of, five_of, passes_of])
def test_equal_brokers_differ_in_less_than_a_twentieth_of_rows(
    play: Callable[[random.Random], list[Datasheet]],
) -> None:
    rows = [row for seed in range(SEEDS) for row in compare_sheets(play(random.Random(seed))).rows]
    assert len(rows) == SEEDS * FIGURES
    claimed = sum(row.differs for row in rows) / len(rows)
    assert 0.0 < claimed < 0.05


@pytest.mark.parametrize("brokers", [2, 10])
def test_a_factor_of_two_is_found(brokers: int) -> None:
    chance = random.Random(7)
    sheets = [noisy(f"b{n}", chance, noise=0.01) for n in range(brokers - 1)]
    found = compare_sheets([*sheets, noisy("fast", chance, factor=2.0, noise=0.01)])
    names = [column.name for column in found.columns]
    best = [[names[n] for n in row.best] for row in found.rows]
    assert sum(each == ["fast"] for each in best) > 0.8 * FIGURES
    assert all("fast" in each for each in best)


def compared(*figures: SheetFigure, drift: float = 0.0) -> SheetRow:
    """Returns the row of one figure of several brokers."""
    sheets = [made(f"b{n}", [each], drift) for n, each in enumerate(figures)]
    (row,) = compare_sheets(sheets).rows
    return row


def exact(
    value: float, half: float, better: Better = "more", limit: LimitedBy | None = None
) -> SheetFigure:
    estimate = Estimate(value=value, low=value - half, high=value + half, repeats=5, unit="per_s")
    return figure("rate", estimate, better=better, limited_by=limit)


def test_a_difference_inside_the_drift_of_the_anchor_is_none() -> None:
    first, second = exact(1000, 1), exact(1030, 1)
    assert compared(first, second, drift=0.02).best == (1,)
    row = compared(first, second, drift=0.05)
    assert row.pairs[0].outcome == "inside the drift"
    assert (row.differs, row.best) == (False, (0, 1))
    assert outcome_text(row, ("a", "b")) == "no difference"


@pytest.mark.parametrize(("better", "best"), [("more", (1,)), ("less", (0,)), ("", ())])
def test_the_best_is_that_in_the_better_direction(better: Better, best: tuple[int, ...]) -> None:
    row = compared(exact(1000, 1, better), exact(2000, 1, better))
    assert row.best == best
    assert row.differs


def test_a_figure_that_a_limit_of_ours_cut_off_never_wins_and_never_loses() -> None:
    row = compared(exact(2000, 1), exact(1000, 1, limit=LimitedBy.HOST))
    assert row.pairs[0].outcome == "not known"
    assert row.beaten == frozenset()
    assert outcome_text(row, ("a", "b")) == "may be better: b"
    row = compared(exact(1000, 1), exact(2000, 1, limit=LimitedBy.HOST))
    assert row.best == ()
    assert row.beaten == {0}
    assert outcome_text(row, ("a", "b")) == "b is better than a"
    row = compared(*(exact(value, 1, limit=LimitedBy.HOST) for value in (1000, 2000)))
    assert (row.pairs[0].outcome, row.differs) == ("not known", False)
    row = compared(exact(2000, 1), exact(1000, 1), exact(500, 1, limit=LimitedBy.HOST))
    assert outcome_text(row, ("a", "b", "c")) == "best: a; may be better: c"


def test_a_bound_of_a_figure_of_which_less_is_better_is_one_from_above() -> None:
    row = compared(exact(1000, 1, "less"), exact(500, 1, "less", LimitedBy.GENERATOR))
    assert row.figures[1].text == "≤ 500/s"
    assert row.beaten == {0}
    row = compared(exact(1000, 1, "less"), exact(2000, 1, "less", LimitedBy.GENERATOR))
    assert (row.beaten, row.differs) == (frozenset(), False)


def test_a_value_that_was_found_once_says_nothing_of_its_error() -> None:
    once = figure("rate", Estimate(value=10, low=10, high=10, bound="none", unit="per_s"))
    row = compared(once, exact(1000, 1))
    assert (row.pairs[0].outcome, row.best) == ("not known", ())


def test_brackets_are_uniform() -> None:
    def bracket(low: float, high: float) -> SheetFigure:
        estimate = Estimate(value=low, low=low, high=high, bound="none", unit="per_s")
        return figure("rate", estimate)

    assert compared(bracket(1000, 1100), bracket(1050, 1150)).differs is False
    assert compared(bracket(1000, 1100), bracket(2000, 2200)).best == (1,)


def test_limits_without_an_error_differ_however_little() -> None:
    row = compared(exact(65535, 0), exact(65534, 0), drift=0.05)
    assert row.best == (0,)
    assert compared(exact(65535, 0), exact(65535, 0)).differs is False


def test_passes_of_one_broker_are_one_column_with_an_interval_around_theirs() -> None:
    first, second = made("a", [exact(1000, 10)]), made("a", [exact(1100, 20)])
    other = made("b", [exact(3000, 30)])
    found = compare_sheets([first, other, second])
    assert [column.name for column in found.columns] == ["a", "b"]
    assert [len(column.sheets) for column in found.columns] == [2, 1]
    estimate = found.rows[0].figures[0].estimate
    assert estimate is not None
    assert estimate.value == 1050
    assert estimate.low <= 990
    assert estimate.high >= 1120


def test_figures_whose_intervals_overlap_in_all_passes_agree() -> None:
    once = exact(100, 0).estimate
    assert once is not None
    alone = figure("once", once.model_copy(update={"low": 100, "high": 100, "bound": "none"}))
    same, apart = figure("same", exact(100, 10).estimate), figure("apart", exact(100, 10).estimate)
    moved = figure("same", exact(115, 10).estimate), figure("apart", exact(130, 10).estimate)
    found = compare_sheets([made("a", [same, apart, alone]), made("a", [*moved, alone])])
    (column,) = found.columns
    assert (column.agreeing, column.repeated) == (1, 2)


def test_a_broker_with_other_settings_is_a_column_of_its_own() -> None:
    first = made("a", [exact(1000, 10)])
    identity = first.identity.model_copy(update={"settings": "persistence: true"})
    found = compare_sheets([first, first.model_copy(update={"identity": identity})])
    assert [column.name for column in found.columns] == ["a 2.0.18 (1)", "a 2.0.18 (2)"]


def test_terms_that_are_not_equal_are_listed() -> None:
    first, second = sheet_of(MOSQUITTO), sheet_of(ARTEMIS)
    identity = second.identity.model_copy(update={"cpus": (0, 1), "memory_bytes": None})
    second = second.model_copy(
        update={"identity": identity, "for_s": 300, "started": "2026-11-21T12:30:40+00:00"}
    )
    assert list(compare_sheets([first, second]).unequal) == [
        "processors: 0 for mosquitto; 0, 1 for artemis",
        "memory: 2.00 GB for mosquitto; all for artemis",
        "figures of memory: without garbage for mosquitto; with garbage for artemis",
        "time of a sheet: 30:00 for mosquitto; 5:00 for artemis",
        "place in time: the order of passes is mosquitto, artemis",
    ]


def test_passes_in_abba_order_have_the_same_place_in_time() -> None:
    found = compare_sheets(passes_of(random.Random(1)))
    assert {sum(column.turns) for column in found.columns} == {7}
    assert found.unequal == ()


def test_a_row_that_only_some_have_says_why() -> None:
    found = compare_sheets([sheet_of(MOSQUITTO), sheet_of(NANOMQ)])
    row = next(each for each in found.rows if each.cell == "shared")
    assert [each.text for each in row.figures][1] == "–"
    assert row.figures[1].remarks == ("this broker has no shared subscriptions",)
    assert (row.pairs, row.best) == ((), ())


def test_words_are_the_same_or_differ() -> None:
    found = compare_sheets([sheet_of(MOSQUITTO), sheet_of(NANOMQ)])
    rows = {row.figure: row.differs for row in found.rows if row.section == "features"}
    assert rows["shared subscriptions"] is True
    assert rows["topic aliases"] is False


def test_the_smallest_chance_of_many_must_be_smaller() -> None:
    pairs = [(0, 1), (0, 2), (1, 2)]
    assert holm(dict(zip(pairs, (0.02, 0.03, 0.04), strict=True)), 0.05) == frozenset()
    assert holm(dict(zip(pairs, (0.01, 0.03, 0.04), strict=True)), 0.05) == {(0, 1)}
    assert holm(dict(zip(pairs, (0.01, 0.02, 0.04), strict=True)), 0.05) == set(pairs)


def test_a_comparison_is_stored_and_read_again() -> None:
    found = compare_sheets([sheet_of(each) for each in (MOSQUITTO, NANOMQ, ARTEMIS)])
    assert SheetComparison.model_validate_json(found.to_json()) == found


def test_a_stored_row_has_a_figure_for_each_column() -> None:
    found = compare_sheets([sheet_of(MOSQUITTO), sheet_of(NANOMQ)])
    row = found.rows[0].model_copy(update={"figures": found.rows[0].figures * 2})
    broken = found.model_copy(update={"rows": (row,)})
    with pytest.raises(ValidationError, match="found 4 figures of connect, TCP, allowed are 2"):
        SheetComparison.model_validate_json(broken.to_json())


def test_a_bound_in_one_pass_is_a_bound_of_the_mean() -> None:
    found = compare_sheets(
        [
            made("a", [exact(1000, 10)]),
            made("a", [exact(1100, 10, limit=LimitedBy.HOST)]),
            made("b", [exact(900, 10)]),
        ]
    )
    assert [each.text for each in found.rows[0].figures] == ["≥ 1\u202f100/s", "900/s ± 1.1 %"]
    at_least = Estimate(value=7, low=7, high=7, bound="at_least")
    sheets = [made("a", [figure("most", at_least, better="")]) for _ in range(2)]
    assert compare_sheets(sheets).rows[0].figures[0].text == "≥ 7"


def test_a_pass_without_the_figure_is_said() -> None:
    found = compare_sheets([made("a", [exact(1000, 10)]), made("a", [figure("rate", None)])])
    assert found.rows[0].figures[0].remarks == ("1 of 2 passes",)


def test_a_pass_that_did_not_play_the_cell_is_no_pass_of_its_figures() -> None:
    left_out = made("a", [figure("rate", None)])
    why = "not measured in this time: it needs about 52.0 s, 32.9 s were left"
    cell = left_out.cells[0].model_copy(update={"state": "left out", "why": why, "figures": ()})
    left_out = left_out.model_copy(update={"cells": (cell,)})
    row = compare_sheets([made("a", [exact(1000, 10)]), left_out, made("b", [exact(9, 1)])]).rows[0]
    assert row.figures[0].remarks == ()
    row = compare_sheets([left_out, made("b", [exact(9, 1)])]).rows[0]
    assert row.figures[0].remarks == ("not measured in this time",)


def test_the_anchor_that_is_measured_again_is_no_row() -> None:
    first, again = exact(1000, 10), figure("rate", estimate_of([990.0, 1005.0], "per_s"))
    sheet = made("a", [first, again])
    cells = [
        cell.model_copy(update={"name": name})
        for cell, name in zip(sheet.cells, ("anchor", "anchor-end"), strict=True)
    ]
    assert first.estimate is not None and again.estimate is not None
    drift = SheetDrift(figure="anchor", values=(first.estimate, again.estimate), spread=0.01)
    sheet = sheet.model_copy(update={"cells": tuple(cells), "drift": drift})
    assert [row.cell for row in compare_sheets([sheet]).rows] == ["anchor"]
