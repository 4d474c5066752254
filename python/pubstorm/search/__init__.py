"""A search: points played one after the other, each a run in a folder of its own, until the
strategy has its answer. What was found is stored after each point, and a search goes on from that:
the points say which one is next. It knows neither how a value is chosen nor what a run is made of.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pubstorm.binaries import engine_path
from pubstorm.errors import PubstormError, StoredRunError
from pubstorm.fit import unfit_here
from pubstorm.invocation import Invocation, again
from pubstorm.live import Live
from pubstorm.metrics.table import headings
from pubstorm.quantity import value_text
from pubstorm.report import SCENARIO_FILE, SEARCH_FILE, load_search, write_reports
from pubstorm.result import SearchPoint, SearchResult
from pubstorm.run import RUNS, RunOptions, caught_signals, play_scenario
from pubstorm.run_directory import RunDirectory, new_path, set_aside
from pubstorm.scenario import Scenario, searched
from pubstorm.scenario.defaults import default_thresholds
from pubstorm.scenario.load import FOUND
from pubstorm.scenario.search import Search
from pubstorm.search.answer import Terms, answer_of
from pubstorm.search.point import in_words, judged, outcome_of, unfit, without_measurement
from pubstorm.search.strategy import Settings, Strategy, Try
from pubstorm.shared_brokers import shared_brokers
from pubstorm.signals import INTERRUPTED
from pubstorm.topology import Topology

POINTS = "points"
"""Folder of the points, in that of the search."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """What is said of a search besides its scenario."""

    path: Path
    """Its folder: a new one, or one with a search to go on with."""
    asked: Invocation
    """What was asked for on the command line; in a series, for this step alone."""
    topology: Topology | None = None
    """Brokers that outlive it; None: it has its own."""


def run_search(scenario: Scenario, asked: Invocation, out: Path | None, live: Live) -> SearchResult:
    """Plays the points of a scenario with a search; it is stored in a new folder, or in `out`,
    which must be new or empty."""
    path = out or new_path(RUNS, scenario.name, datetime.now().astimezone())
    return asyncio.run(play_search(scenario, SearchOptions(path, asked), live))


def resume_search(path: Path, live: Live) -> SearchResult:
    """Goes on with the search in a folder. Raises StoredRunError where that is none."""
    stored = load_search(path)
    asked = Invocation(stored.scenario, stored.overrides, stored.target)
    scenario = again(asked, path / SCENARIO_FILE)
    if scenario.search is None:
        raise StoredRunError(
            f"{path / SCENARIO_FILE} has no search any more",
            "put the file back as it was, or start a new search",
        )
    return asyncio.run(play_search(scenario, SearchOptions(path, asked), live))


async def play_search(scenario: Scenario, options: SearchOptions, live: Live) -> SearchResult:
    """The same, for a loop that plays several; goes on where the folder holds a search."""
    engine_path()
    if (options.path / SEARCH_FILE).exists():
        stored: SearchResult | None = load_search(options.path)
        directory = RunDirectory(options.path)
    else:
        stored = None
        directory = RunDirectory.create(options.path, POINTS)
        directory.write(SCENARIO_FILE, scenario.source_text)
    playing = _Playing(scenario, options, directory, live)
    if stored is not None:
        playing.continues(stored)
    with contextlib.closing(directory):
        return await playing.play()


def settings_of(search: Search) -> Settings:
    """What the strategy has to know of a search."""
    span = search.span
    return Settings(
        low=span.low,
        high=span.high,
        whole=span.measure.is_whole,
        grow=search.grow,
        has_figure=search.figure is not None,
        growth=search.growth,
        precision=search.precision,
        repeat=search.repeat,
        retries=search.retries,
    )


class _Playing:
    """One search on its way."""

    def __init__(
        self, scenario: Scenario, options: SearchOptions, directory: RunDirectory, live: Live
    ) -> None:
        assert scenario.search is not None, "only a scenario with a search has points"
        self._scenario = scenario
        self._search: Search = scenario.search
        self._options = options
        self._directory = directory
        self._live = live
        self._strategy = Strategy(settings_of(self._search))
        self._points: list[SearchPoint] = []
        self._started = _now()
        self._interrupted = asyncio.Event()

    def continues(self, stored: SearchResult) -> None:
        """Takes the points that were played before; raises StoredRunError where they are not
        those of this search."""
        self._started = stored.started
        for point in stored.points:
            following = self._strategy.next
            if following is None or _identity(self._point(following)) != _identity(point):
                raise StoredRunError(
                    f"the points of {self._directory.path} are not those of its scenario",
                    "put the file back as it was, or start a new search",
                )
            self._take(point)

    async def play(self) -> SearchResult:
        """Plays what is next until there is an answer, or the user ends it."""
        # Signals stay caught until the search is stored.
        with caught_signals(lambda _: self._interrupted.set()):
            await self._play()
            self._directory.release()
            if self._directory.failure is not None:
                self._live.warn(f"{self._directory.failure}: what is stored is not complete")
            found = self._store()
            if self._options.asked.reports:
                for problem in write_reports(self._directory.path, self._directory.write):
                    self._live.warn(problem)
        self._live.step(found.answer.text)
        return found

    async def _play(self) -> None:
        self._store()
        async with contextlib.AsyncExitStack() as stack:
            topology = self._options.topology
            if topology is None and self._search.broker == "same":
                ends = [searched(self._scenario, self._search.span.high)]
                brokers = shared_brokers(ends, self._directory.topology, self._live.note)
                topology = await stack.enter_async_context(brokers)
            while (following := self._strategy.next) is not None:
                point = await self._played(self._point(following), following, topology)
                if point is not None:
                    self._take(point)
                    self._live.step(f"  {self._words(point)}")
                    self._store()
                if self._interrupted.is_set():
                    break

    def _point(self, following: Try) -> SearchPoint:
        """A point before it is played."""
        measure, number = self._search.span.measure, len(self._points) + 1
        written = measure.written(following.value)
        stem = re.sub(r"[^A-Za-z0-9._]+", "-", written).strip("-")
        return SearchPoint(
            number=number,
            value=following.value / measure.per_unit,
            written=written,
            folder=f"{POINTS}/{number:03}-{stem}",
            phase=following.phase,
            repetition=following.repetition,
            attempt=following.attempt,
        )

    async def _played(
        self, point: SearchPoint, following: Try, topology: Topology | None
    ) -> SearchPoint | None:
        """Plays a point, after the pause; None where the user ended it."""
        if self._points:
            await self._pause()
        if self._interrupted.is_set():
            return None
        again = f", attempt {point.attempt}" if point.attempt > 1 else ""
        value = value_text(point.value, self._search.span.measure.unit)
        self._live.step(f"point {point.number}: {value} ({PHASES[point.phase]}{again})")
        scenario = searched(self._scenario, following.value)
        if (words := unfit_here(scenario)) is not None:
            return unfit(point, words)
        folder = self._directory.path / point.folder
        if folder.exists():
            set_aside(folder)
        options = RunOptions(folder, self._command(point), topology, reports=False)
        try:
            result = await play_scenario(scenario, options, self._live)
        except PubstormError as error:
            if error.exit_code != INTERRUPTED:
                return without_measurement(point, error.message)
            self._interrupted.set()
            return None
        if result.interrupted:
            self._interrupted.set()
            return None
        return judged(point, result, self._search.figure)

    def _command(self, point: SearchPoint) -> str:
        """What plays a point alone."""
        asked = self._options.asked
        kept = (o for o in asked.overrides if o.partition("=")[0].split(".")[0] != "search")
        changes = (*kept, FOUND, f"{self._search.vary}={point.written}")
        return Invocation(asked.scenario, changes, asked.target).command()

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._interrupted.wait(), self._search.pause / 1e9)

    def _take(self, point: SearchPoint) -> None:
        self._points.append(point)
        self._strategy.take(outcome_of(point))

    def _words(self, point: SearchPoint) -> str:
        if point.figure is None or self._search.figure is None:
            return in_words(point)
        figure = value_text(point.figure, self._search.figure.unit or "")
        return f"{in_words(point)}; {self._search.figure} {figure}"

    def _store(self) -> SearchResult:
        search, asked = self._search, self._options.asked
        terms = Terms(
            unit=search.span.measure.unit,
            per_unit=search.span.measure.per_unit,
            figure=None if search.figure is None else str(search.figure),
            figure_unit="" if search.figure is None else search.figure.unit or "",
            confidence=search.confidence,
        )
        found = SearchResult(
            name=self._scenario.name,
            scenario=asked.scenario,
            target=asked.target,
            run_directory=str(self._directory.path),
            started=self._started,
            ended=_now(),
            overrides=asked.stored_overrides,
            vary=search.vary,
            unit=terms.unit,
            figure=terms.figure,
            figure_unit=terms.figure_unit,
            thresholds=tuple(threshold.source for threshold in self._scenario.thresholds),
            defaults=tuple(each.source for each in default_thresholds(self._scenario)),
            confidence=search.confidence,
            columns=headings(self._scenario.table),
            points=tuple(self._points),
            answer=answer_of(self._points, self._strategy.facts, terms),
            complete=self._strategy.next is None,
            interrupted=self._interrupted.is_set(),
        )
        self._directory.write(SEARCH_FILE, found.to_json())
        return found


def _identity(point: SearchPoint) -> tuple[object, ...]:
    return point.number, point.written, point.phase, point.repetition, point.attempt


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


PHASES = {
    "grow": "growing",
    "bisect": "coming closer",
    "repeat": "looking anew",
    "most": "the largest figure again",
    "confirm": "the answer again",
}
"""What a point is played for, in words."""
