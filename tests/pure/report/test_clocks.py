"""Clocks of several hosts in reports: the bound beside delivery times, a table of the clocks, and
undecidable conditions. Reports of runs on one clock show none of these."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from pubstorm.report import document_of
from pubstorm.report.files import junit, markdown, run_files
from pubstorm.report.of_experiments import steps_table, trials_table
from pubstorm.report.of_run import key_figures
from pubstorm.report.stored import load_run
from pubstorm.report.tables import CLOCKS, FLOWS, LATENCIES, PHASES
from pubstorm.result import (
    Cell,
    ClockResult,
    LatencyPair,
    LimitedBy,
    RunResult,
    Sampler,
    SearchResult,
    Status,
    ThresholdOutcome,
    Trial,
    Verdict,
)
from tests.kit.example_run import Shape, write_run
from tests.kit.example_series import write_series
from tests.kit.reading import Page

BOUND_US = 42.5
UNDECIDED = ThresholdOutcome(
    expression="backend.latency.p99 < 4ms",
    found=4000,
    unit="us",
    bound=BOUND_US,
    passed=False,
    undecided=True,
    text="found 4.00 ms ± 42.5 µs: the clocks are too inexact to decide",
)


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory, plain_run: RunResult) -> RunResult:
    """The short run with its engine on another host."""
    folder = tmp_path_factory.mktemp("spread")
    return write_run(folder, Shape(duration_s=20), **spread_parts(plain_run))


def spread_parts(local: RunResult) -> dict[str, Any]:
    bound: dict[str, Any] = {"bound_us": BOUND_US}
    backend = local.populations["backend"]
    pair = LatencyPair(
        intended=backend.latency_us.intended.model_copy(update=bound),
        actual=backend.latency_us.actual.model_copy(update=bound),
    )
    (agent, *_) = local.fleet.agents
    clock = ClockResult(
        offset_us=-3.6e9, drift_ppm=12.5, bound_us=BOUND_US, round_trip_us=81, exchanges_total=320
    )
    remote = agent.model_copy(update={"host": "10.0.0.3", "clock": clock})
    return {
        "populations": {
            **local.populations,
            "backend": backend.model_copy(update={"latency_us": pair}),
        },
        "flows": tuple(flow.model_copy(update={"latency_us": pair}) for flow in local.flows * 2),
        "phases": tuple(p.model_copy(update={"latency_us": pair.intended}) for p in local.phases),
        "samplers": (
            Sampler(subject="device-0", kind="connect", count=1, of=1, mean_us=5, max_us=9),
            Sampler(subject="backend", kind="sub", count=1, of=1, mean_us=5, max_us=9, **bound),
        ),
        "fleet": local.fleet.model_copy(update={"agents": (remote,), "clock_bound_us": BOUND_US}),
        "verdict": Verdict(
            status=Status.INVALID,
            limited_by=LimitedBy.GENERATOR,
            evidence=(f"{UNDECIDED.expression}: {UNDECIDED.text}",),
            thresholds=(UNDECIDED,),
        ),
    }


def test_a_run_on_one_clock_says_nothing_of_clocks(plain_run: RunResult, plain_page: Page) -> None:
    document = document_of(plain_run)
    for text in (markdown(document), plain_page.text, junit(document)):
        assert "±" not in text
        assert "Clocks" not in text


def test_delivery_times_have_the_bound_beside_them(spread: RunResult) -> None:
    assert {row[1]: row[-1] for row in LATENCIES.table(spread).texts}["ack"] == "–"
    for table in (LATENCIES.table(spread), FLOWS.table(spread), PHASES.table(spread)):
        assert (table.columns[-1].name, table.texts[-1][-1]) == ("±", "42.5 µs")
    values = {figure.name: figure.value for figure in key_figures(spread)}
    assert values["delivery p99"].endswith(" ± 42.5 µs")
    assert "±" not in values["acknowledgement p99"]


def test_of_many_clocks_the_least_sure_are_shown(spread: RunResult) -> None:
    (agent,) = spread.fleet.agents
    assert agent.clock is not None
    many = tuple(
        agent.model_copy(
            update={"agent": n, "clock": agent.clock.model_copy(update={"bound_us": float(n)})}
        )
        for n in range(20)
    )
    fleet = spread.fleet.model_copy(update={"agents": many})
    table = CLOCKS.table(spread.model_copy(update={"fleet": fleet}))
    assert [row[0] for row in table.texts] == [str(n) for n in range(12, 20)]


def test_on_one_host_the_clocks_have_no_column_of_hosts(spread: RunResult) -> None:
    (agent,) = spread.fleet.agents
    agents = (agent.model_copy(update={"host": ""}),)
    fleet = spread.fleet.model_copy(update={"agents": agents})
    names = [c.name for c in CLOCKS.table(spread.model_copy(update={"fleet": fleet})).columns]
    assert names[:2] == ["agent", "offset"]


def test_an_undecidable_condition_has_a_mark_of_its_own(spread: RunResult) -> None:
    run = load_run(Path(spread.run_directory))
    page = run_files(run)["report.html"]()
    assert '<li class="invalid">' in page
    assert '<span class="hidden">undecided</span>' in page
    (suite,) = ElementTree.fromstring(junit(document_of(spread)))
    counts = [int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")]
    assert counts == [3, 1, 0, 1], "the condition is skipped, and the run is what failed"


def test_a_trial_of_a_search_shows_it_in_short(spread: RunResult) -> None:
    trial = Trial(
        number=1,
        value=1,
        written="1",
        folder="1",
        phase="grow",
        status=Status.INVALID,
        counted=False,
        thresholds=(UNDECIDED,),
    )
    search = SearchResult(
        name="search",
        scenario="search",
        run_directory=spread.run_directory,
        started=spread.started,
        ended=spread.ended,
        vary="populations.device.clients",
        unit="",
        thresholds=(UNDECIDED.expression,),
        trials=(trial,),
    )
    assert "4.00 ms ± 42.5 µs ?" in trials_table(search).texts[0]


def late(milliseconds: int) -> Cell:
    return Cell(value=1000 * milliseconds, unit="us", bound=42.5)


def test_figures_with_a_bound_are_numbers_in_the_table_of_a_series(tmp_path: Path) -> None:
    series = write_series(tmp_path)
    steps = tuple(
        step.model_copy(update={"cells": (late(n),), "label": "same", "number": n})
        for n, step in enumerate(series.steps, 1)
    )
    table = steps_table(series.model_copy(update={"columns": ("p99",), "steps": steps}))
    assert table.columns[0].right
