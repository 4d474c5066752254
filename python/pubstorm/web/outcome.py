"""The verdict on a run that is not over, with the same code as the verdict at its end. Takes a
small share of one core at most, so that a long run is evaluated less often."""

from __future__ import annotations

import time
from pathlib import Path

from pubstorm.contract.snapshot import SNAPSHOTS_FILE
from pubstorm.contract.source import StoredSource
from pubstorm.measure.recorder import is_summed_up
from pubstorm.measure.run_log import stored_event
from pubstorm.metrics.thresholds import Threshold
from pubstorm.play.directory import RunDirectory
from pubstorm.play.display import Live
from pubstorm.play.kept import Kept
from pubstorm.play.record import measured_of
from pubstorm.result import ThresholdOutcome, Verdict
from pubstorm.result.journal import Tail, snapshots_in
from pubstorm.result.problems import KINDS
from pubstorm.result.samples import (
    EVENTS_FILE,
    SAMPLES_FILE,
    Sources,
)
from pubstorm.result.verdict import evaluate_run
from pubstorm.scenario.defaults import conditions_of

PAUSE_S = 5.0
"""Shortest time between two evaluations."""
SHARE = 1 / 300
"""Largest share of one core for evaluations, on average."""


class VerdictSoFar:
    """The verdict so far."""

    def __init__(self, path: Path) -> None:
        """Raises StoredRunError if start, plan or scenario cannot be read."""
        self._next_s = 0.0
        self._begin(path)

    def _begin(self, path: Path) -> None:
        self._kept = Kept(path)
        self._snapshots = Tail(path, SNAPSHOTS_FILE)
        self._samples = Tail(path, SAMPLES_FILE)
        self._events = Tail(path, EVENTS_FILE)
        self._readings = self._kept.keeper()
        self._sources: Sources = {}

    @property
    def is_due(self) -> bool:
        """True if the time of the next evaluation has come."""
        return time.monotonic() >= self._next_s

    def evaluate(self) -> Verdict | None:
        """Evaluates what the run has stored so far; None before its first stage."""
        began_s, cpu_s = time.monotonic(), time.thread_time()
        try:
            self._read()
            if self._snapshots.is_torn or self._samples.is_torn:
                # Lines that were merged meanwhile are read again from the start.
                self._begin(self._kept.path)
                self._read()
            return self._verdict()
        finally:
            took_s = time.thread_time() - cpu_s
            self._next_s = began_s + max(PAUSE_S, took_s / SHARE)

    def _read(self) -> None:
        while lines := self._snapshots.lines():
            for snapshot in snapshots_in(lines):
                self._kept.add(snapshot)
        while lines := self._samples.lines():
            # The events have each source before its first sample.
            self._read_events()
            texts = (line.decode(errors="replace") for line in lines)
            self._readings.read(texts, self._sources, is_summed_up)
        self._read_events()

    def _read_events(self) -> None:
        while lines := self._events.lines():
            for line in lines:
                stored = stored_event(line)
                if isinstance(stored, StoredSource):
                    source = stored.source
                    self._sources[source.kind, source.name] = source
                self._kept.note(stored)

    def _verdict(self) -> Verdict | None:
        kept = self._kept
        run_log = kept.run_log()
        if not run_log.spans:
            return None
        run_log.endings = {hello.agent: "bye" for hello in kept.start.hellos}
        info = kept.info(run_log, RunDirectory(kept.path), Live())
        measured = measured_of(
            info, kept.output(run_log, self._readings.tracks), kept.start.environment
        )
        is_present = not run_log.spans[-1].settled
        if is_present:
            # Nothing is lost before the end of the stage, which is no finding.
            present = measured.stages[-1].model_copy(update={"excluded": ()})
            measured = measured.model_copy(update={"stages": (*measured.stages[:-1], present)})
        conditions = conditions_of(kept.scenario)
        if not is_present:
            return evaluate_run(measured, conditions)
        # Messages are in flight as long as clients publish.
        later = {each.source for each in conditions if _is_of_the_end(each)}
        now = [each for each in conditions if each.source not in later]
        found = evaluate_run(measured, now)
        outcomes = iter(found.thresholds)
        thresholds = [
            _open(each) if each.source in later else next(outcomes) for each in conditions
        ]
        changes = {"evidence": _so_far(found), "thresholds": tuple(thresholds)}
        return found.model_copy(update=changes)


def _is_of_the_end(threshold: Threshold) -> bool:
    """Returns True for a threshold about the state after the last publish stage."""
    zero = threshold.expression.figure.zero
    return zero is not None and zero.is_of_last_stage


def _open(threshold: Threshold) -> ThresholdOutcome:
    """Returns the outcome of a threshold without a value so far."""
    asked = threshold.expression
    return ThresholdOutcome(
        expression=threshold.source,
        figure=str(asked),
        metric=asked.metric,
        found=None,
        passed=False,
        text="evaluated when publishing has ended",
        default=threshold.is_default,
    )


def _so_far(verdict: Verdict) -> tuple[str, ...]:
    """Returns the evidence without messages in flight, since publishing continues."""
    words = KINDS["in_flight"].failures.words
    return tuple(each for each in verdict.evidence if words not in each)
