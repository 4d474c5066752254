"""Comparisons of stored runs, and of two scenarios that are played in turn: baseline, candidate,
candidate, baseline and so on, so that slow changes of the host meet both."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from pubstorm.errors import PubstormError, ScenarioError, StoredRunError, UsageError
from pubstorm.experiment.invocation import Invocation
from pubstorm.experiment.journal import now
from pubstorm.experiment.outlook import run_s
from pubstorm.host.binaries import engine_path
from pubstorm.host.children import run_loop
from pubstorm.host.signals import INTERRUPTED
from pubstorm.metrics.expressions import Expression
from pubstorm.output import warn
from pubstorm.play.directory import RunDirectory, new_path
from pubstorm.play.display import Live
from pubstorm.play.interruption import caught_signals
from pubstorm.play.one_run import RUNS, RunOptions, play_scenario
from pubstorm.report import (
    COMPARISON_FILE,
    SCENARIO_FILE,
    SERIES_FILE,
    holds,
    load_result,
    load_series,
    write_reports,
)
from pubstorm.result import Result
from pubstorm.result.comparison import (
    Comparison,
    Condition,
    Group,
    compare,
    default_figures,
    unfit,
)
from pubstorm.result.figures import in_results
from pubstorm.scenario import Scenario, parse_scenario

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
        source = scenario.source
        for figure in self.asked:
            column = f"table={json.dumps({str(figure): str(figure)})}"
            overrides = (*source.overrides, column)
            try:
                parse_scenario(source.text, source.file, overrides, source.target)
            except ScenarioError as error:
                problem = error.problems[0]
                message = f"{figure} is no figure of the {side}: {problem.message}"
                raise UsageError(message, problem.hint) from None

    def check(self, results: Sequence[Result]) -> None:
        """Raises UsageError for a figure that no run has."""
        for figure in self.asked:
            if not in_results(results, figure):
                raise UsageError(
                    f"found no {figure} in the runs of either side",
                    "the reference lists the figures of thresholds",
                )

    def answer(self, baseline: Group, candidate: Group, started: str) -> Comparison:
        """Compares two groups of runs."""
        results = (*baseline.results, *candidate.results)
        figures = self.figures or default_figures(results)
        return compare(baseline, candidate, figures, self.conditions, started)


@dataclass
class _Side:
    """The runs of one side so far."""

    name: str
    scenario: Scenario | None = None
    asked: Invocation | None = None
    results: list[Result] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def group(self, root: Path) -> Group:
        """Returns the runs for a comparison; folders in `root` are named from there."""
        runs = [str(f.relative_to(root) if f.is_relative_to(root) else f) for f in self.folders]
        return Group(self.name, self.results, runs, self.left_out)


def compare_stored(
    baseline: Sequence[Path], candidate: Sequence[Path], question: Question, out: Path | None
) -> Comparison:
    """Compares stored runs. A folder of a series stands for its runs. Stores the comparison in
    `out`, if there is one. Raises StoredRunError for a run that cannot be compared."""
    sides = [_stored(name, each) for name, each in zip(NAMES, (baseline, candidate), strict=True)]
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
    sides = [_Side(name, each.load(), each) for name, each in zip(NAMES, asked, strict=True)]
    for side in sides:
        assert side.scenario is not None
        if side.scenario.steps or side.scenario.search is not None:
            raise PubstormError(
                f"the {side.name} has a sweep or a search, and a comparison plays single runs",
                "take one of its steps, for example with --set sweep=null",
                exit_code=2,
            )
        question.check_scenario(side.name, side.scenario)
    engine_path()
    path = out or new_path(RUNS, "comparison", datetime.now().astimezone())
    directory = RunDirectory.create(path, FOLDER)
    return run_loop(_Playing(sides, directory, live).play(repeat, question))


class _Playing:
    """A comparison that is being played."""

    def __init__(self, sides: Sequence[_Side], directory: RunDirectory, live: Live) -> None:
        self._sides = sides
        self._directory = directory
        self._live = live
        self._interrupted = asyncio.Event()

    async def play(self, repeat: int, question: Question) -> Comparison:
        """Plays every run, or those before the user ends the comparison."""
        started = now()
        with (
            contextlib.closing(self._directory),
            caught_signals(lambda _: self._interrupted.set()),
        ):
            turns = tuple(_turns(self._sides, repeat))
            for number, side in enumerate(turns, 1):
                if self._interrupted.is_set():
                    break
                later = [run_s(each.scenario) for each in turns[number:] if each.scenario]
                self._live.after_s = sum(later)
                self._live.step(f"run {number} of {2 * repeat}: {side.name}")
                await self._run(side, number)
            self._directory.release()
            root = self._directory.path
            groups = [side.group(root) for side in self._sides]
            found = question.answer(groups[0], groups[1], started)
            update = {"interrupted": self._interrupted.is_set()}
            found = _with_scenarios(found.model_copy(update=update), self._sides)
            return _written(found, self._directory)

    async def _run(self, side: _Side, number: int) -> None:
        assert side.scenario is not None and side.asked is not None
        folder = self._directory.path / FOLDER / f"{number:02}-{side.name}"
        options = RunOptions(folder, side.asked.command(), None, side.asked.reports)
        try:
            result = await play_scenario(side.scenario, options, self._live)
        except PubstormError as error:
            if error.exit_code == INTERRUPTED:
                self._interrupted.set()
            else:
                side.left_out.append(f"run {number}: no measurement: {error.message}")
                self._live.step(f"  no measurement: {error.message}")
            return
        verdict = result.verdict
        self._live.step(f"  {verdict.status}, limited by {verdict.limited_by}")
        side.folders.append(folder)
        if result.interrupted:
            self._interrupted.set()
            side.left_out.append(f"run {number}: interrupted")
        elif (why := unfit(result)) is not None:
            side.left_out.append(f"run {number}: {why}")
        else:
            side.results.append(result)


def _turns(sides: Sequence[_Side], repeat: int) -> Iterator[_Side]:
    """Yields the sides in turn, every second pair the other way round."""
    for pair in range(repeat):
        yield from sides if pair % 2 == 0 else reversed(sides)


def _stored(name: str, paths: Sequence[Path]) -> _Side:
    side = _Side(name)
    for path in itertools.chain.from_iterable(map(_runs_in, paths)):
        result = load_result(path)
        if (why := unfit(result)) is not None:
            raise StoredRunError(
                f"{path} cannot be compared: {why}", "play it again, or leave it out"
            )
        side.folders.append(path.resolve())
        side.results.append(result)
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


def _runs_in(path: Path) -> Iterator[Path]:
    if holds(path, SERIES_FILE):
        yield from (path / step.folder for step in load_series(path).steps if step.status)
    else:
        yield path


def _with_scenarios(found: Comparison, sides: Sequence[_Side]) -> Comparison:
    """Returns a comparison that names the lines in which the scenarios differ too."""
    words = scenarios_unlike(sides[0].folders, sides[1].folders)
    return found.model_copy(update={"unlike": (*found.unlike, *words)})


def scenarios_unlike(before: Sequence[Path], after: Sequence[Path]) -> Iterator[str]:
    """Yields the lines in which the scenarios of two groups of run directories differ. The first
    scenario that can be read stands for its group."""
    lines = [
        line
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
            return (folder / SCENARIO_FILE).read_text(encoding="utf-8").splitlines()
    return []


def _written(found: Comparison, directory: RunDirectory) -> Comparison:
    """Stores a comparison with its reports."""
    found = found.model_copy(update={"run_directory": str(directory.path)})
    directory.write(COMPARISON_FILE, found.to_json())
    for problem in write_reports(directory.path, directory.write):
        warn(f"warning: {problem}")
    return found
