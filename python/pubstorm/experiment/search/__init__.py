"""A search: trials played one after the other, each a run in a folder of its own, until the
strategy has its answer. The journal stores the search after each trial. A stored search continues:
its trials determine the next one."""

from __future__ import annotations

import contextlib
import re
from datetime import datetime
from pathlib import Path

from pubstorm.errors import PubstormError, StoredRunError
from pubstorm.experiment.invocation import Invocation
from pubstorm.experiment.journal import Journal, asked_again
from pubstorm.experiment.outlook import Outlook, run_s
from pubstorm.experiment.search.answer import Terms, answer_of, clients_of, question_of
from pubstorm.experiment.search.strategy import Candidate, Outcome, Settings, Strategy, trials_left
from pubstorm.experiment.search.trial import (
    evaluated,
    in_words,
    outcome_of,
    unfit,
    without_measurement,
)
from pubstorm.host.children import run_loop
from pubstorm.host.fit import unfit_here
from pubstorm.host.signals import INTERRUPTED
from pubstorm.play.directory import new_path, set_aside
from pubstorm.play.display import Live
from pubstorm.play.one_run import RUNS, RunOptions, play_scenario
from pubstorm.quantities import value_text
from pubstorm.report import SCENARIO_FILE, SEARCH_FILE, load_search
from pubstorm.result import SearchResult, Trial
from pubstorm.result.figures.table import headings
from pubstorm.scenario import Scenario, searched
from pubstorm.scenario.defaults import default_thresholds
from pubstorm.scenario.load import FOUND
from pubstorm.scenario.search import Search
from pubstorm.topology import Topology
from pubstorm.topology.adapters import broker_kinds

TRIALS = "trials"
"""Folder of the trials, in that of the search."""


def run_search(scenario: Scenario, asked: Invocation, out: Path | None, live: Live) -> SearchResult:
    """Plays the trials of a scenario with a search, in a new folder or in `out`, which must be new
    or empty."""
    path = out or new_path(RUNS, scenario.name, datetime.now().astimezone())
    return run_loop(play_search(scenario, path, asked, live))


def resume_search(path: Path, live: Live) -> SearchResult:
    """Continues the search in a folder. Raises StoredRunError if the folder has none."""
    scenario, asked = asked_again(path, load_search(path))
    if scenario.search is None:
        raise StoredRunError(
            f"{path / SCENARIO_FILE} has no search any more",
            "put the file back as it was, or start a new search",
        )
    return run_loop(play_search(scenario, path, asked, live))


async def play_search(
    scenario: Scenario, path: Path, asked: Invocation, live: Live, topology: Topology | None = None
) -> SearchResult:
    """Plays a search, or continues the one in the folder. `topology` has brokers that outlive the
    search; None if the search has its own."""
    if (path / SEARCH_FILE).exists():
        stored = load_search(path)
        search = _Search(scenario, Journal.open(path, stored, asked, live), topology)
        search.continues(stored)
    else:
        journal = Journal.create(path, TRIALS, scenario, asked, live)
        search = _Search(scenario, journal, topology)
    return await search.play()


def settings_of(search: Search) -> Settings:
    """Returns the settings of a search for the strategy."""
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


class _Search:
    """A search that is being played."""

    def __init__(self, scenario: Scenario, journal: Journal, topology: Topology | None) -> None:
        assert scenario.search is not None, "only a scenario with a search has trials"
        self._scenario = scenario
        self._search: Search = scenario.search
        self._topology = topology
        self._journal = journal
        self._live = journal.live
        self._interrupted = journal.interrupted
        self._strategy = Strategy(settings_of(self._search))
        self._trials: list[Trial] = []
        self._outcomes: list[tuple[float, Outcome]] = []
        """Values of the trials, in the unit of the strategy, with their outcomes."""
        self._outlook = Outlook()
        self._later_s = journal.live.after_s
        """Time of runs after this search, in seconds."""

    def continues(self, stored: SearchResult) -> None:
        """Takes the trials of the stored search. Raises StoredRunError if they are not those of
        this search."""
        for trial in stored.trials:
            following = self._strategy.next
            own = None if following is None else _identity(self._trial(following))
            self._journal.check([own], [_identity(trial)])
            self._take(trial)

    async def play(self) -> SearchResult:
        """Plays the next trial until there is an answer or the user ends the search."""
        found = await self._journal.keep(self._play, self._finish)
        self._live.step(found.answer.headline or found.answer.text)
        return found

    def _finish(self) -> SearchResult:
        found = self._store()
        self._journal.write_reports()
        return found

    async def _play(self) -> None:
        self._store()
        async with contextlib.AsyncExitStack() as stack:
            topology = self._topology
            if topology is None and self._search.broker == "same":
                ends = [searched(self._scenario, self._search.span.high)]
                topology = await stack.enter_async_context(self._journal.shared_brokers(ends))
            while (following := self._strategy.next) is not None:
                trial = await self._played(self._trial(following), following, topology)
                if trial is not None:
                    self._take(trial)
                    self._live.step(f"  {self._words(trial)}")
                    self._store()
                if self._interrupted.is_set():
                    break

    def _trial(self, following: Candidate) -> Trial:
        """Returns a trial before it is played."""
        measure, number = self._search.span.measure, len(self._trials) + 1
        written = measure.written(following.value)
        stem = re.sub(r"[^A-Za-z0-9._]+", "-", written).strip("-")
        return Trial(
            number=number,
            value=following.value / measure.per_unit,
            written=written,
            folder=f"{TRIALS}/{number:03}-{stem}",
            phase=following.phase,
            repetition=following.repetition,
            attempt=following.attempt,
        )

    async def _played(
        self, trial: Trial, following: Candidate, topology: Topology | None
    ) -> Trial | None:
        """Plays a trial, after the pause; None where the user ended it."""
        if self._trials:
            await self._journal.pause(self._search.pause)
        if self._interrupted.is_set():
            return None
        again = f", attempt {trial.attempt}" if trial.attempt > 1 else ""
        value = value_text(trial.value, self._search.span.measure.unit)
        self._live.step(f"trial {trial.number}: {value} ({PHASES[trial.phase]}{again})")
        scenario = searched(self._scenario, following.value)
        if (words := unfit_here(scenario, broker_kinds(scenario.topology))) is not None:
            return unfit(trial, words)
        folder = self._journal.folder(trial.folder)
        if folder.exists():
            set_aside(folder)
        options = RunOptions(folder, self._command(trial), topology, reports=False)
        self._look_ahead(run_s(self._scenario))
        try:
            result = await play_scenario(scenario, options, self._live)
        except PubstormError as error:
            if error.exit_code != INTERRUPTED:
                return without_measurement(trial, error.message)
            self._interrupted.set()
            return None
        self._outlook.end()
        if result.interrupted:
            self._interrupted.set()
            return None
        return evaluated(trial, result, self._search.figure)

    def _look_ahead(self, planned_s: float) -> None:
        """Gives the display the time of the trials after the one that begins."""
        left = trials_left(self._strategy.settings, self._outcomes) - 1
        self._outlook.begin(planned_s)
        self._live.after_s = self._later_s + self._outlook.of(left * planned_s, left)

    def _command(self, trial: Trial) -> str:
        """Returns the command line that plays a trial alone."""
        asked = self._journal.asked
        kept = (o for o in asked.overrides if o.partition("=")[0].split(".")[0] != "search")
        changes = (*kept, FOUND, f"{self._search.vary}={trial.written}")
        return Invocation(asked.scenario, changes, asked.target).command()

    def _take(self, trial: Trial) -> None:
        outcome = outcome_of(trial)
        self._trials.append(trial)
        self._outcomes.append((trial.value * self._search.span.measure.per_unit, outcome))
        self._strategy.take(outcome)

    def _words(self, trial: Trial) -> str:
        if trial.figure is None or self._search.figure is None:
            return in_words(trial)
        figure = value_text(trial.figure, self._search.figure.unit or "")
        return f"{in_words(trial)}; {self._search.figure} {figure}"

    def _store(self) -> SearchResult:
        search = self._search
        terms = Terms(
            unit=search.span.measure.unit,
            per_unit=search.span.measure.per_unit,
            figure=None if search.figure is None else str(search.figure),
            figure_unit="" if search.figure is None else search.figure.unit or "",
            confidence=search.confidence,
            question=question_of(self._scenario),
            clients=clients_of(self._scenario),
        )
        found = SearchResult(
            **self._journal.record,
            name=self._scenario.name,
            vary=search.vary,
            unit=terms.unit,
            figure=terms.figure,
            figure_unit=terms.figure_unit,
            thresholds=tuple(threshold.source for threshold in self._scenario.thresholds),
            defaults=tuple(each.source for each in default_thresholds(self._scenario)),
            confidence=search.confidence,
            columns=headings(self._scenario.table),
            trials=tuple(self._trials),
            answer=answer_of(self._trials, self._strategy.facts, terms),
            complete=self._strategy.next is None,
        )
        self._journal.directory.write(SEARCH_FILE, found.to_json())
        return found


def _identity(trial: Trial) -> tuple[object, ...]:
    return trial.number, trial.written, trial.phase, trial.repetition, trial.attempt


PHASES = {
    "grow": "growing",
    "bisect": "coming closer",
    "repeat": "looking anew",
    "most": "the largest figure again",
    "confirm": "the answer again",
}
"""Purpose of a trial, in words."""
