"""The screen at the end of a run, a series and a search, and the same as one JSON document."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console

from pubstorm.report import document_of
from pubstorm.report.data import conclusion_of
from pubstorm.report.document import Document, KeyFigure
from pubstorm.report.text import SCREEN_LINES, SCREEN_ROWS, render, render_screen
from pubstorm.result import RunResult, SearchResult, Series
from tests.kit.example_search import search_of
from tests.kit.example_series import write_series

SCHEMA = Path(__file__).parents[3] / "contract" / "conclusion.schema.json"


def screen(document: Document, width: int = 120) -> list[str]:
    stream = io.StringIO()
    render_screen(
        document, Console(file=stream, width=width, force_terminal=True, color_system=None)
    )
    text = stream.getvalue().replace("\u202f", " ")
    return [line.strip(" │") for line in text.splitlines()]


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Series:
    return write_series(tmp_path_factory.mktemp("series"))


def test_the_screen_of_a_run_has_verdict_figures_and_folder(plain_run: RunResult) -> None:
    document = document_of(plain_run)
    lines = screen(document)
    assert plain_run.verdict.headline in " ".join(lines)
    for threshold in plain_run.verdict.thresholds:
        assert any(threshold.label in line for line in lines)
    names = [figure.name for figure in document.key_figures]
    assert len(names) == 6
    shown = [line for line in lines if line.startswith(tuple(names))]
    assert [next(name for name in names if line.startswith(name)) for line in shown] == names
    assert lines[-2:] == [
        f"run directory  {plain_run.run_directory}",
        f"all tables     pubstorm report {plain_run.run_directory}",
    ]
    assert "Messages" not in lines


def test_more_thresholds_than_fit_are_counted_and_the_missed_are_first(
    plain_run: RunResult,
) -> None:
    document = document_of(plain_run)
    assert document.verdict is not None
    one = document.verdict.thresholds[0].model_copy(update={"passed": True, "undecided": False})
    many = [one.model_copy(update={"expression": f"passed{n}.x == 0"}) for n in range(20)]
    many.append(one.model_copy(update={"expression": "missed.x == 0", "passed": False}))
    changes = {"thresholds": tuple(many), "evidence": tuple(f"fact {n}" for n in range(10))}
    lines = screen(replace(document, verdict=document.verdict.model_copy(update=changes)))
    conditions = [line for line in lines if ".x == 0" in line]
    assert len(conditions) == SCREEN_LINES
    assert "missed.x" in conditions[0]
    assert f"• fact {SCREEN_LINES - 1}" in lines
    assert f"… {21 + 10 - 2 * SCREEN_LINES} more" in lines


def test_a_short_series_shows_its_steps_and_a_long_one_does_not(series: Series) -> None:
    document = document_of(series)
    first = document.tables[0]
    assert len(first.rows) <= SCREEN_ROWS
    assert first.title in screen(document)
    long = replace(first, rows=[first.rows[0]] * (SCREEN_ROWS + 1), links=())
    lines = screen(replace(document, tables=(long,)))
    assert first.title not in lines
    assert any(line.startswith("steps passed") for line in lines)


@pytest.mark.parametrize("width", [140, 80, 40])
def test_key_figures_wrap_and_are_not_cut(series: Series, width: int) -> None:
    value = "clients 4000, broker.kind mosquitto, QoS 1, without TLS, messages of 5kB"
    figure = KeyFigure("busiest thread of the publisher", value, "of one core, mean under load")
    lines = screen(replace(document_of(series), tables=(), key_figures=(figure,)), width)
    shown = " ".join(lines).split()
    assert {*figure.name.split(), *figure.value.split(), *figure.note.split()} <= {*shown}
    assert "…" not in "".join(lines)


def test_no_table_of_a_run_is_cut_in_a_narrow_terminal(plain_run: RunResult) -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=80, force_terminal=True, color_system=None)
    document = replace(document_of(plain_run), facts=(), items=(), verdict=None)
    render(document, console)
    text = stream.getvalue()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    for table in document.tables:
        assert all(column.name in text for column in table.columns if column.right), table.title


def test_the_screen_of_a_search_is_its_answer() -> None:
    lines = screen(document_of(search_of()))
    assert lines[0] == "PASS  97 400 messages/s in all; at 98 900/s loss was 0.71 %."
    assert any(line.startswith("largest that passes") for line in lines)
    assert "Trials" not in lines


def concluded(played: RunResult | Series | SearchResult) -> dict[str, object]:
    text = conclusion_of(played, document_of(played), 1).model_dump_json()
    found: dict[str, object] = json.loads(text)
    jsonschema.validate(found, json.loads(SCHEMA.read_text()))
    return found


def test_the_json_of_a_run_has_its_figures_as_numbers(plain_run: RunResult) -> None:
    found = concluded(plain_run)
    assert (found["kind"], found["exit_code"]) == ("run", 1)
    assert found["status"] == plain_run.verdict.status
    populations = found["populations"]
    assert isinstance(populations, dict)
    for name, population in plain_run.populations.items():
        assert populations[name]["sent_total"] == population.sent_total
        latency = population.latency_us.intended
        assert populations[name]["latency_p99_us"] == (latency.p99 if latency.count else None)


def test_the_json_of_a_series_and_of_a_search(series: Series) -> None:
    found = concluded(series)
    steps = found["steps"]
    assert isinstance(steps, list)
    assert [step["folder"] for step in steps] == [step.folder for step in series.steps]
    assert found["status"] is None
    search = search_of()
    answer = concluded(search)["answer"]
    assert answer == json.loads(search.answer.model_dump_json())
