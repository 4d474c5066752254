"""Stored results for other programs: tables of plain cells, of which the frames of Python and the
files of `pubstorm export` are made (CSV, JSON, Parquet), and the outcome of a run, a series or a
search as one JSON document for scripts."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field

from pubstorm.contract import Value
from pubstorm.errors import UsageError, extra_hint
from pubstorm.metrics import OF_POPULATIONS
from pubstorm.metrics.charts import lines_of
from pubstorm.output import without_controls
from pubstorm.quantities import Unit
from pubstorm.report.document import Document
from pubstorm.report.stored import load_tracks
from pubstorm.result import (
    LimitedBy,
    PopulationResult,
    RunResult,
    SearchAnswer,
    SearchResult,
    Series,
    StagePopulation,
    Status,
    ThresholdOutcome,
)
from pubstorm.result.datasheet import Datasheet, SheetFigure
from pubstorm.result.datasheet_comparison import SheetComparison, outcome_text
from pubstorm.result.figures import number_at
from pubstorm.result.samples import HEADER, SAMPLES_FILE, Tracks

Cell = str | int | float | bool | None
"""A cell; a list is JSON."""
DataTable = dict[str, list[Cell]]
"""Columns by name, all of one length."""
Row = dict[str, Cell]
Sheets = Datasheet | SheetComparison

OVER_TIME: Mapping[str, tuple[Unit, tuple[str, ...]]] = {
    "latency": ("us", ("latency", "round-trip")),
    "load": ("per_s", ("load", "behind")),
    "clients": ("", ("clients", "behind")),
    "cpu": ("share", ("process-cpu", "host-cpu", "agent-load")),
    "memory": ("bytes", ("process-memory", "host-memory")),
}
"""Tables over time with a part of the metrics, which are their columns: the lines of one unit in
some charts of a report."""
PARTS: Mapping[str, Callable[[RunResult], Iterable[Row]]] = {
    "run": lambda result: [_run(result)],
    "populations": lambda result: _populations(result.populations, result.wholes),
    "flows": lambda result: map(_row, result.flows),
    "stages": lambda result: map(_row, result.stages),
    "stage_populations": lambda result: _stage_populations(result),
    "stage_flows": lambda result: (
        {"stage": stage.name, **_row(flow)} for stage in result.stages for flow in stage.flows
    ),
    "phases": lambda result: map(_row, result.phases),
    "faults": lambda result: map(_row, result.faults),
    "events": lambda result: map(_row, result.events),
    "thresholds": lambda result: map(_row, result.verdict.thresholds),
    "problems": lambda result: map(_row, result.problems),
    "samplers": lambda result: map(_row, result.samplers),
    "stalls": lambda result: map(_row, result.stalls),
    "agents": lambda result: map(_row, result.fleet.agents),
    "monitors": lambda result: map(_row, result.monitors),
}
"""Tables with a row for each part of a result."""
STORED = ("intervals", "samples", *PARTS)
"""Tables of a run that hold all others: `intervals` has the samples of populations, a row each."""
RUN_TABLES = (*STORED, *OVER_TIME)
"""Every table of a run."""
OF_RUN = (
    "name",
    "command",
    "started",
    "ended",
    "started_unix_ns",
    "duration_s",
    "interrupted",
    "ended_early",
)
"""Columns of the table `run` that are fields of the result."""
LEFT_OUT = {
    "histogram_ns",
    "ack_histogram_ns",
    "time_histograms_ns",
    "populations",
    "wholes",
    "flows",
}
"""Parts of a value that no cell holds: histograms are for the HdrHistogram log, and the parts of a
stage have tables of their own."""


def tables_of(stored: RunResult | Series | SearchResult | Sheets) -> Sequence[str]:
    """Returns the names of the tables of a run, an experiment or a data sheet."""
    if isinstance(stored, Datasheet | SheetComparison):
        return ("figures",)
    if isinstance(stored, Series):
        return ("steps",)
    return ("trials",) if isinstance(stored, SearchResult) else RUN_TABLES


def data_table(
    stored: RunResult | Series | SearchResult | Sheets, folder: Path, name: str
) -> DataTable:
    """Returns a table by its name. Raises UsageError if there is no such table, or no sample for
    it."""
    allowed = tables_of(stored)
    if name not in allowed:
        raise UsageError(f"found the table {name!r}, allowed are {', '.join(allowed)}")
    if isinstance(stored, Datasheet):
        return sheet_table(stored)
    if isinstance(stored, SheetComparison):
        return compared_table(stored)
    if isinstance(stored, Series):
        return _columns(map(_row, stored.steps))
    if isinstance(stored, SearchResult):
        return _columns(map(_row, stored.played))
    if name in PARTS:
        return _columns(PARTS[name](stored))
    tracks, problem = load_tracks(folder)
    if problem is not None:
        raise UsageError(f"there is no table {name}: {problem}")
    if name == "samples":
        return _samples(tracks)
    if name == "intervals":
        names = {*stored.populations, *stored.wholes}
        own = {
            (source, metric): track
            for (source, metric), track in tracks.items()
            if source.kind == "population" and source.name in names
        }
        if not own:
            text = f"{SAMPLES_FILE} has no sample of a population"
            raise UsageError(f"there is no table {name}: {text}")
        table = _wide(own, {metric for _, metric in own}, "population")
        stages: list[Cell] = [_stage_at(stored, at_s) for at_s in table["at_s"]]
        return {"at_s": table.pop("at_s"), "stage": stages, **table}
    unit, charts = OVER_TIME[name]
    lines = (line for chart in charts for line in lines_of("page", chart))
    return _wide(tracks, {line.sample for line in lines if line.unit == unit}, "source")


def sheet_table(sheet: Datasheet) -> DataTable:
    """Returns the figures of a data sheet, a row each; a cell without figures has a row, too."""
    return _columns(
        {
            "section": cell.section,
            "cell": cell.title,
            **_figure(figure),
            "load": cell.load,
            "r_squared": figure.r_squared,
            "folder": cell.folder,
            "state": cell.state,
            "remarks": "; ".join(filter(None, (cell.why, *figure.remarks))),
        }
        for cell in sheet.cells
        for figure in cell.figures or (SheetFigure(name=""),)
    )


def compared_table(found: SheetComparison) -> DataTable:
    """Returns the figures of data sheets side by side, a row for each figure of a broker."""
    names = [column.name for column in found.columns]
    return _columns(
        {
            "section": row.section,
            "cell": row.title,
            "broker": names[place],
            **_figure(figure),
            "better": row.better,
            "is_best": place in row.best,
            "outcome": outcome_text(row, names),
            "remarks": "; ".join(figure.remarks),
        }
        for row in found.rows
        for place, figure in enumerate(row.figures)
    )


def _figure(figure: SheetFigure) -> Row:
    found = figure.estimate
    cells: Row = {"figure": figure.name}
    for name in ("value", "low", "high", "unit", "bound", "repeats"):
        cells[name] = None if found is None else getattr(found, name)
    limit = None if figure.limited_by is None else str(figure.limited_by)
    return {**cells, "word": figure.word, "limited_by": limit}


def _samples(tracks: Tracks) -> DataTable:
    table: DataTable = {name: [] for name in HEADER}
    for (source, metric), track in tracks.items():
        count = len(track.at_s)
        table["at_s"] += track.at_s
        table["kind"] += [source.kind] * count
        table["source"] += [source.name] * count
        table["metric"] += [metric] * count
        table["value"] += track.values
        table["held"] += map(bool, track.held)
    return table


def _wide(tracks: Tracks, wanted: Collection[str], subject: str) -> DataTable:
    """Returns a row for each instant and source, with a column for each wanted metric."""
    rows: dict[tuple[float, str], Row] = {}
    metrics = sorted({metric for _, metric in tracks if metric in wanted})
    for (source, metric), track in tracks.items():
        if metric in metrics:
            for at_s, value in zip(track.at_s, track.values, strict=True):
                rows.setdefault((at_s, source.name), {})[metric] = value
    places = sorted(rows)
    table: DataTable = {
        "at_s": [at_s for at_s, _ in places],
        subject: [source for _, source in places],
    }
    return {**table, **{name: [rows[place].get(name) for place in places] for name in metrics}}


def _stage_at(result: RunResult, at_s: Cell) -> str | None:
    """Returns the stage of an instant; None between two stages."""
    assert isinstance(at_s, float)
    return next((stage.name for stage in result.stages if stage.holds(at_s)), None)


def _run(result: RunResult) -> Row:
    """Returns what is said once of a run."""
    verdict = result.verdict
    return {
        **{name: getattr(result, name) for name in OF_RUN},
        "status": str(verdict.status),
        "limited_by": str(verdict.limited_by),
        "headline": verdict.headline,
    }


def _populations(
    alone: Mapping[str, PopulationResult | StagePopulation],
    wholes: Mapping[str, PopulationResult | StagePopulation],
) -> Iterator[Row]:
    for found in (alone, wholes):
        for name, population in found.items():
            yield {"population": name, "sum_of_shares": found is wholes, **_row(population)}


def _stage_populations(result: RunResult) -> Iterator[Row]:
    for stage in result.stages:
        for row in _populations(stage.populations, stage.wholes):
            yield {"stage": stage.name, **row}


def _row(value: Value) -> Row:
    return dict(_cells(value.model_dump(mode="json", exclude=LEFT_OUT), ""))


def _cells(fields: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Cell]]:
    """Yields the cells of a value; those of a value inside it have its name and a dot before."""
    for name, found in fields.items():
        if isinstance(found, dict):
            yield from _cells(found, f"{prefix}{name}.")
        else:
            is_list = isinstance(found, list)
            yield f"{prefix}{name}", json.dumps(found, ensure_ascii=False) if is_list else found


def _columns(rows: Iterable[Row]) -> DataTable:
    """Returns rows as columns; a row without a column has None in it."""
    every = list(rows)
    names = dict.fromkeys(name for row in every for name in row)
    return {name: [row.get(name) for row in every] for name in names}


Form = Literal["csv", "json", "parquet"]


def csv_bytes(table: DataTable) -> bytes:
    """The table with a line of headings. Lines end with a line feed, and None is empty."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(table)
    for row in zip(*table.values(), strict=True):
        writer.writerow(str(cell).lower() if isinstance(cell, bool) else cell for cell in row)
    return without_controls(stream.getvalue()).encode(errors="replace")


def json_bytes(table: DataTable) -> bytes:
    """An array with an object for each row, one on a line."""
    return f"{_json(table)}\n".encode()


def parquet_bytes(table: DataTable) -> bytes:
    """The table in the format of Apache Parquet. Raises UsageError without pyarrow."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        text = "Parquet needs pyarrow, which is not installed"
        raise UsageError(text, extra_hint("parquet")) from None
    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(table), stream)
    return stream.getvalue()


FORMS: Mapping[Form, Callable[[DataTable], bytes]] = {
    "csv": csv_bytes,
    "json": json_bytes,
    "parquet": parquet_bytes,
}
"""Writers by the ends of file names."""


def json_object(tables: Mapping[str, DataTable]) -> bytes:
    """One object with an array for each table."""
    arrays = (f"{json.dumps(name)}: {_json(table)}" for name, table in tables.items())
    return ("{" + ",\n".join(arrays) + "}\n").encode()


def _json(table: DataTable) -> str:
    rows = (dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True))
    text = "[" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "]"
    return without_controls(text)


class ConcludedFigure(Value):
    """A key figure in words."""

    model_config = ConfigDict(from_attributes=True)

    name: str
    value: str
    """The figure with its unit."""
    note: str
    """Period or total of the figure."""
    status: Status | None = None
    """Good or bad; null if nothing says so."""


class ConcludedPopulation(Value):
    """The most important figures of a population."""

    clients: int
    """Clients of the population."""
    connected_max: int
    """Most clients that were connected at once."""
    sent_total: int
    """Messages sent."""
    acked_total: int
    """Messages acknowledged."""
    expected_total: int
    """Expected deliveries."""
    received_total: int
    """Deliveries received."""
    lost_total: int
    """Deliveries lost."""
    foreign_total: int
    """Messages received that no client of the run sent."""
    sent_per_s: float
    """Messages sent a second while the load was steady."""
    received_per_s: float
    """Deliveries received a second while the load was steady."""
    latency_p50_us: float | None = None
    """Median from the scheduled instant to the delivery, in microseconds; null: no delivery."""
    latency_p99_us: float | None = None
    """99th percentile of the same."""
    ack_latency_p99_us: float | None = None
    """99th percentile from the scheduled instant to the acknowledgement, in microseconds; null: no
    acknowledgement."""
    round_trip_p50_us: float | None = None
    """Median from the scheduled instant of a request to its answer, in microseconds; null: no
    answer."""
    round_trip_p99_us: float | None = None
    """99th percentile of the same."""


class ConcludedStep(Value):
    """One step of a series."""

    model_config = ConfigDict(from_attributes=True)

    number: int
    """Number from 1."""
    name: str
    """Values of the step."""
    outcome: str
    """The verdict in a word, or the reason why there is none."""
    limited_by: LimitedBy | None
    """Component that set the limit."""
    folder: str
    """Run directory, in that of the series."""


class Conclusion(Value):
    """The outcome of `pubstorm run` and `pubstorm bench` with --json."""

    format: Literal[1] = 1
    """Version of this form."""
    kind: Literal["run", "series", "search"]
    name: str
    """The scenario's name."""
    status: Status | None
    """The verdict; null for a series, whose steps have one each."""
    limited_by: LimitedBy | None = None
    """Component that set the limit."""
    headline: str
    """The outcome in one sentence."""
    exit_code: int
    """Exit code of the command."""
    interrupted: bool
    """True if the user ended it."""
    changed_by_hand: bool = False
    """True if the user changed a run while it was played."""
    complete: bool
    """False if --resume can continue it."""
    started: str
    """Wall-clock start, ISO 8601 with offset."""
    run_directory: str
    """Folder with everything that was measured."""
    thresholds: tuple[ThresholdOutcome, ...] = ()
    """Thresholds of a run."""
    evidence: tuple[str, ...] = ()
    """Facts behind the verdict of a run."""
    figures: tuple[ConcludedFigure, ...] = ()
    """Key figures, the most important first."""
    populations: dict[str, ConcludedPopulation] = Field(default_factory=dict)
    """Populations of a run, by name."""
    steps: tuple[ConcludedStep, ...] = ()
    """Steps of a series, in the order of playing."""
    answer: SearchAnswer | None = None
    """Answer of a search."""


def conclusion_of(
    played: RunResult | Series | SearchResult, document: Document, exit_code: int
) -> Conclusion:
    """Returns the outcome of a result and its report."""
    verdict = document.verdict
    return Conclusion(
        kind=_kind(played),
        name=document.title,
        status=document.status,
        limited_by=document.limited_by,
        headline=document.headline,
        exit_code=exit_code,
        interrupted=played.interrupted,
        changed_by_hand=isinstance(played, RunResult) and played.changed_by_hand,
        complete=document.is_complete,
        started=document.started,
        run_directory=document.run_directory,
        thresholds=() if verdict is None else verdict.thresholds,
        evidence=() if verdict is None else verdict.evidence,
        figures=tuple(map(ConcludedFigure.model_validate, document.key_figures)),
        populations={n: _population(p) for n, p in played.populations.items()}
        if isinstance(played, RunResult)
        else {},
        steps=tuple(map(ConcludedStep.model_validate, played.steps))
        if isinstance(played, Series)
        else (),
        answer=played.answer if isinstance(played, SearchResult) else None,
    )


def _kind(played: RunResult | Series | SearchResult) -> Literal["run", "series", "search"]:
    if isinstance(played, RunResult):
        return "run"
    return "series" if isinstance(played, Series) else "search"


def _population(population: PopulationResult) -> ConcludedPopulation:
    """Returns the fields of the same name, and the statistics `latency_p99_us` of a distribution
    `latency`."""
    fields = ConcludedPopulation.model_fields
    return ConcludedPopulation.model_validate({name: _field(population, name) for name in fields})


def _field(population: PopulationResult, name: str) -> object:
    for part in (population, population.rates):
        if hasattr(part, name):
            return getattr(part, name)
    metric, statistic, _ = name.rsplit("_", 2)
    return number_at(population, (*OF_POPULATIONS[metric].path, statistic))
