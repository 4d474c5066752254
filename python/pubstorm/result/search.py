"""A search as stored in `search.json`: its trials with their outcomes, and the answer. A series as
stored in `series.json`: its steps with their verdicts, and the tables over them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from pubstorm.contract import Moment, Number, Positive, Probability, Value
from pubstorm.quantities import Unit, span_text, value_text
from pubstorm.result.interval import Cell, Estimate
from pubstorm.result.model import LimitedBy, RunResult, Status, ThresholdOutcome
from pubstorm.result.summary import MemoryModel, MemoryPoint

TrialPhase = Literal["grow", "bisect", "repeat", "most", "confirm", "recover"]
"""Purpose of a trial: to find a failing value; to come closer; to search anew; to measure the
largest figure; to confirm the answer; to test the recovery of its load."""


Return = Literal["no collapse", "under overload", "came back", "never"]
"""Outcome of a recovery test: the load never collapsed; it collapsed, and came back before it fell;
it came back after it fell; it did not come back in the time of the test."""


def check_rows(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Raises ValueError if a row has another number of cells than there are columns."""
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(f"found a row of {len(row)} cells, needed are {len(columns)}")


class ExperimentRow(Value):
    """One run of an experiment: its place, and its outcome."""

    number: int
    """Number in the order of playing, from 1."""
    folder: str
    """Run directory, in that of the experiment."""
    repetition: int = 1
    """Number of the repetition, from 1."""
    status: Status | None = None
    """Verdict; null: no measurement, or not played."""
    limited_by: LimitedBy | None = None
    """Component that set the limit."""
    evidence: tuple[str, ...] = ()
    """The facts behind its verdict, with the conditions that it missed."""
    duration_s: Number = 0.0
    """Duration of its run, or of the runs of its search; 0: no measurement."""
    cells: tuple[Cell, ...] = ()
    """Row of the scenario's own table."""

    @property
    def outcome(self) -> str:
        """The verdict in a word, or the reason why there is none."""
        return "no measurement" if self.status is None else str(self.status)

    def of_run(self, result: RunResult, **more: object) -> Self:
        """Returns the row with the outcome of its run, and further fields."""
        verdict = result.verdict
        outcome = {
            "status": verdict.status,
            "limited_by": verdict.limited_by,
            "evidence": verdict.facts,
            "duration_s": result.duration_s,
        }
        return self.model_copy(update=outcome | more)


class Trial(ExperimentRow):
    """One playing of the scenario with one value."""

    value: Positive
    """The value that was tried, in the unit of the search."""
    written: str
    """The same as the scenario has it, such as `1000/s`."""
    phase: TrialPhase
    """Purpose of the trial."""
    attempt: int = 1
    """Number of the attempt, from 1; above 1 if the same trial was not counted before."""
    figure: Number | None = None
    """The figure in its unit; null if there is none, or it was not measured."""
    counted: bool = True
    """True if the trial says anything about what is under test."""
    why: str | None = None
    """Reason why it is not counted."""
    thresholds: tuple[ThresholdOutcome, ...] = ()
    """The thresholds, evaluated."""

    @property
    def passed(self) -> bool:
        """True if the scenario passed at this value."""
        return self.counted and self.status is Status.PASS

    @property
    def failed(self) -> bool:
        """True if the scenario failed at this value through what is under test."""
        return self.counted and self.status is Status.FAIL


class RecoveryTrial(Trial):
    """The recovery test of an answer: a trial in which the load was the answer, then the first
    value that failed, then the answer again, on the same brokers."""

    beyond: Positive
    """The value that failed, in the unit of the search."""
    outcome_of_load: Return | None = None
    """Outcome of the test; null: not counted."""
    after_s: Number | None = None
    """Time until the load was carried again, from the return to the answer; null: it was not, or
    had not to come back."""
    part_s: Number = 0.0
    """Length of each of the three parts."""

    @property
    def in_short(self) -> str:
        """The outcome in a word or two."""
        match self.outcome_of_load:
            case None:
                return "not counted"
            case "came back":
                return f"after {span_text(self.after_s or 0.0)}"
            case "never":
                return f"not in {span_text(self.part_s)}"
            case outcome:
                return outcome

    def in_words(self, unit: Unit) -> str:
        """Returns the outcome in a sentence."""
        over = f"{span_text(self.part_s)} at {value_text(self.beyond, unit)}"
        match self.outcome_of_load:
            case None:
                return f"the recovery test is not counted: {self.why}"
            case "no collapse":
                return f"the load did not collapse in {over}, and nothing had to come back"
            case "never":
                return f"after {over} it did not come back within {span_text(self.part_s)}"
            case "under overload":
                return f"it collapsed and came back by itself within {over}"
            case "came back":
                return f"after {over} it came back by itself after {span_text(self.after_s or 0.0)}"


class SearchAnswer(Value):
    """The answer of a search."""

    best: Estimate | None = None
    """The largest value at which the scenario passes; null: no value passed. An answer that did not
    pass again has no confidence interval."""
    whole: Estimate | None = None
    """The same for all clients together; null: `best` is that, since the search did not vary a rate
    of each client."""
    most: Estimate | None = None
    """The largest value of the figure; null: there is no figure, or it was never measured."""
    limited_by: LimitedBy | None = None
    """Component that set the limit at the smallest value beyond the answer; none: the search
    reached its bound; null: no trial was counted, or the search ended before a value failed."""
    confirmed: bool | None = None
    """True if the value of `best` passed when it was played again; null: it was not."""
    confirmed_at: Number | None = None
    """The value at which it passed then, in the unit of the search, with the digits of a trial."""
    best_trial: int | None = None
    """Number of the trial that shows the scenario at the answer: the one that confirmed it, or the
    largest that passed."""
    most_trial: int | None = None
    """Number of the trial that shows it at the largest figure."""
    trials: int = 0
    """Number of trials."""
    recovery: RecoveryTrial | None = None
    """The recovery test; null: not asked for, or not played."""
    headline: str = ""
    """The answer in the unit of the question, and what the first value beyond it showed."""
    text: str = ""
    """The answer with its interval, its limit and its confirmation."""

    @property
    def statements(self) -> tuple[str, ...]:
        """The answer in sentences, the shortest first."""
        return tuple(filter(None, (self.headline, self.text)))

    @property
    def of_load(self) -> Estimate | None:
        """The answer in the unit of the whole load."""
        return self.whole or self.best


def beyond(trials: Sequence[Trial], best: Estimate | None) -> Trial | None:
    """Returns the smallest value above an answer that failed or was not counted, as it came out the
    last time; None if there is none. An attempt that failed says more than one that was not
    counted, and that says more than one in which this host had no processor left."""
    floor = 0.0 if best is None else best.value
    others = [trial for trial in trials if not trial.passed and trial.value > floor]

    def rank(trial: Trial) -> tuple[float, bool, bool]:
        return trial.value, not trial.counted, trial.limited_by is LimitedBy.HOST

    return min(reversed(others), key=rank, default=None)


def nothing_passed(trials: Sequence[Trial]) -> str:
    """Returns the reason why a search has no answer."""
    if not trials:
        return "no trial ended"
    below = any(trial.passed for trial in trials)
    return "no value passed below those that failed" if below else "no value passed"


def ended_by_host(trials: Sequence[Trial], best: Estimate | None) -> bool:
    """Returns True if this host or the load generator alone ended a search: values above its lower
    bound were not counted, and none of them failed."""
    if best is None or best.bound != "at_least":
        return False
    above = [trial for trial in trials if trial.value > best.value]
    return any(not trial.counted for trial in above) and not any(trial.failed for trial in above)


class Experiment(Value):
    """A stored series or search."""

    name: str
    """The scenario's name."""
    scenario: str
    """The scenario as the command line named it."""
    target: str | None = None
    """The targets of the command line, separated by spaces; null: there was none."""
    run_directory: str
    """Folder that the experiment was written to."""
    started: Moment
    """Wall-clock start, ISO 8601 with offset."""
    ended: Moment
    """Wall-clock end of the last run so far."""
    overrides: tuple[str, ...] = ()
    """Settings of the command line, for `--resume`."""
    complete: bool = False
    """True if the experiment is complete."""
    interrupted: bool = False
    """True if the user ended the experiment."""

    @property
    def took_s(self) -> float:
        """Time from the start to the end of the last run so far, with all pauses."""
        ends = (datetime.fromisoformat(each) for each in (self.started, self.ended))
        started, ended = (each.timestamp() for each in ends)
        return max(ended - started, 0.0)

    def to_json(self) -> str:
        """Returns the text of the stored file."""
        return self.model_dump_json(indent=2) + "\n"


class SearchResult(Experiment):
    """The largest value at which a scenario passes, and every trial behind that answer."""

    FORMAT: ClassVar[int] = 3

    format: Literal[3] = 3
    """Version of this format."""
    vary: str
    """Path of the value that was searched."""
    unit: Unit
    """Unit of the trials' values."""
    figure: str | None = None
    """The figure that growth was watched of; null: none."""
    figure_unit: Unit = ""
    """Unit of the trials' figures."""
    thresholds: tuple[str, ...] = ()
    """The scenario's conditions that say whether a trial passes."""
    defaults: tuple[str, ...] = ()
    """Default conditions beside them."""
    confidence: Probability = 0.95
    """Confidence of the intervals, from 0 to 1."""
    columns: tuple[str, ...] = ()
    """Headings of the trials' cells: those of the scenario's own table that a run can fill."""
    trials: tuple[Trial, ...] = ()
    """Trials in the order of playing."""
    recovery: tuple[RecoveryTrial, ...] = ()
    """Recovery tests of the answer; one that was not counted is repeated."""
    answer: SearchAnswer = Field(default_factory=SearchAnswer)
    """The answer so far."""

    @model_validator(mode="after")
    def _has_whole_rows(self) -> Self:
        """Raises ValueError if a trial has cells, and another number than there are columns."""
        check_rows(self.columns, (trial.cells for trial in self.trials if trial.cells))
        return self

    @property
    def played(self) -> tuple[Trial, ...]:
        """All trials, with the recovery tests, in the order of playing."""
        return (*self.trials, *self.recovery)

    @property
    def remark(self) -> str | None:
        """The reason why there is no answer, or why it is not confirmed; None if it is."""
        answer = self.answer
        if answer.best is None:
            return nothing_passed(self.trials)
        if answer.confirmed:
            return None
        if all(trial.phase != "confirm" for trial in self.trials):
            return "it was not played again"
        did = "failed" if answer.confirmed is False else "was not counted"
        return f"it {did} when it was played again"

    @property
    def status(self) -> Status:
        """pass: an answer was found, and passed again; fail: no value passed, or the answer failed
        again; open: this host or the load generator ended the search, or the answer was not counted
        again; invalid: nothing could be counted."""
        answer = self.answer
        if not any(trial.counted for trial in self.trials):
            return Status.INVALID
        if answer.best is None or answer.confirmed is False:
            return Status.FAIL
        is_open = answer.confirmed is None or ended_by_host(self.trials, answer.best)
        return Status.OPEN if is_open else Status.PASS


NOT_PASSED = {
    "fail": "failed",
    "open": "not found",
    "invalid": "invalid",
    "no measurement": "without a measurement",
}
"""Outcomes of steps that did not pass, in words."""
RANKED = (Status.FAIL, Status.INVALID, Status.OPEN, Status.PASS)
"""The worst outcome first."""


class StepFigure(Value):
    """Cell of one step in a table over the series."""

    estimate: Estimate | None = None
    """The figure; null: a word, or nothing."""
    word: str = ""
    """A word in place of a figure, such as a verdict."""
    limited_by: LimitedBy | None = None
    """Component that set the limit of the figure."""
    remark: str | None = None
    """Remark on the figure, or the reason why there is none."""


class SeriesCell(Cell):
    """One cell of such a table."""

    remarks: tuple[str, ...] = ()
    """Remarks in the notes of the table, such as that this host was the limit."""


class SeriesTable(Value):
    """A table over a series."""

    title: str
    columns: tuple[str, ...]
    """Headings."""
    rows: tuple[tuple[SeriesCell, ...], ...]
    """One for each step without its variants."""

    @model_validator(mode="after")
    def _has_whole_rows(self) -> Self:
        """Raises ValueError if a row has another number of cells than there are columns."""
        check_rows(self.columns, self.rows)
        return self


class SeriesStep(ExperimentRow):
    """One step of a series. Each repetition has a number of its own."""

    label: str
    """Values in short, such as `clients 500`, and the variant."""
    base: str = ""
    """The label without the variant."""
    variant: str | None = None
    """Variant of the scenario; null without variants."""
    values: dict[str, str]
    """Values that the step sets in the scenario, by path."""
    repetitions: int = 1
    """Number of repetitions."""
    command: str
    """Command line that plays this step alone."""
    note: str
    """Free words about it."""
    problem: str | None = None
    """Reason why there is no measurement."""
    unfit: str | None = None
    """Resources that this host lacks, if the step was not run for that reason."""
    figures: dict[str, StepFigure] = Field(default_factory=dict)
    """Cells in the tables over the series, by the figures of the columns."""
    answer: SearchAnswer | None = None
    """Answer of its search; null: there is no search, or the step was not played."""
    memory: dict[str, MemoryPoint] = Field(default_factory=dict)
    """Memory of brokers, agents and kernel while the load was steady."""

    @property
    def name(self) -> str:
        """The label, with the repetition if there are several."""
        if self.repetitions == 1:
            return self.label
        return f"{self.label} ({self.repetition} of {self.repetitions})"

    @property
    def was_played(self) -> bool:
        """True if the step has a verdict, or came to no measurement."""
        return self.status is not None or self.problem is not None

    @property
    def outcome(self) -> str:
        """The verdict in a word, or the reason why there is none."""
        if self.was_played:
            return super().outcome
        return "not played" if self.unfit is None else "not run"


class Series(Experiment):
    """All steps of a sweep."""

    FORMAT: ClassVar[int] = 3

    format: Literal[3] = 3
    """Version of this format."""
    columns: tuple[str, ...]
    """Headings of the table."""
    steps: tuple[SeriesStep, ...]
    """Steps in the order of playing."""
    stopped: str | None = None
    """Condition that ended it early; with variants, each that was ended."""
    memory: tuple[MemoryModel, ...] = ()
    """Memory by connections over the steps, where a line was fitted."""
    tables: tuple[SeriesTable, ...] = ()
    """The scenario's tables over all steps, with its variants as columns."""
    text: str
    """The conclusion: the last step that passed, the first that failed; a line for each variant."""

    @model_validator(mode="after")
    def _has_whole_rows(self) -> Self:
        """Raises ValueError if a row has another number of cells than there are columns."""
        check_rows(self.columns, (step.cells for step in self.steps))
        return self
