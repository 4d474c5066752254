"""A search: trials played one after the other, each a run in a folder of its own, until the
strategy has its answer. The journal stores the search after each trial. A stored search continues:
its trials determine the next one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from pubstorm.errors import StoredRunError
from pubstorm.experiment.invocation import Invocation
from pubstorm.experiment.player import (
    Journal,
    Player,
    Playing,
    Runs,
    Turn,
    asked_again,
    run_s,
    warm_up_of,
)
from pubstorm.experiment.search.answer import (
    Terms,
    answer_of,
    clients_of,
    evaluated,
    in_words,
    outcome_of,
    question_of,
    recovered,
    uncounted,
)
from pubstorm.experiment.search.strategy import (
    Candidate,
    Settings,
    Strategy,
    TrialOutcome,
    trials_left,
)
from pubstorm.host.children import run_loop
from pubstorm.play.directory import new_path
from pubstorm.play.display import Live
from pubstorm.play.one_run import RUNS
from pubstorm.quantities import SECOND_NS, value_text
from pubstorm.report import SCENARIO_FILE, SEARCH_FILE, load_search
from pubstorm.result import LimitedBy, RunResult, SearchResult, Trial
from pubstorm.result.figures.table import headings
from pubstorm.result.search import RecoveryTrial
from pubstorm.scenario import Scenario, searched, varied
from pubstorm.scenario.defaults import default_thresholds
from pubstorm.scenario.load import FOUND
from pubstorm.scenario.recovery import recovery_extra_ns, recovery_settings
from pubstorm.scenario.series import Search
from pubstorm.topology import Topology

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
        journal = Journal.open(path, stored.started, live)
        trials = _SearchRuns(scenario, asked, journal)
        trials.continues(stored)
    else:
        journal = Journal.create(path, TRIALS, {SCENARIO_FILE: scenario.source_text}, live)
        trials = _SearchRuns(scenario, asked, journal)
    found = await Player(trials, journal, topology).play()
    live.step(found.answer.headline or found.answer.text)
    return found


def search_of(scenario: Scenario, asked: Invocation) -> Playing | None:
    """Returns what plays the search of a scenario, or of a step of a sweep; None if it has no
    search."""
    if scenario.search is None:
        return None
    source = scenario.source
    own = replace(asked, overrides=source.overrides, target=source.target)

    async def play(folder: Path, live: Live, topology: Topology | None) -> SearchResult:
        return await play_search(scenario, folder, own, live, topology)

    return play


def planned_s(scenario: Scenario) -> float:
    """Returns the seconds of a run by its plan; of a search those of the trials to expect."""
    search = scenario.search
    if search is None:
        return run_s(scenario)
    trials_s = trials_left(settings_of(search), ()) * run_s(scenario)
    return trials_s + search.warm_up / SECOND_NS + _extra_s(scenario)


def _extra_s(scenario: Scenario) -> float:
    """Returns the seconds by which a recovery test is longer than a trial; 0 without one."""
    search = scenario.search
    if search is None or not search.recovery:
        return 0.0
    return recovery_extra_ns(scenario) / SECOND_NS


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
        recovery=search.recovery,
    )


class _SearchRuns(Runs[SearchResult]):
    """The trials of a search that is being played."""

    def __init__(self, scenario: Scenario, asked: Invocation, journal: Journal) -> None:
        assert scenario.search is not None, "only a scenario with a search has trials"
        self._scenario = scenario
        self._search: Search = scenario.search
        self._asked = asked
        self._journal = journal
        self._strategy = Strategy(settings_of(self._search))
        self._trials: list[Trial] = []
        self._recovery: list[RecoveryTrial] = []
        self._outcomes: list[tuple[float, TrialOutcome]] = []
        """Values of the trials, in the unit of the strategy, with their outcomes."""
        self._run_s = run_s(scenario)
        self._extra_s = _extra_s(scenario)
        if self._search.broker == "same":
            self.shared = [searched(scenario, self._search.span.high)]
            self.warm_up, self.warm_up_runs = warm_up_of(scenario, self._search.warm_up)

    def continues(self, stored: SearchResult) -> None:
        """Takes the trials of the stored search. Raises StoredRunError if they are not those of
        this search."""
        for trial in stored.played:
            following = self._strategy.next
            own = None if following is None else _identity(self._trial(following))
            self._journal.check([own], [_identity(trial)])
            self._take(trial)

    @property
    def pause_ns(self) -> int:
        """The pause of the search; none before the first trial."""
        return self._search.pause if self._trials else 0

    def turns(self) -> Iterator[Turn]:
        measure = self._search.span.measure
        while (following := self._strategy.next) is not None:
            trial = self._trial(following)
            again = f", attempt {trial.attempt}" if trial.attempt > 1 else ""
            value = value_text(trial.value, measure.unit)
            yield Turn(
                number=trial.number,
                title=f"trial {trial.number}: {value} ({PHASES[trial.phase]}{again})",
                scenario=varied(self._scenario, FOUND, *self._settings(following)),
                folder=trial.folder,
                command=self._command(following),
                planned_s=self._run_s + (self._extra_s if following.beyond is not None else 0.0),
                reports=False,
            )

    def take(self, turn: Turn) -> str:
        """Takes a trial; one that the user ended is played again."""
        following, result = self._strategy.next, turn.result
        assert following is not None, "the trial that was played is the next one"
        trial = self._trial(following)
        if isinstance(result, RunResult):
            if result.interrupted:
                return ""
            if isinstance(trial, RecoveryTrial):
                trial = recovered(trial, result)
            else:
                trial = evaluated(trial, result, self._search.figure)
        elif turn.problem is not None:
            trial = uncounted(trial, turn.problem.message)
        else:
            trial = uncounted(trial, turn.unfit, LimitedBy.HOST)
        self._take(trial)
        return self._words(trial)

    def later_s(self, turn: Turn) -> Sequence[float]:
        later = trials_left(self._strategy.settings, self._outcomes) - 1
        test_s = [turn.planned_s + self._extra_s] if self._search.recovery and later > 0 else []
        return [*[turn.planned_s] * (later - len(test_s)), *test_s]

    def _trial(self, following: Candidate) -> Trial:
        """Returns a trial before it is played."""
        measure = self._search.span.measure
        number = len(self._trials) + len(self._recovery) + 1
        written = measure.written(following.value)
        stem = re.sub(r"[^A-Za-z0-9._]+", "-", written).strip("-")
        fields = {
            "number": number,
            "value": following.value / measure.per_unit,
            "written": written,
            "folder": f"{TRIALS}/{number:03}-{stem}",
            "phase": following.phase,
            "repetition": following.repetition,
            "attempt": following.attempt,
        }
        if following.beyond is None:
            return Trial.model_validate(fields)
        beyond = following.beyond / measure.per_unit
        return RecoveryTrial.model_validate({**fields, "beyond": beyond})

    def _settings(self, following: Candidate) -> Sequence[str]:
        """Returns the overrides that make the scenario a trial."""
        if following.beyond is not None:
            return recovery_settings(self._scenario, following.value, following.beyond)
        return (f"{self._search.vary}={self._search.span.measure.written(following.value)}",)

    def _command(self, following: Candidate) -> str:
        """Returns the command line that plays a trial alone."""
        asked = self._asked
        kept = (o for o in asked.overrides if o.partition("=")[0].split(".")[0] != "search")
        changes = (*kept, FOUND, *self._settings(following))
        return Invocation(asked.scenario, changes, asked.target).command()

    def _take(self, trial: Trial) -> None:
        outcome = outcome_of(trial)
        if isinstance(trial, RecoveryTrial):
            self._recovery.append(trial)
        else:
            self._trials.append(trial)
        self._outcomes.append((trial.value * self._search.span.measure.per_unit, outcome))
        self._strategy.take(outcome)

    def _words(self, trial: Trial) -> str:
        if isinstance(trial, RecoveryTrial):
            return trial.in_words(self._search.span.measure.unit)
        if trial.figure is None or self._search.figure is None:
            return in_words(trial)
        figure = value_text(trial.figure, self._search.figure.unit or "")
        return f"{in_words(trial)}; {self._search.figure} {figure}"

    def store(self) -> None:
        self._stored()

    def finish(self) -> SearchResult:
        found = self._stored()
        if self._asked.reports:
            self._journal.write_reports()
        return found

    def _stored(self) -> SearchResult:
        search = self._search
        terms = Terms(
            unit=search.span.measure.unit,
            per_unit=search.span.measure.per_unit,
            figure=None if search.figure is None else str(search.figure),
            figure_unit="" if search.figure is None else search.figure.unit or "",
            confidence=search.confidence,
            question=question_of(self._scenario),
            clients=clients_of(self._scenario),
            recovery=search.recovery and self._strategy.next is None,
        )
        found = SearchResult(
            **self._journal.record(self._asked),
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
            recovery=tuple(self._recovery),
            answer=answer_of(self._trials, self._strategy.facts, terms, self._tested),
            complete=self._strategy.next is None,
        )
        self._journal.directory.write(SEARCH_FILE, found.to_json())
        return found

    @property
    def _tested(self) -> RecoveryTrial | None:
        """The last recovery test."""
        return self._recovery[-1] if self._recovery else None


def _identity(trial: Trial) -> tuple[object, ...]:
    return trial.number, trial.written, trial.phase, trial.repetition, trial.attempt


PHASES = {
    "grow": "growing",
    "bisect": "coming closer",
    "repeat": "looking anew",
    "most": "the largest figure again",
    "confirm": "the answer again",
    "recover": "beyond the answer and back",
}
"""Purpose of a trial, in words."""
