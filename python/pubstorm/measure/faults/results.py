"""Measures the effect of each fault of a run: connections that were lost and recovered, the
backlog, and the facts in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pubstorm.contract.plan import PublishAction
from pubstorm.contract.source import Source
from pubstorm.errors import without_credentials
from pubstorm.measure.assemble import Assembly
from pubstorm.measure.faults.backlog import Backlog, Waiting, backlog, waiting
from pubstorm.measure.faults.recovery import SECOND_NS, Times, connected, recovery, summed
from pubstorm.measure.run_log import AppliedFault
from pubstorm.measure.tracks import Span
from pubstorm.quantities import count_text, counted, span_text
from pubstorm.result import FaultResult, Recovery, StageResult
from pubstorm.result.samples import Tracks
from pubstorm.result.timeline import Step
from pubstorm.scenario.faults import BRIDGE_FAULTS

BRIDGES_METRIC = "connected"
"""Metric of the number of connected bridges, under the name of the bridges."""
MISSING = {"first": "none", "99 %": "not 99 %", "all": "not all"}
"""Words for connections that did not recover."""
PROBLEMS_SHOWN = 3
"""Problems of a fault that its facts name."""


def fault_results(run: Assembly, tracks: Tracks, bridges: Sequence[str]) -> tuple[FaultResult, ...]:
    """Every fault in the order of time; `bridges` are the names of bridges, whose numbers are in
    the tracks."""
    if not run.run_log.faults:
        return ()
    around = _Around(run, tracks, bridges)
    in_time = sorted(run.run_log.faults, key=lambda fault: fault.began_ns)
    return tuple(around.result(fault) for fault in in_time)


def fault_spans(found: Sequence[FaultResult], stages: Sequence[StageResult]) -> list[Span]:
    """Faults that begin no phase, since nothing is published, as spans of the time axis: each from
    its beginning to the next of its stage, or to the end of that."""
    spans: list[Span] = []
    for stage in (stage for stage in stages if stage.kind == "hold"):
        own = [fault for fault in found if stage.holds(fault.at_s)]
        ends = [*(fault.at_s for fault in own[1:]), stage.start_s + stage.duration_s]
        spans += [Span(f.name, f.at_s, end_s) for f, end_s in zip(own, ends, strict=False)]
    return spans


class _Around:
    """Everything around the faults of a run."""

    def __init__(self, run: Assembly, tracks: Tracks, bridges: Sequence[str]) -> None:
        self._run = run
        self._spans = {span.index: span for span in run.run_log.spans}
        self._stages = {
            span.index: stage for span, stage in zip(run.run_log.spans, run.stages, strict=True)
        }
        self._clients = connected(run.timeline, run.run_log.started_ns)
        self._bridges = {
            name: track
            for name in bridges
            if (track := tracks.get((Source.single("bridge", name), BRIDGES_METRIC))) is not None
        }
        self._waits: dict[int, list[Waiting]] = {}

    def result(self, fault: AppliedFault) -> FaultResult:
        """Measures one fault."""
        times, stage = self._times(fault), self._stages[fault.stage]
        waited = self._backlog(fault, stage, times)
        result = FaultResult(
            stage=stage.name,
            name=fault.name,
            kind=fault.planned.kind,
            victims=fault.planned.victims,
            command=_command(fault),
            failed=fault.failed,
            at_s=round(times.began_s, 3),
            repaired_at_s=None if times.repaired_s is None else round(times.repaired_s, 3),
            clients=recovery(self._clients, times),
            bridges=recovery(self._bridges_up(fault), times),
            backlog_peak=None if waited is None else waited.peak,
            drained_s=None if waited is None else waited.drained_s,
        )
        facts = (*_facts(result), *_problems(fault))
        return result.model_copy(update={"evidence": facts})

    def _times(self, fault: AppliedFault) -> Times:
        span = self._spans[fault.stage]
        later = [
            other.began_ns
            for other in self._run.run_log.faults
            if other.stage == fault.stage and other.began_ns > fault.began_ns
        ]
        return Times(
            began_s=self._at_s(fault.began_ns),
            repaired_s=None if fault.repaired_ns is None else self._at_s(fault.repaired_ns),
            next_s=self._at_s(min([*later, span.to_ns])),
            end_s=self._at_s(span.to_ns),
        )

    def _bridges_up(self, fault: AppliedFault) -> list[Step]:
        """Returns the number of connected bridges over time, among those that the fault may have
        hit."""
        planned = fault.planned
        hits_all = planned.kind not in BRIDGE_FAULTS
        names = [name for name in self._bridges if hits_all or name == planned.group]
        return summed([self._bridges[name] for name in names])

    def _backlog(self, fault: AppliedFault, stage: StageResult, times: Times) -> Backlog | None:
        index = fault.stage
        if not isinstance(self._run.plan.stages[index].action, PublishAction):
            return None
        if index not in self._waits:
            self._waits[index] = waiting(self._run, self._spans[index])
        lost = sum(flow.lost_total for flow in stage.flows)
        return backlog(self._waits[index], times, lost)

    def _at_s(self, at_ns: int) -> float:
        return (at_ns - self._run.run_log.started_ns) / SECOND_NS


def _facts(result: FaultResult) -> Iterator[str]:
    for noun, found in (("client", result.clients), ("bridge", result.bridges)):
        if found is not None:
            yield _recovery(noun, found, is_repaired=result.repaired_at_s is not None)
    if result.backlog_peak:
        text = f"up to {counted(result.backlog_peak, 'message')} waited"
        if result.drained_s is not None:
            text += f", gone {span_text(result.drained_s)} after it was repaired"
        elif result.repaired_at_s is not None:
            text += ", not gone before the stage ended"
        yield text


def _recovery(noun: str, found: Recovery, *, is_repaired: bool) -> str:
    text = (
        f"{count_text(found.before - found.lowest)} of {counted(found.before, noun)} "
        f"{'was' if found.before - found.lowest == 1 else 'were'} lost"
    )
    if not is_repaired:
        return text
    backs = (("first", found.first_s), ("99 %", found.most_s), ("all", found.all_s))
    words = [f"{word} back after {span_text(s)}" for word, s in backs if s is not None]
    missing = next((word for word, s in backs if s is None), None)
    if missing is not None:
        words.append(f"{MISSING[missing]} back before the stage ended")
    return f"{text}, {', '.join(words)}"


def _command(fault: AppliedFault) -> str | None:
    commands = fault.planned.commands
    return None if commands is None else without_credentials(commands.begin)


def _problems(fault: AppliedFault) -> Iterator[str]:
    yield from fault.problems[:PROBLEMS_SHOWN]
    left = len(fault.problems) - PROBLEMS_SHOWN
    if left > 0:
        yield f"and {counted(left, 'problem')} more"
