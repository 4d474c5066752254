"""Measures the effect of each fault of a run: connections that were lost and recovered, the backlog
of messages that were due and not yet received or acknowledged, and the facts in words."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import ceil

from pubstorm.contract import Source
from pubstorm.contract.plan import PublishAction
from pubstorm.errors import without_credentials
from pubstorm.measure.assemble import Assembly
from pubstorm.measure.phases.load_due import Grid, fan_out, ticks, width_of
from pubstorm.measure.run_log import AppliedFault, StageSpan
from pubstorm.quantities import SECOND_NS, count_text, counted, span_text
from pubstorm.result import FaultResult, Recovery, StageResult
from pubstorm.result.samples import ANY, Span, Track, Tracks
from pubstorm.result.timeline import Step, Timeline, steps
from pubstorm.result.timeline.rows import Row
from pubstorm.scenario.faults import BRIDGE_FAULTS

MOST_SHARE = 0.99
"""Share of the earlier count that counts as "most"."""
BEFORE_TICKS = 10
"""Ticks before a fault that define the usual backlog and rate."""
GONE_S = 1.0
"""Seconds' worth of the messages that came through before, of which as many may wait when a backlog
counts as gone."""
BRIDGES_METRIC = "connected"
"""Metric of the number of connected bridges, under the name of the bridges."""
MISSING = {"first": "none", "99 %": "not 99 %", "all": "not all"}
"""Words for connections that did not recover."""
RETURN_S = 10.0
"""Longest time after the repair of a broker for its monitors to read it again."""
PROBLEMS_SHOWN = 3
"""Problems of a fault that its facts name."""


def fault_results(run: Assembly, tracks: Tracks, bridges: Sequence[str]) -> tuple[FaultResult, ...]:
    """Every fault in the order of time; `bridges` are the names of bridges, whose numbers are in
    the tracks."""
    if not run.run_log.faults:
        return ()
    faulted = _FaultedRun(run, tracks, bridges)
    in_time = sorted(run.run_log.faults, key=lambda fault: fault.began_ns)
    return tuple(faulted.result(fault) for fault in in_time)


def fault_spans(found: Sequence[FaultResult], stages: Sequence[StageResult]) -> list[Span]:
    """Faults that begin no phase, since nothing is published, as spans of the time axis: each from
    its beginning to the next of its stage, or to the end of that."""
    spans: list[Span] = []
    for stage in (stage for stage in stages if stage.kind == "hold"):
        own = [fault for fault in found if stage.holds(fault.at_s)]
        ends = [*(fault.at_s for fault in own[1:]), stage.start_s + stage.duration_s]
        spans += [Span(f.name, f.at_s, end_s) for f, end_s in zip(own, ends, strict=False)]
    return spans


def absences(found: Sequence[FaultResult], until_s: float) -> dict[str, list[Span]]:
    """Returns the spans in which faults break what monitors read, by the name of the source. A
    command may break anything."""
    spans: dict[str, list[Span]] = {}
    for fault in found:
        back_s = until_s if fault.repaired_at_s is None else fault.repaired_at_s + RETURN_S
        for name in fault.victims or (ANY,):
            spans.setdefault(name, []).append(Span(fault.name, fault.at_s, back_s))
    return spans


class _FaultedRun:
    """A run with faults, as their effect is measured."""

    def __init__(self, run: Assembly, tracks: Tracks, bridges: Sequence[str]) -> None:
        self._run = run
        self._spans = {span.index: span for span in run.run_log.spans}
        self._stages = {
            span.index: stage for span, stage in zip(run.run_log.spans, run.stages, strict=True)
        }
        publishers = run.assignment.publishers
        self._clients = connected(run.timeline, run.run_log.started_ns, publishers)
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
            text += ", not gone in the stage"
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
        words.append(f"{MISSING[missing]} back in the stage")
    return f"{text}, {', '.join(words)}"


def _command(fault: AppliedFault) -> str | None:
    commands = fault.planned.commands
    return None if commands is None else without_credentials(commands.begin)


def _problems(fault: AppliedFault) -> Iterator[str]:
    yield from fault.problems[:PROBLEMS_SHOWN]
    left = len(fault.problems) - PROBLEMS_SHOWN
    if left > 0:
        yield f"and {counted(left, 'problem')} more"


@dataclass(frozen=True, slots=True)
class Times:
    """The instants of a fault, in seconds after the start of the run."""

    began_s: float
    repaired_s: float | None
    """Instant of the repair; None if it was not repaired."""
    next_s: float
    """Instant at which the next fault of the stage began, or the stage ended."""
    end_s: float
    """Instant at which the stage ended."""


def recovery(counts: Sequence[Step], times: Times) -> Recovery | None:
    """Returns how the number fell and rose; None if it did not fall."""
    before = next((n for at_s, n in reversed(counts) if at_s <= times.began_s), 0)
    during = [step for step in counts if times.began_s < step[0] <= times.next_s]
    lowest_s, lowest = min(during, key=lambda step: (step[1], step[0]), default=(0.0, before))
    if lowest >= before:
        return None
    after = [step for step in counts if lowest_s < step[0] <= times.end_s]

    def until(count: int) -> float | None:
        """Returns the time from the repair until a count was reached; 0 if it was reached
        before."""
        back_s = next((at_s for at_s, n in after if n >= count), None)
        if back_s is None or times.repaired_s is None:
            return None
        return round(max(back_s - times.repaired_s, 0.0), 3)

    return Recovery(
        before=before,
        lowest=lowest,
        first_s=until(lowest + 1),
        most_s=until(max(ceil(MOST_SHARE * before), lowest + 1)),
        all_s=until(before),
    )


def connected(timeline: Timeline, started_ns: int, publishers: Collection[int] = ()) -> list[Step]:
    """Returns how many clients were connected, summed over agents without publishers under test.
    Clients whose session lifetime is over count as connected until they are ready again."""

    def value(row: Row) -> int:
        if row.agent in publishers:
            return 0
        return sum(present(row, [population]) for population in range(row.populations))

    def present(row: Row, own: Sequence[int]) -> int:
        offline = row.gauge("offline", own)
        # Of clients that return, some are connected, and not ready yet.
        return row.gauge("ready", own) + offline if offline else row.gauge("connected", own)

    return [((at_ns - started_ns) / SECOND_NS, count) for at_ns, count in timeline.steps(value)]


def summed(tracks: Sequence[Track]) -> list[Step]:
    """Returns the sum of some tracks, whose samples hold until the next."""
    samples = sorted(
        (at_s, number, round(value))
        for number, track in enumerate(tracks)
        for at_s, value in zip(track.at_s, track.values, strict=True)
    )
    return list(steps(samples))


@dataclass(frozen=True, slots=True)
class Waiting:
    """One step of time."""

    to_s: float
    """Its end, after the start of the run."""
    came_per_s: float
    """Messages received or acknowledged in it, whichever are more."""
    count: float
    """Messages that waited at its end."""
    missing: float = 0.0
    """Those of them that others had overtaken."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """The backlog of a fault."""

    peak: int
    """Most messages that waited."""
    drained_s: float | None
    """From the repairing until they were gone; None: not in time."""


def waiting(run: Assembly, span: StageSpan) -> list[Waiting]:
    """Returns the backlog in a publish stage and its drain: messages due and unsent or
    unacknowledged, or deliveries due and not received, whichever are more. Lost deliveries are
    among them; `backlog` leaves them out. Clients that were never ready neither send nor
    receive."""
    populations = range(len(run.plan.populations))
    ready = {n: share for n in populations if (share := run.ready_share(n)) < 1}
    each = fan_out(run.ledger, span.index, populations, ready)
    width_ns = width_of(span.from_ns, span.to_ns, run.plan.snapshot_interval_ns)
    grid = Grid(span.from_ns, span.to_ns, width_ns, populations, populations, each)
    made = ticks(run.timeline, span.index, grid)
    for population, share in ready.items():
        own = replace(grid, publishers=[population], receivers=[], fan_out={})
        parts = ticks(run.timeline, span.index, own)
        sent = accumulate(part.sent for part in parts)
        for tick, part, so_far in zip(made, parts, sent, strict=True):
            unsent = (1 - share) * (so_far + part.queue)
            tick.queue -= round(min(unsent, part.queue))
            tick.expected_unsent -= each.get(population, 0.0) * unsent
    found: list[Waiting] = []
    expected = received = missing = 0.0
    for tick in made:
        expected += tick.expected
        received += tick.received
        missing += tick.missing
        found.append(
            Waiting(
                to_s=(tick.to_ns - run.run_log.started_ns) / SECOND_NS,
                came_per_s=max(tick.received, tick.acked) * SECOND_NS / grid.width_ns,
                count=max(expected + tick.expected_unsent - received, tick.queue),
                missing=missing,
            )
        )
    return found


def backlog(waits: Sequence[Waiting], times: Times, lost: int) -> Backlog | None:
    """Returns the peak backlog of a fault and its drain time, without `lost` messages that others
    had overtaken. None if there was neither load before the fault nor a backlog after it."""
    before = [each for each in waits if each.to_s <= times.began_s][-BEFORE_TICKS:]
    during = [each for each in waits if times.began_s < each.to_s <= times.next_s]
    usual_per_s = sum(each.came_per_s for each in before) / len(before) if before else 0.0
    peak = max((each.count for each in during), default=0.0)
    if not usual_per_s and not peak:
        return None
    allowed = max(usual_per_s * GONE_S, *(each.count for each in before), 0.0)
    drained_s = None
    if times.repaired_s is not None:
        drained_s = next(
            (
                round(each.to_s - times.repaired_s, 3)
                for each in waits
                if times.repaired_s < each.to_s <= times.end_s
                and each.came_per_s
                and each.count - min(each.missing, lost) <= allowed
            ),
            None,
        )
    return Backlog(peak=round(peak), drained_s=drained_s)
