"""Conditions that end a run before its time, `abort_when` of a scenario. Each is evaluated on what
was measured so far, by the code that evaluates the thresholds of a run that is over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pubstorm.contract.plan import HoldAction, PublishAction
from pubstorm.measure.run_log import RunLog, StageSpan
from pubstorm.metrics.expressions import Threshold
from pubstorm.play.context import RunContext
from pubstorm.quantities import SECOND_NS, span_text
from pubstorm.result import Measured
from pubstorm.result.figures import evaluate_threshold, is_met_by

INTERVALS_MIN = 10
"""Intervals of a stage before the first evaluation in it."""
PAUSE_FACTOR = 100
"""Least time between two evaluations, as a multiple of the time that one takes."""


class AbortWhen:
    """The conditions of one run."""

    def __init__(
        self, conditions: Sequence[Threshold], measure: Callable[[RunLog], Measured]
    ) -> None:
        """`measure` returns the measurements of a run that ends as a log says."""
        self._conditions = conditions
        self._measure = measure
        self._next_ns = 0

    def during(self, run: RunContext) -> str | None:
        """Returns why the run ends within the present stage; None if it continues. Figures that are
        known only at the end of a stage are 0 or nothing until then."""
        progress, interval_ns = run.progress, run.plan.snapshot_interval_ns
        here = (each for each in progress.latest.values() if each.stage == progress.stage)
        to_ns = max((each.to_ns for each in here), default=0)
        first_ns = progress.entered_ns + INTERVALS_MIN * interval_ns
        if to_ns < max(first_ns, self._next_ns):
            return None
        began_ns = run.clock()
        stage, run_log = run.plan.stages[progress.stage], _until(run, to_ns)
        is_load = isinstance(stage.action, PublishAction)
        span = StageSpan(
            progress.stage,
            progress.entered_ns,
            to_ns if is_load else progress.entered_ns,
            to_ns,
            settled=False,
        )
        run_log.spans.append(span)
        # Messages in flight are not lost.
        run_log.exclude_from_loss(progress.stage, run.receivers)
        after = span_text((to_ns - progress.entered_ns) / SECOND_NS)
        now = [each for each in self._known(run, run_log) if not each.is_of_the_end]
        reason = self._reason(run, now, run_log, f"{after} of stage {stage.name}")
        self._next_ns = to_ns + max(interval_ns, PAUSE_FACTOR * (run.clock() - began_ns))
        return reason

    def after(self, run: RunContext) -> str | None:
        """Returns why the run ends after the stage that is over; None if it continues."""
        stage, run_log = run.plan.stages[run.progress.stage], _until(run, run.clock())
        return self._reason(run, self._known(run, run_log), run_log, f"stage {stage.name}")

    def _known(self, run: RunContext, run_log: RunLog) -> Sequence[Threshold]:
        """Returns the conditions that say something by now: before the load, those that are not met
        by 0, as rates are."""
        actions = [stage.action for stage in run.plan.stages]
        load = PublishAction if any(isinstance(a, PublishAction) for a in actions) else HoldAction
        if any(isinstance(actions[span.index], load) for span in run_log.spans):
            return self._conditions
        return [each for each in self._conditions if not is_met_by(each, 0.0)]

    def _reason(
        self, run: RunContext, conditions: Sequence[Threshold], run_log: RunLog, when: str
    ) -> str | None:
        if not conditions:
            return None
        try:
            measured = self._measure(run_log)
        except Exception as error:  # a run must not end since a part of its result cannot be made
            self._conditions = ()
            problem = f"{type(error).__name__}: {error}"
            run.note("monitor", f"abort_when is not evaluated any more: {problem}")
            return None
        for condition in conditions:
            outcome = evaluate_threshold(measured, condition)
            if outcome.passed:
                found = outcome.text
                return f"abort_when {condition.source} ended the run after {when}: {found}"
        return None


def _until(run: RunContext, to_ns: int) -> RunLog:
    """Returns a copy of the log of a run that ends at an instant."""
    run_log = run.recorder.run_log
    return replace(
        run_log,
        ended_ns=to_ns,
        spans=[*run_log.spans],
        events=[*run_log.events],
        expect_received={stage: {*each} for stage, each in run_log.expect_received.items()},
    )
