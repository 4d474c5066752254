"""Pages at the end of a run: whole pages, as they are rendered."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pubstorm.metrics.expressions import parse_threshold
from pubstorm.quantities import (
    bytes_text,
    count_text,
    counted,
    duration_text,
    rate_text,
    share_text,
    span_text,
)
from pubstorm.report import document_of
from pubstorm.report.document import Document
from pubstorm.report.files import markdown
from pubstorm.report.summary import success_text
from pubstorm.report.tables import FLOWS, MESSAGES, STAGES
from pubstorm.report.text import render
from pubstorm.result import (
    ClockResult,
    Event,
    Headroom,
    Latency,
    Phase,
    PhaseStatus,
    RunResult,
    SearchResult,
    Series,
    StagePopulation,
    Statistics,
    Watched,
)
from pubstorm.result.figures.table import cells
from pubstorm.result.summary import problems
from pubstorm.result.verdict import evaluate_run
from tests.kit import made
from tests.kit.example_fleet import fleet_parts, fleet_stages
from tests.kit.example_publisher import write_publisher_run
from tests.kit.example_search import search_of, trials
from tests.kit.example_series import write_series
from tests.kit.golden import agree
from tests.kit.measured import DELIVERIES, MeasuredMaker, phase

PAGES = Path(__file__).parent / "pages"


def figures(document: Document) -> str:
    """The key figures, first those that stand at the top."""
    found = (*document.key_figures, *document.more_figures)
    return "".join(
        f"{each.name}: {each.value} {each.status or '–'} ({each.note})\n" for each in found
    )


def page(document: Document, width: int = 100) -> str:
    console = Console(width=width, file=StringIO(), color_system=None, force_terminal=True)
    render(document, console)
    assert isinstance(console.file, StringIO)
    lines = console.file.getvalue().splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


@pytest.fixture
def passed(measured: MeasuredMaker) -> RunResult:
    run = measured()
    return RunResult.of(run, evaluate_run(run, [parse_threshold("backend.lost == 0")]))


@pytest.fixture
def failed(measured: MeasuredMaker) -> RunResult:
    other = measured().flows[0].model_copy(update={"to": "device", "source": "backend"})
    lossy = measured(flow={"received_total": 990, "lost_total": 10}).flows[0]
    run = measured(
        device={
            "connect_attempts_total": 112,
            "connect_failed_total": 12,
            "disconnected_total": 4,
            "outcomes": {"closed_by_broker": 4, "connect_refused": 12},
        },
        backend={"received_total": 990, "lost_total": 10},
        flows=(lossy, other),
        events=(Event(at_s=3.0, kind="broker", text="broker main-0 (pid 7) was killed"),),
    )
    run = run.model_copy(update={"problems": problems(run.populations, 0)})
    lines = ("backend.lost == 0", "backend.latency.p99 < 1ms", "device.connected >= 100")
    return RunResult.of(run, evaluate_run(run, [parse_threshold(line) for line in lines]))


def test_deliveries_in_flight_have_a_column_only_after_an_early_end(
    measured: MeasuredMaker, passed: RunResult
) -> None:
    cut = {"received_total": 960, "lost_total": 10}
    run = measured(
        backend={**cut, "to_come_total": 30},
        flow={**cut, "in_flight_total": 30},
        events=(Event(at_s=3.0, kind="interrupt", text="it was interrupted"),),
    )
    other = run.flows[0].model_copy(update={"source": "backend", "in_flight_total": 0})
    run = run.model_copy(update={"flows": (*run.flows, other)})
    result = RunResult.of(run, evaluate_run(run, []))
    for table, rows in (
        (MESSAGES.table(result), ["–", "30"]),
        (FLOWS.table(result), ["30", "0"]),
    ):
        names = [column.name for column in table.columns]
        at = names.index("in flight")
        assert names[at - 1] == "lost"
        assert [row[at] for row in table.texts] == rows
        assert {len(row) for row in table.texts} == {len(names)}
    assert "in flight" not in [column.name for column in MESSAGES.table(passed).columns]


def test_messages_of_other_programs_have_columns_where_some_came(
    measured: MeasuredMaker, passed: RunResult
) -> None:
    run = measured(backend={"foreign_total": 3080})
    backend = StagePopulation(foreign_total=3080)
    update = {"populations": {"backend": backend}, "duration_s": 10.0}
    stage = run.stages[1].model_copy(update=update)
    stages = (*run.stages[:1], stage, *run.stages[2:])
    run = run.model_copy(update={"stages": stages})
    result = RunResult.of(run, evaluate_run(run, []))
    for table, head, shown in ((MESSAGES, "foreign", "3 080"), (STAGES, "foreign/s", "308")):
        made_of = table.table(result)
        at = [column.name for column in made_of.columns].index(head)
        assert shown in [row[at].replace("\u202f", " ") for row in made_of.texts]
        assert head not in [column.name for column in table.table(passed).columns]


@pytest.fixture
def perturbed(measured: MeasuredMaker) -> RunResult:
    """Phases, monitors and a table of the scenario's own."""

    def seen_phase(name: str, status: PhaseStatus, start_s: float, **changes: Any) -> Phase:
        values: dict[str, Any] = {
            "stage": "steady",
            "duration_s": 60,
            "clients": 3000,
            "due_per_s": 500.5,
            "sent_per_s": 500.4,
            "acked_per_s": 500.2,
            "received_per_s": 1000.5,
            "queue_growth_per_s": 0.04,
            "latency_us": Latency(count=9, p99=12_300),
        }
        return phase(**{**values, "name": name, "status": status, "start_s": start_s, **changes})

    collapse = {
        "collapsed_at_s": 132.5,
        "clients": 4000,
        "due_per_s": 667,
        "acked_per_s": 520,
        "queue_growth_per_s": 147,
        "dropped_total": 1234,
        "evidence": ("520/s of 667/s due were acknowledged (78 %)",),
    }

    def seen(source: str, metric: str, mean: float) -> Watched:
        load = Statistics(count=9, mean=mean, max=1.2 * mean)
        found = made.source(source)
        return Watched(
            source=source,
            kind=found.kind,
            group=found.group,
            metric=metric,
            whole=load,
            load=load,
        )

    run = measured(
        phases=(
            seen_phase("steady", PhaseStatus.HELD, 5.2),
            seen_phase("+1000", PhaseStatus.COLLAPSED, 125, **collapse),
            seen_phase("-1000", PhaseStatus.NEVER_RECOVERED, 185, queue_growth_per_s=-80),
            seen_phase(
                "-500", PhaseStatus.RECOVERED, 245, recovered_after_s=14.2, received_per_s=0
            ),
        ),
        monitors=(
            seen("broker-0", "cpu", 0.71),
            seen("broker-0", "rss_bytes", 295e6),
            seen("host", "cpu", 0.655),
            seen("host", "memory_used_bytes", 1.5e9),
            seen("agent-0", "cpu", 0.2),
            seen("redis", "cpu", 0.02),
        ),
    )
    result = RunResult.of(run, evaluate_run(run, []))
    columns = {"clients": "clients", "broker CPU": "broker-0.cpu", "p99": "ack_latency.p99"}
    return result.model_copy(update={"table": cells(columns, result)})


@pytest.fixture
def fleet(measured: MeasuredMaker) -> RunResult:
    """Shares, nodes and a tear-down, by the clocks of two hosts, which are too inexact to decide a
    condition."""
    bound = DELIVERIES.latency_us(42.5)
    (agent,) = measured().fleet.agents
    clock = ClockResult(
        offset_us=-3.6e9, drift_ppm=12.5, bound_us=42.5, round_trip_us=81, exchanges_total=320
    )
    remote = agent.model_copy(update={"agent": 1, "host": "10.0.0.3", "clock": clock})
    parts = fleet_parts()
    parts["samplers"] = tuple(
        each.model_copy(update={"bound_us": 42.5 if each.kind == "sub" else 0.0})
        for each in parts["samplers"]
    )
    run = measured(
        **parts,
        device={"stalled_total": 3, "stalled": 1},
        backend={"latency_us": bound},
        flow={"latency_us": bound},
        fleet={"agents": (agent, remote), "clock_bound_us": 42.5},
        headroom=Headroom(rate=0.234, clients=0.5, calibrated="then"),
        stages=fleet_stages(measured()),
    )
    lines = ("backend.latency.p99 < 9.96ms", "backend.latency.p99 < 2ms", "backend.lost == 0")
    return RunResult.of(run, evaluate_run(run, [parse_threshold(line) for line in lines]))


@pytest.fixture
def search() -> SearchResult:
    played = trials()
    return search_of(trials=tuple(played[number - 1] for number in (4, 5, 9, 10, 11, 13)))


@pytest.fixture
def series(tmp_path: Path) -> Series:
    return write_series(tmp_path)


@pytest.fixture
def publisher(tmp_path: Path) -> RunResult:
    return write_publisher_run(tmp_path)


@pytest.mark.parametrize("name", [each.name for each in sorted(PAGES.iterdir())])
def test_a_whole_page_is_that_of_its_golden_file(name: str, request: pytest.FixtureRequest) -> None:
    stem, _, kind = name.partition(".")
    document = document_of(request.getfixturevalue(stem))
    agree(PAGES / name, {"md": markdown, "txt": page, "figures": figures}[kind](document))


@pytest.mark.parametrize("name", ["passed", "failed", "fleet", "perturbed"])
def test_a_page_fits_its_width_but_for_paths(name: str, request: pytest.FixtureRequest) -> None:
    for width in (80, 100):
        found = page(document_of(request.getfixturevalue(name)), width)
        assert max(map(len, found.splitlines())) <= width


@pytest.mark.parametrize(
    ("count", "of", "text"),
    [
        (0, 10, "0 %"),
        (10, 10, "100 %"),
        (1, 3, "33.3 %"),
        (1_999_959, 2_000_000, "99.997 %"),
        (1_999_999, 2_000_000, "99.99995 %"),
        (0, 0, "–"),
    ],
)
def test_a_success_is_whole_only_where_nothing_is_missing(count: int, of: int, text: str) -> None:
    assert success_text(count, of) == text


def test_the_texts_of_a_broker_have_a_table(measured: MeasuredMaker) -> None:
    texts = {"quota | of *all*": 3, None: 2}
    explanations = [
        {"outcome": "not_authorized", "property": "reason_string", "text": text, "count": count}
        for text, count in texts.items()
    ]
    run = measured(device={"explanations": explanations})
    document = document_of(RunResult.of(run, evaluate_run(run, [])))
    found = next(t for t in document.tables if t.title == "Reason strings and server references")
    start = ("device", "not authorized", "reason string")
    assert found.texts == ((*start, '"quota | of *all*"', "3"), (*start, "other texts", "2"))
    assert "quota \\| of \\*all\\*" in markdown(document)


def test_a_page_in_a_file_is_as_wide_as_it_should_be(failed: RunResult) -> None:
    console = Console(width=80, file=StringIO())
    render(document_of(failed), console)
    assert isinstance(console.file, StringIO)
    assert "device           100             100               12" in console.file.getvalue()


def test_text_of_users_is_no_markup(measured: MeasuredMaker) -> None:
    population = measured().populations["device"]
    run = measured(populations={"[red]x[/red]|y": population}, name="[bold]*z*")
    result = RunResult.of(run, evaluate_run(run, []))
    assert "[red]x[/red]|y" in page(document_of(result))
    assert "[bold]*z*" in page(document_of(result))
    assert "| [red]x[/red]\\|y |" in markdown(document_of(result))


def test_a_run_of_nothing_has_a_page(measured: MeasuredMaker) -> None:
    run = measured(populations={}, flows=(), stages=())
    result = RunResult.of(run, evaluate_run(run, []))
    assert "PASS" in page(document_of(result))
    assert "PASS" in markdown(document_of(result))


@pytest.mark.parametrize(
    ("duration_us", "text"),
    [
        (0, "0 µs"),
        (0.042, "0.04 µs"),
        (0.5, "0.50 µs"),
        (9.999, "10.0 µs"),
        (950, "950 µs"),
        (999.7, "1.00 ms"),
        (12_345, "12.3 ms"),
        (999_600, "1.00 s"),
        (5_010_000, "5.01 s"),
        (3_600_000_000, "3\u202f600 s"),
        (-1500, "-1.50 ms"),
    ],
)
def test_durations_have_the_unit_that_fits(duration_us: float, text: str) -> None:
    assert duration_text(duration_us) == text


def test_numbers_are_written_for_people() -> None:
    assert count_text(1234567) == "1\u202f234\u202f567"
    assert counted(1, "client") == "1 client"
    assert counted(0, "delivery", "deliveries") == "0 deliveries"
    assert [rate_text(r) for r in (0, 0.166, 12.5, 1000)] == ["0", "0.17", "12.5", "1\u202f000"]
    assert [share_text(s) for s in (0, 0.58, 0.983, 1)] == ["0 %", "58 %", "98.3 %", "100 %"]
    assert [bytes_text(b) for b in (0, 999, 3_500_000)] == ["0 B", "999 B", "3.50 MB"]
    assert [span_text(s) for s in (0, 59.94, 245, 3723)] == ["0.0 s", "59.9 s", "4:05", "1:02:03"]
