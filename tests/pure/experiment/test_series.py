"""Rows of a series, and its table on the terminal and as Markdown."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from rich.console import Console

from pubstorm.errors import StoredRunError
from pubstorm.experiment.series import cells, with_table
from pubstorm.report import document_of, load_series, render_directory
from pubstorm.report.document import Document
from pubstorm.report.of_experiments import steps_table
from pubstorm.report.text import parts_of, render, render_brief
from pubstorm.result import Cell, LimitedBy, RunResult, Series, SeriesStep, Status
from pubstorm.result.verdict import evaluate_run
from pubstorm.scenario import parse_scenario
from tests.kit.measured import measured_run

SCENARIO = """\
target: mqtt://h
populations:
  device: {clients: 1, publications: [{topic: a, rate: 1/s}]}
sweep: {vary: {seed: [1, 2]}}
"""


def step(label: str, *row: Cell | str, number: int = 1, **more: object) -> SeriesStep:
    fields = {
        "number": number,
        "label": label,
        "values": {"seed": "1200"},
        "folder": f"steps/{number:02}",
        "command": f"pubstorm run s --set seed={number}",
        "note": "as it was",
        "status": Status.PASS,
        "limited_by": LimitedBy.NONE,
        "cells": [Cell(word=cell) if isinstance(cell, str) else cell for cell in row],
        **more,
    }
    return SeriesStep.model_validate(fields)


def series(columns: Sequence[str], *steps: SeriesStep, **more: object) -> Series:
    fields = {
        "name": "ladder",
        "scenario": "s",
        "run_directory": "runs/ladder",
        "started": "2026-11-21T12:00:00+00:00",
        "ended": "2026-11-21T12:01:00+00:00",
        "columns": tuple(columns),
        "steps": steps,
        "complete": True,
        "text": "passed up to seed 2",
        **more,
    }
    return Series.model_validate(fields)


def printed(draw: Callable[[Document, Console], None], value: Series) -> str:
    stream = io.StringIO()
    draw(document_of(value), Console(file=stream, width=120))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def test_a_row_holds_metrics_and_what_the_step_says_of_itself() -> None:
    result = RunResult.of(measured_run(), evaluate_run(measured_run(), ()))
    own = "n: number, s: step, note: note, v: verdict, by: limited_by, c: command, seed: seed"
    table = f"table={{{own}, sent: device.sent, none: device.latency.p99}}"
    scenario = parse_scenario(SCENARIO, "s.yaml", [table])
    found = cells(scenario.table, step("seed 1", repetitions=2), result)
    row = tuple(cell.text for cell in found)
    assert row[:7] == (
        "1",
        "seed 1 (1 of 2)",
        "as it was",
        "pass",
        "none",
        "pubstorm run s --set seed=1",
        "1\u202f200",
    )
    assert row[7] not in {"–", ""}
    assert row[8] == "–"


def test_a_step_without_a_result_has_a_row_all_the_same() -> None:
    scenario = with_table(parse_scenario(SCENARIO, "s.yaml"))
    row = step("seed 1", status=None, limited_by=None, problem="the broker exited")
    texts = tuple(cell.text for cell in cells(scenario.table, row, None))
    assert texts == ("seed 1", *("–",) * 7, "no measurement", "–")


def test_the_default_table_has_round_trips_where_clients_make_requests() -> None:
    asks = "subscriptions: [r], publications: [{topic: a, rate: 1/s, request: true"
    text = SCENARIO.replace("publications: [{topic: a, rate: 1/s", f"version: 5, {asks}")
    text = text.replace("request: true", "request: true, response_topic: r")
    asked = with_table(parse_scenario(text, "s.yaml")).table
    plain = with_table(parse_scenario(SCENARIO, "s.yaml")).table
    assert asked["round trip p99"] == "round_trip.p99"
    assert [head for head in asked if head not in plain] == ["round trip p99"]


def test_repeats_are_summed_up_by_median_and_range() -> None:
    heads = ("step", "p99", "sent", "verdict", "lost")
    measured = (
        (Cell(value=1200, unit="us"), Cell(value=1000), "pass"),
        (Cell(value=950, unit="us"), Cell(value=999), "fail"),
        (Cell(value=2e6, unit="us"), Cell(), "pass"),
    )
    none_lost = Cell(value=0)
    repeats = [
        step("a", f"a ({n} of 3)", *row, none_lost, number=n, repetition=n, repetitions=3)
        for n, row in enumerate(measured, 1)
    ]
    table = steps_table(series(heads, *repeats))
    assert table.texts[3] == (
        "a: 3 repeats",
        "1.20 ms (950 µs … 2.00 s)",
        "999 … 1\u202f000",
        "",
        "0",
    )
    assert [column.right for column in table.columns] == [False, True, True, False, True]


def test_durations_over_a_minute_are_summed_up_too() -> None:
    took = (62, 59.5, 3725)
    repeats = [
        step("a", "a", Cell(value=s, unit="s"), number=n, repetition=n, repetitions=3)
        for n, s in enumerate(took, 1)
    ]
    table = steps_table(series(("step", "duration"), *repeats))
    assert [row[1] for row in table.texts] == [
        "1:02",
        "59.5 s",
        "1:02:05",
        "1:02 (59.5 s … 1:02:05)",
    ]
    assert table.columns[1].right


def test_a_word_that_looks_like_a_number_is_a_word() -> None:
    table = steps_table(series(("step", "file"), step("a", "a", "1.5"), step("b", "b", "v2")))
    assert not table.columns[1].right


def test_a_repeat_without_a_measurement_is_summed_up_with_nothing() -> None:
    measured = step("a", "a (1 of 2)", Cell(value=5), repetitions=2)
    missing = step("a", "a (2 of 2)", "", number=2, repetition=2, repetitions=2, status=None)
    assert len(steps_table(series(("step", "lost"), measured, missing)).texts) == 2


def test_a_table_that_is_too_wide_is_drawn_in_parts_with_its_first_column() -> None:
    row = step("a", "a", "1" * 10, "2" * 10, "c" * 99, "4")
    table = steps_table(series(("step", "one", "two", "command", "four"), row))
    parts = parts_of(table, width=40)
    assert [[column.name for column in part.columns] for part in parts] == [
        ["step", "one", "two"],
        ["step", "command"],
        ["step", "four"],
    ]
    assert [part.title for part in parts] == ["Steps"] * 3
    assert parts[1].texts == (("a", "c" * 99),)
    assert [part.texts for part in parts_of(table, width=200)] == [table.texts]


def test_a_series_that_is_not_complete_says_how_to_go_on() -> None:
    value = series(("step",), step("seed 1", "seed 1"), complete=False)
    for draw in (render, render_brief):
        assert "continue with  pubstorm run --resume runs/ladder\n" in printed(draw, value)


def test_the_quiet_form_is_a_line_for_each_step() -> None:
    value = series(("step",), step("seed 1", "x"), stopped="failed")
    assert printed(render_brief, value) == (
        "PASS    1: seed 1  limited by none\npassed up to seed 2\nstopped early: failed\n"
        "run directory  runs/ladder"
    )


def test_a_stored_series_is_rendered_again_from_where_it_lies(tmp_path: Path) -> None:
    value = series(("step",), step("seed 1", "seed 1"))
    (tmp_path / "series.json").write_text(value.to_json())
    assert load_series(tmp_path) == value
    stream = io.StringIO()
    render_directory(tmp_path, Console(file=stream, width=120))
    assert f"run directory  {tmp_path}" in stream.getvalue()
    assert "passed up to seed 2" in stream.getvalue()


@pytest.mark.parametrize(
    ("file", "message", "hint"),
    [
        (None, "cannot read", "that `pubstorm run` has made of a scenario with a sweep"),
        ("result.json", "cannot read", "a single run is played again with pubstorm run"),
        ("series.json", "is not a series of this version", "another version of Pubstorm"),
    ],
)
def test_a_folder_that_holds_no_series_is_reported(
    tmp_path: Path, file: str | None, message: str, hint: str
) -> None:
    if file is not None:
        (tmp_path / file).write_text("{}")
    with pytest.raises(StoredRunError, match=message) as caught:
        load_series(tmp_path)
    assert hint in str(caught.value.hint)
