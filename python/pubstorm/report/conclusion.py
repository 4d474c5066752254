"""The outcome of a run, a series or a search as one JSON document, for scripts. The models are its
form; the files of the run directory hold the rest."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from pubstorm.contract.value import Value
from pubstorm.metrics import OF_POPULATIONS
from pubstorm.report.document import Document
from pubstorm.result import (
    LimitedBy,
    PopulationResult,
    RunResult,
    SearchAnswer,
    SearchResult,
    Series,
    Status,
    ThresholdOutcome,
)
from pubstorm.result.figures import number_at


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
