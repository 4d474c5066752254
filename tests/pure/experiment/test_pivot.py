"""Tables over a series: figures of its variants as columns, with intervals, bounds and notes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pubstorm.experiment.series import asked_of, figures, pivoted, trials_of
from pubstorm.report import document_of
from pubstorm.report.files import markdown
from pubstorm.report.text import render
from pubstorm.result import (
    Estimate,
    LimitedBy,
    SearchAnswer,
    SearchResult,
    Series,
    SeriesStep,
    SeriesTable,
    Status,
    StepFigure,
    Trial,
)
from pubstorm.result.interval import estimate_of
from pubstorm.scenario.series import Sweep, TableColumn
from tests.kit.example_search import search_of
from tests.pure.experiment import test_series

CLIENTS = "populations.device.clients"
SWEEP = Sweep.model_validate(
    {"vary": {CLIENTS: [30, 1200]}, "variants": {"fast": {}, "slow": {}, "odd": {}}}
)
COLUMNS = {
    "Client Count": TableColumn(metric="clients"),
    "Rate": TableColumn(variant="fast", metric="device.sent_per_s"),
    "Verdict": TableColumn(variant="slow", metric="verdict"),
}


def step(clients: int, variant: str, figure: StepFigure | None, **more: object) -> SeriesStep:
    asked = "device.sent_per_s" if variant == "fast" else "verdict"
    fields: dict[str, Any] = {
        "base": f"clients {clients}",
        "variant": variant,
        "values": {CLIENTS: str(clients)},
        "figures": {} if figure is None else {asked: figure},
        "status": None,
        "limited_by": None,
        **more,
    }
    return test_series.step(f"clients {clients}, {variant}", "a step", **fields)


def rate(value: float, **more: object) -> StepFigure:
    return StepFigure.model_validate({"estimate": estimate_of([value], "per_s"), **more})


def table_of(*steps: SeriesStep, sweep: Sweep = SWEEP) -> SeriesTable:
    (table,) = pivoted({"Rates": COLUMNS}, sweep, steps)
    return table


def texts(table: SeriesTable) -> list[tuple[str, ...]]:
    return [tuple(cell.text for cell in row) for row in table.rows]


def series(table: SeriesTable) -> Series:
    played = step(30, "fast", None, status=Status.PASS)
    text = "fast: passed up to clients 30\nslow: no step was played"
    return test_series.series(("step",), played, tables=(table,), text=text)


def test_a_row_has_what_varies_and_the_figures_of_its_variants() -> None:
    table = table_of(
        step(30, "fast", rate(87_286)),
        step(30, "slow", StepFigure(word="pass")),
        step(1200, "fast", rate(712.4)),
        step(1200, "slow", None),
    )
    assert table.columns == ("Client Count", "Rate", "Verdict")
    assert texts(table) == [("30", "87\u202f286/s", "pass"), ("1\u202f200", "712/s", "–")]
    assert table.rows[0][1].estimate == estimate_of([87_286], "per_s")


def test_repeats_come_to_a_mean_with_its_interval() -> None:
    table = table_of(*(step(30, "fast", rate(value)) for value in (990, 1000, 1010)))
    assert texts(table)[0][1] == "1\u202f000/s ± 24.8/s"
    assert table.rows[0][1].estimate is not None
    assert table.rows[0][1].estimate.repeats == 3


def test_a_bound_among_repeats_makes_their_mean_one() -> None:
    bound = Estimate(value=40_000, low=40_000, high=40_000, bound="at_least", unit="per_s")
    table = table_of(step(30, "fast", rate(41_000)), step(30, "fast", StepFigure(estimate=bound)))
    assert texts(table)[0][1] == "≥ 40\u202f500/s"


def test_columns_of_variants_that_are_not_played_are_left_out() -> None:
    sweep = SWEEP.model_copy(update={"only": ("fast",)})
    assert table_of(step(30, "fast", rate(5)), sweep=sweep).columns == ("Client Count", "Rate")
    odd = SWEEP.model_copy(update={"only": ("odd",)})
    assert pivoted({"Rates": COLUMNS}, odd, [step(30, "odd", None)]) == ()


def test_each_step_is_asked_what_tables_show_of_its_variant() -> None:
    tables = {"Rates": COLUMNS, "More": {"c": TableColumn(variant="fast", metric="device.lost")}}
    assert asked_of(tables, step(30, "fast", None)) == {"device.sent_per_s", "device.lost"}
    assert asked_of(tables, step(30, "odd", None)) == set()


def test_who_else_set_the_limit_is_a_note_below_the_table() -> None:
    host = rate(5, limited_by=LimitedBy.HOST)
    table = table_of(step(30, "fast", host), step(1200, "fast", None, problem="the broker exited"))
    drawn = document_of(series(table)).tables[0]
    assert drawn.texts == (("30", "5.00/s ¹", "–"), ("1\u202f200", "– ²", "–"))
    assert drawn.notes == "¹ this host set the limit; ² it came to no measurement"
    assert [column.right for column in drawn.columns] == [True, True, False]


def test_every_limit_of_what_is_under_test_stands_for_itself() -> None:
    table = table_of(step(30, "fast", rate(5, limited_by=LimitedBy.BROKER)))
    assert table.rows[0][1].remarks == ()


def test_the_tables_are_on_the_terminal_and_in_the_markdown() -> None:
    shown = series(table_of(step(30, "fast", rate(5, limited_by=LimitedBy.GENERATOR))))
    stream = io.StringIO()
    render(document_of(shown), Console(file=stream, width=100))
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    assert "          30   5.00/s ¹   –" in lines
    assert "¹ the load generator set the limit" in lines
    assert lines[-3:-1] == shown.text.splitlines()
    text = markdown(document_of(shown))
    assert "## Rates\n\n| Client Count | Rate | Verdict |\n| ---: | ---: | :--- |" in text
    assert "fast: passed up to clients 30\n\nslow: no step was played\n\n## Rates" in text


def trial(number: int, value: float, figure: float | None, **more: object) -> Trial:
    fields = {
        "number": number,
        "value": value,
        "written": f"{value}/s",
        "folder": f"trials/{number:03}",
        "phase": "grow",
        "figure": figure,
        "status": Status.PASS,
        "limited_by": LimitedBy.NONE,
        **more,
    }
    return Trial.model_validate(fields)


@pytest.fixture
def search() -> SearchResult:
    best = Estimate(value=43_607, low=43_297, high=43_917, repeats=3, unit="per_s")
    most = Estimate(value=46_121, low=46_121, high=46_121, bound="none", unit="per_s")
    trials = (
        trial(1, 1000, 1000),
        trial(2, 2000, 1500, status=Status.FAIL, limited_by=LimitedBy.HOST),
        trial(3, 1400, 1400, phase="bisect"),
        trial(4, 2000, 1520, phase="most", status=Status.FAIL, limited_by=LimitedBy.HOST),
        trial(5, 4000, 9000, status=Status.INVALID, counted=False),
        trial(6, 1300, 1300, phase="confirm"),
    )
    answer = SearchAnswer(
        best=best,
        most=most,
        limited_by=LimitedBy.UNKNOWN,
        confirmed=True,
        best_trial=6,
        most_trial=4,
        trials=6,
    )
    return search_of(trials=trials, answer=answer)


def test_a_search_says_what_it_found_with_its_interval(search: SearchResult) -> None:
    words = ("search.best", "search.most", "search.limited_by", "search.trials")
    found = figures(words, None, search, Path())
    texts = [estimate.text for w in words[:2] if (estimate := found[w].estimate) is not None]
    assert texts == ["43\u202f607/s ± 310/s", "46\u202f121/s"]
    assert found["search.most"].limited_by is LimitedBy.HOST
    assert found["search.limited_by"].word == "unknown"
    assert found["search.trials"].estimate == estimate_of([6], "")


@pytest.mark.parametrize(("word", "numbers"), [("search.best", [6]), ("search.most", [4])])
def test_figures_are_asked_at_the_trials_that_were_found(
    search: SearchResult, word: str, numbers: list[int]
) -> None:
    assert [trial.number for trial in trials_of(search, word)] == numbers


def test_a_largest_figure_and_its_columns_come_from_the_same_trials(search: SearchResult) -> None:
    replayed = tuple(trial(n, 2000, 1500 + n, phase="most") for n in (7, 8))
    more = search.model_copy(update={"trials": (*search.trials, *replayed)})
    assert [each.number for each in trials_of(more, "search.most")] == [4, 7, 8]
    once = tuple(each for each in search.trials if each.phase != "most")
    answer = search.answer.model_copy(update={"most_trial": 2})
    alone = search.model_copy(update={"trials": once, "answer": answer})
    assert [each.number for each in trials_of(alone, "search.most")] == [2]


def test_a_largest_figure_that_was_not_counted_is_shown_with_its_limit(
    search: SearchResult,
) -> None:
    answer = search.answer.model_copy(update={"most_trial": None})
    found = trials_of(search.model_copy(update={"answer": answer}), "search.most")
    assert [trial.number for trial in found] == [5]


def test_an_answer_that_did_not_hold_again_says_so(search: SearchResult) -> None:
    answer = search.answer.model_copy(update={"confirmed": False})
    found = figures(["search.best"], None, search.model_copy(update={"answer": answer}), Path())
    assert found["search.best"].remark == "it failed when it was played again"
    nothing = search.model_copy(update={"answer": SearchAnswer(), "trials": ()})
    found = figures(["search.best", "search.most", "search.most:lost"], None, nothing, Path())
    assert found["search.best"].remark == "no trial ended"
    assert "search.most:lost" not in found
