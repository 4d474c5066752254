"""Comparisons of stored runs, and of two scenarios that are played in turn: baseline, candidate,
candidate, baseline and so on, so that slow changes of the host meet both."""

from __future__ import annotations

import contextlib
import difflib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from pubstorm.contract import Value
from pubstorm.errors import StoredRunError, UsageError
from pubstorm.experiment.invocation import Invocation, again
from pubstorm.experiment.player import Journal, Player, Runs, Turn, now
from pubstorm.experiment.search import planned_s, search_of
from pubstorm.files import text_of
from pubstorm.host.children import run_loop
from pubstorm.metrics.expressions import Expression, parse_expression
from pubstorm.output import warn
from pubstorm.play.directory import RunDirectory, new_path
from pubstorm.play.display import Live
from pubstorm.play.one_run import RUNS
from pubstorm.quantities import UnfitError
from pubstorm.report import (
    ASKED_FILE,
    COMPARISON_FILE,
    SCENARIO_FILE,
    SEARCH_FILE,
    SERIES_FILE,
    holds,
    load_result,
    load_search,
    load_series,
    write_reports,
)
from pubstorm.result import RunResult, SearchResult, Series
from pubstorm.result.comparison import (
    ANSWERS,
    Comparison,
    Condition,
    Group,
    Played,
    compare,
    default_figures,
    has_figure,
    parse_condition,
    unfit,
)
from pubstorm.result.limits import Probed
from pubstorm.scenario import Scenario
from pubstorm.scenario.load import ALONE, check_figure

FOLDER = "runs"
"""Folder of the runs, in that of the comparison."""
NAMES = ("baseline", "candidate")
LINES_MAX = 8
"""Lines of scenarios that are shown where they differ."""


@dataclass(frozen=True)
class Question:
    """Figures and conditions that a comparison is asked for."""

    figures: Sequence[Expression] = ()
    """Figures that are compared; empty: the default ones."""
    conditions: Sequence[Condition] = ()

    @property
    def asked(self) -> tuple[Expression, ...]:
        """The figures that are named."""
        return (*self.figures, *(each.figure for each in self.conditions))

    def check_scenario(self, side: str, scenario: Scenario) -> None:
        """Raises UsageError for a figure that the runs of a scenario cannot have."""
        for figure in self.asked:
            if scenario.search is not None and str(figure) in ANSWERS:
                continue
            for _, message, hint in check_figure(scenario, figure):
                raise UsageError(f"{figure} is no figure of the {side}: {message}", hint)

    def check(self, results: Sequence[Played]) -> None:
        """Raises UsageError for a figure that no run has."""
        for figure in self.asked:
            if not any(has_figure(result, figure) for result in results):
                raise UsageError(
                    f"found no {figure} in the runs of either side",
                    "the reference lists the figures of thresholds",
                )

    def answer(self, baseline: Group, candidate: Group, started: str) -> Comparison:
        """Compares two groups of runs."""
        results = (*baseline.results, *candidate.results)
        figures = self.figures or default_figures(results)
        return compare(baseline, candidate, figures, self.conditions, started)


class AskedSide(Value):
    """One side of a comparison that is played. The folder has its scenario, too."""

    scenario: str
    """A file, the name of a ready scenario, or `-` for stdin."""
    overrides: tuple[str, ...]
    """`PATH=VALUE` each, without secrets."""
    target: str | None
    """Targets in place of the scenario's, separated by spaces."""


class ComparisonQuestion(Value):
    """The question of a comparison that is played, as stored in `asked.json`."""

    baseline: AskedSide
    candidate: AskedSide
    repeat: int
    """Runs of each side, of each step if the sides have a sweep."""
    figures: tuple[str, ...]
    """Figures that are compared; empty: the default ones."""
    conditions: tuple[str, ...]
    """Conditions of `--fail-if`."""
    started: str
    """Wall-clock start, ISO 8601 with offset."""

    @property
    def question(self) -> Question:
        """The figures and conditions. Raises UnfitError."""
        figures = [parse_expression(each) for each in self.figures]
        return Question(figures, [parse_condition(each) for each in self.conditions])


@dataclass
class _Side:
    """The runs of one side so far."""

    name: str
    results: list[Played] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    steps: dict[str, list[Played]] = field(default_factory=dict)

    def take(self, result: Played, folder: Path, step: str) -> None:
        """Takes a run or a search that can be compared; `step` is empty outside of series."""
        self.folders.append(folder)
        self.results.append(result)
        if step:
            self.steps.setdefault(step, []).append(result)

    def leave_out(self, why: str, folder: Path | None = None) -> None:
        """Leaves out a run with the reason; None for one without a folder."""
        self.left_out.append(why)
        self.folders += [] if folder is None else [folder]

    def take_series(self, path: Path, series: Series) -> None:
        """Takes the steps of a series, and leaves out those that say nothing about the target."""
        for step in series.steps:
            if step.status is None:
                continue
            folder = path / step.folder
            result = _load(folder)
            if (why := unfit(result)) is not None:
                self.leave_out(f"{step.name}: {why}", folder.resolve())
            else:
                self.take(result, folder.resolve(), step.label)

    def check_steps(self, other: _Side) -> None:
        """Names the steps that the other side has not, and raises UsageError if both sides have no
        step in common."""
        missing = [step for step in self.steps if step not in other.steps]
        for step in missing:
            self.leave_out(f"{step}: the {other.name} has no such step")
        if self.steps and len(missing) == len(self.steps):
            raise UsageError(
                "the series have no step in common",
                f"the {self.name} has {', '.join(self.steps)}",
            )

    def group(self, root: Path) -> Group:
        """Returns the runs for a comparison; folders in `root` are named from there."""
        runs = [str(f.relative_to(root) if f.is_relative_to(root) else f) for f in self.folders]
        return Group(self.name, self.results, runs, self.left_out, self.steps)


def compare_stored(
    baseline: Sequence[Path], candidate: Sequence[Path], question: Question, out: Path | None
) -> Comparison:
    """Compares stored runs, or series step by step, or searches answer by answer. Stores the
    comparison in `out`, if there is one. Raises StoredRunError for what cannot be compared."""
    kinds = {_kind(path) for path in (*baseline, *candidate)}
    if len(kinds) > 1:
        raise UsageError(
            f"found {' and '.join(sorted(kinds))}, allowed is one kind",
            "name runs, series or searches on both sides",
        )
    sides = [_stored(name, each) for name, each in zip(NAMES, (baseline, candidate), strict=True)]
    sides[0].check_steps(sides[1])
    sides[1].check_steps(sides[0])
    _check_once(path for side in sides for path in side.folders)
    question.check([result for side in sides for result in side.results])
    root = (out or Path()).resolve()
    found = question.answer(sides[0].group(root), sides[1].group(root), now())
    found = _with_scenarios(found, sides)
    if out is None:
        return found
    directory = RunDirectory.create(out, FOLDER)
    with contextlib.closing(directory):
        return _written(found, directory)


def play_comparison(
    asked: Sequence[Invocation], repeat: int, question: Question, out: Path | None, live: Live
) -> Comparison:
    """Plays two scenarios in turn, each `repeat` times, and compares them. A run that is invalid,
    or has no measurement, is left out with the reason."""
    played = {name: (each.load(), each) for name, each in zip(NAMES, asked, strict=True)}
    for name, (scenario, _) in played.items():
        question.check_scenario(name, scenario)
    turns = tuple(_turns(played, repeat))
    path = out or new_path(RUNS, "comparison", datetime.now().astimezone())
    files = {_scenario_file(name): each.source_text for name, (each, _) in played.items()}
    journal = Journal.create(path, FOLDER, files, live)
    stored = [
        AskedSide(scenario=e.scenario, overrides=e.stored_overrides, target=e.target) for e in asked
    ]
    wanted = ComparisonQuestion(
        baseline=stored[0],
        candidate=stored[1],
        repeat=repeat,
        figures=tuple(map(str, question.figures)),
        conditions=tuple(each.source for each in question.conditions),
        started=journal.started,
    )
    journal.directory.write(ASKED_FILE, wanted.model_dump_json(indent=2) + "\n")
    return run_loop(Player(_ComparisonRuns(turns, question, journal), journal).play())


def resume_comparison(path: Path, live: Live) -> Comparison:
    """Plays the missing runs of the comparison in a folder. Runs with a complete result are kept;
    other folders of runs are set aside. Raises StoredRunError if the folder has no comparison that
    was played."""
    try:
        asked = ComparisonQuestion.model_validate_json(
            (path / ASKED_FILE).read_text(encoding="utf-8")
        )
        question = asked.question
    except OSError as error:
        raise StoredRunError(f"cannot read {path / ASKED_FILE}: {error.strerror}") from error
    except (ValidationError, UnicodeDecodeError, UnfitError) as error:
        raise StoredRunError(f"{path / ASKED_FILE} is not as Pubstorm has written it") from error
    played = {}
    for name, side in zip(NAMES, (asked.baseline, asked.candidate), strict=True):
        invocation = Invocation(side.scenario, side.overrides, side.target)
        played[name] = again(invocation, path / _scenario_file(name)), invocation
    turns = tuple(_turns(played, asked.repeat))
    journal = Journal.open(path, asked.started, live)
    return run_loop(Player(_ComparisonRuns(turns, question, journal), journal).play())


def _scenario_file(name: str) -> str:
    return f"{name}.yaml"


@dataclass(frozen=True)
class _SideTurn:
    """One playing of a side, of one of its steps if it has a sweep."""

    side: str
    step: str
    """Label of the step; empty without a sweep."""
    turn: Turn


class _ComparisonRuns(Runs[Comparison]):
    """The runs of a comparison that is being played."""

    def __init__(self, turns: Sequence[_SideTurn], question: Question, journal: Journal) -> None:
        self._sides = {name: _Side(name) for name in NAMES}
        self._turns = turns
        self._question = question
        self._journal = journal
        self._root = journal.directory.path

    def turns(self) -> Iterator[Turn]:
        return (each.turn for each in self._turns)

    def take(self, turn: Turn) -> str:
        """Takes a run that can be compared, and leaves out others with the reason."""
        place = self._turns[turn.number - 1]
        folder, result = self._root / turn.folder, turn.result
        side = self._sides[place.side]
        if result is None or isinstance(result, Series | Probed):
            side.leave_out(f"run {turn.number}: {turn.words}")
        elif result.interrupted:
            side.leave_out(f"run {turn.number}: interrupted", folder)
        elif (why := unfit(result)) is not None:
            side.leave_out(f"run {turn.number}: {why}", folder)
        else:
            side.take(result, folder, place.step)
        return turn.words

    def later_s(self, turn: Turn) -> Sequence[float]:
        return [each.turn.planned_s for each in self._turns[turn.number :]]

    def finish(self) -> Comparison:
        sides = [*self._sides.values()]
        baseline, candidate = (side.group(self._root) for side in sides)
        found = self._question.answer(baseline, candidate, self._journal.started)
        update = {"interrupted": self._journal.interrupted.is_set()}
        found = _with_scenarios(found.model_copy(update=update), sides)
        return _written(found, self._journal.directory)


def _turns(sides: Mapping[str, tuple[Scenario, Invocation]], repeat: int) -> Iterator[_SideTurn]:
    """Yields the sides in turn, every second pair the other way round; of sweeps step by step.
    Raises UsageError if the sides are no sweeps of the same steps."""
    played = {name: _parts(*side) for name, side in sides.items()}
    steps, others = map(list, played.values())
    if steps != others:
        words = (", ".join(filter(None, each)) or "no sweep" for each in (steps, others))
        raise UsageError(
            f"found different steps: {' and '.join(words)}",
            "both sides need the same steps; --set sweep=null plays them without",
        )
    pairs = itertools.product(steps, range(repeat))
    order = [(step, side) for step, pair in pairs for side in (NAMES, NAMES[::-1])[pair % 2]]
    for number, (step, side) in enumerate(order, 1):
        asked, (scenario, command) = sides[side][1], played[side][step]
        turn = Turn(
            number=number,
            title=f"run {number} of {len(order)}: {', '.join(filter(None, (side, step)))}",
            scenario=scenario,
            folder=f"{FOLDER}/{number:02}-{side}",
            command=command,
            planned_s=planned_s(scenario),
            reports=asked.reports,
            experiment=search_of(scenario, asked),
        )
        yield _SideTurn(side, step, turn)


def _parts(scenario: Scenario, asked: Invocation) -> dict[str, tuple[Scenario, str]]:
    """Returns what a side plays in each repeat and its command line, by the labels of its steps;
    under an empty label without a sweep."""
    if not scenario.steps:
        return {"": (scenario, asked.command())}
    return {
        step.played.label: (
            step.scenario,
            asked.step_command(ALONE, step.variation.overrides.values()),
        )
        for step in scenario.steps
    }


def _kind(path: Path) -> str:
    if holds(path, SERIES_FILE):
        return "a series"
    return "a search" if holds(path, SEARCH_FILE) else "a run"


def _load(path: Path) -> RunResult | SearchResult:
    return load_search(path) if holds(path, SEARCH_FILE) else load_result(path)


def _stored(name: str, paths: Sequence[Path]) -> _Side:
    side = _Side(name)
    for path in paths:
        if holds(path, SERIES_FILE):
            side.take_series(path, load_series(path))
            continue
        result = _load(path)
        if (why := unfit(result)) is not None:
            raise StoredRunError(
                f"{path} cannot be compared: {why}", "play it again, or leave it out"
            )
        side.take(result, path.resolve(), "")
    return side


def _check_once(folders: Iterable[Path]) -> None:
    """Raises UsageError for a run that is named twice. It would look like runs without spread."""
    seen: set[Path] = set()
    for folder in folders:
        if folder in seen:
            raise UsageError(
                f"{folder} is named twice, allowed is once in both sides together",
                "a difference needs runs that were played one by one",
            )
        seen.add(folder)


def _with_scenarios(found: Comparison, sides: Sequence[_Side]) -> Comparison:
    """Returns a comparison that names the lines in which the scenarios differ too."""
    words = scenarios_unlike(sides[0].folders, sides[1].folders)
    return found.model_copy(update={"unlike": (*found.unlike, *words)})


def scenarios_unlike(before: Sequence[Path], after: Sequence[Path]) -> Iterator[str]:
    """Yields the lines in which the scenarios of two groups of run directories differ. The first
    scenario that can be read stands for its group."""
    lines = [
        f"only the {'first' if line[0] == '-' else 'second'} has: {line[1:].lstrip('# ')}"
        for line in difflib.unified_diff(
            _scenario_text(before), _scenario_text(after), n=0, lineterm=""
        )
        if not line.startswith(("---", "+++", "@@")) and line[1:].strip()
    ]
    yield from (f"scenario: {line}" for line in lines[:LINES_MAX])
    if len(lines) > LINES_MAX:
        yield f"scenario: {len(lines) - LINES_MAX} more lines"


def _scenario_text(folders: Sequence[Path]) -> list[str]:
    for folder in folders:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return text_of(folder / SCENARIO_FILE).splitlines()
    return []


def _written(found: Comparison, directory: RunDirectory) -> Comparison:
    """Stores a comparison with its reports."""
    found = found.model_copy(update={"run_directory": str(directory.path)})
    directory.write(COMPARISON_FILE, found.to_json())
    for problem in write_reports(directory.path, directory.write):
        warn(f"warning: {problem}")
    return found
