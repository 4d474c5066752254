"""The headline and the key figures of reports: the same for terminal, page and JUnit."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubstorm.report import document_of
from pubstorm.report.document import KEY_FIGURES_MAX, Document
from pubstorm.report.of_experiments import search_figures, series_headline
from pubstorm.result import Estimate, LimitedBy, SearchAnswer, Series, Status
from tests.kit.example_run import Shape, write_run
from tests.kit.example_search import search_of, trials
from tests.kit.example_series import write_series

pytestmark = pytest.mark.xdist_group("experiment-figures")


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Series:
    return write_series(tmp_path_factory.mktemp("series"))


def shown(document: Document) -> dict[str, tuple[str, Status | None]]:
    assert len(document.key_figures) <= KEY_FIGURES_MAX
    assert all(figure.note for figure in document.key_figures)
    return {
        each.name: (each.value.replace("\u202f", " "), each.status) for each in document.key_figures
    }


def test_a_run_has_six_figures_and_keeps_the_others(tmp_path: Path) -> None:
    document = document_of(write_run(tmp_path, Shape(duration_s=20)))
    assert len(shown(document)) == KEY_FIGURES_MAX
    assert document.more_figures
    assert not {*document.key_figures} & {*document.more_figures}


def test_a_series_names_the_steps_that_passed_and_the_first_that_did_not(series: Series) -> None:
    document = document_of(series)
    assert document.headline == series.text
    figures = shown(document)
    assert figures["steps passed"] == ("2 of 4", Status.FAIL)
    assert figures["first that failed"] == ("clients 4000", Status.FAIL)
    assert figures["limited by"][0] == "broker"
    assert document.key_figures[0].note == "1 failed, 1 without a measurement"


def test_a_series_in_which_every_step_passed_is_a_pass(series: Series) -> None:
    passed = series.model_copy(update={"steps": series.steps[:2]})
    assert shown(document_of(passed))["steps passed"] == ("2 of 2", Status.PASS)
    invalid = series.steps[1].model_copy(update={"status": Status.INVALID})
    figures = shown(document_of(passed.model_copy(update={"steps": (series.steps[0], invalid)})))
    assert figures["steps passed"] == ("1 of 2", Status.INVALID)
    assert figures["first without a verdict"] == ("clients 3000", Status.INVALID)


def test_a_series_that_was_not_played_has_no_verdict(series: Series) -> None:
    step = series.steps[3].model_copy(update={"problem": None})
    document = document_of(series.model_copy(update={"steps": (step,)}))
    assert shown(document)["steps passed"] == ("0 of 0", None)


def test_the_headline_of_a_series_with_variants_counts_its_steps(series: Series) -> None:
    varied = series.model_copy(update={"text": "a: it passed\nb: it failed"})
    counts = "2 of 4 steps passed; 1 failed, 1 without a measurement."
    assert series_headline(varied) == counts
    assert document_of(varied).statements == ("a: it passed", "b: it failed")


def test_a_search_names_the_answer_the_limit_and_the_trials() -> None:
    search = search_of()
    document = document_of(search)
    assert document.headline == f"{search.answer.headline}."
    assert document.outcome == (document.headline, search.answer.text)
    figures = shown(document)
    assert search.answer.best is not None
    best = search.answer.best.text.replace("\u202f", " ")
    assert figures["largest that passes"] == (best, Status.PASS)
    assert figures["limited by"][0] == str(search.answer.limited_by)
    assert figures["trials"][0] == str(len(search.trials))


@pytest.mark.parametrize("limited_by", [LimitedBy.BROKER, None])
def test_a_search_without_an_answer_failed(limited_by: LimitedBy | None) -> None:
    answer = SearchAnswer(limited_by=limited_by, text="no value passed")
    document = document_of(search_of(answer=answer))
    assert document.headline == "No value passed."
    assert shown(document)["largest that passes"] == ("–", Status.FAIL)
    assert ("limited by" in shown(document)) is (limited_by is not None)


def test_a_search_that_the_host_ended_names_no_value_that_failed() -> None:
    best = Estimate(value=80_000, low=80_000, high=80_000, bound="at_least", unit="per_s")
    answer = SearchAnswer(best=best, limited_by=LimitedBy.HOST, confirmed=True)
    counted = tuple(trial for trial in trials() if not trial.failed)
    search = search_of(trials=counted, answer=answer)
    figures = {figure.name: figure for figure in search_figures(search)}
    assert figures["largest that passes"].status is Status.OPEN
    assert figures["limited by"].note == "no larger value was counted"
