"""Phases: publish stages cut where a change was made or a fault began. Each phase is measured over
its settled part and evaluated by itself, from the collapse of one to the recovery in another.
`collapse` has the criteria."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pubstorm.contract.commands import together
from pubstorm.contract.histogram import Histogram, HistogramSum
from pubstorm.contract.plan import PublishAction
from pubstorm.contract.queue_limits import QueueLimits
from pubstorm.measure.assemble import Assembly
from pubstorm.measure.ledger import joins_groups
from pubstorm.measure.phases.collapse import (
    Before,
    Drops,
    Outage,
    PhaseOutcome,
    follow,
    mean_latency_ns,
    outages,
    queue_growth_per_s,
    second_half,
    ticks_needed,
)
from pubstorm.measure.phases.load_due import (
    Grid,
    LoadDue,
    Publishing,
    Tick,
    fan_out,
    load_due,
    ticks,
    width_of,
)
from pubstorm.measure.run_log import AppliedChange, StageSpan
from pubstorm.metrics import OF_POPULATIONS
from pubstorm.metrics.monitors import DROPPED_METRICS, RUN_DELAY
from pubstorm.quantities import SECOND_NS, count_text, counted, duration_text, share_text, span_text
from pubstorm.result import Event, Latency, Phase, PhasePopulation, PhaseStatus, Rates, ShortStage
from pubstorm.result.machinery import is_late, too_busy
from pubstorm.result.samples import UNDER_TEST, Span, Track, Tracks
from pubstorm.result.timeline.cells import HistogramKey, Measure
from pubstorm.result.timeline.rows import Activities, Activity, activities, rates_of

MIN_INTERVALS = 10
"""Intervals that a publish stage without changes must have to be evaluated as a phase."""


def phases(run: Assembly, tracks: Tracks) -> tuple[Phase, ...]:
    """The phases of every publish stage, in the order of time; `tracks` are the readings of the
    monitors."""
    return tuple(
        phase for span in _publish_spans(run) for phase in _Stage(run, span, tracks).phases()
    )


def short_stages(run: Assembly) -> tuple[ShortStage, ...]:
    """The publish stages with too few intervals for a phase."""
    found = (_Stage(run, span, {}).short() for span in _publish_spans(run))
    return tuple(stage for stage in found if stage is not None)


def outage_events(run: Assembly, tracks: Tracks) -> Iterator[Event]:
    """Yields the outages of every publish stage, in the order of time; `tracks` are the readings of
    the monitors."""
    for span in _publish_spans(run):
        yield from _Stage(run, span, tracks).outages()


def _publish_spans(run: Assembly) -> Iterator[StageSpan]:
    """Yields the publish stages whose load is even between two changes."""
    for span in run.run_log.spans:
        action = run.plan.stages[span.index].action
        if isinstance(action, PublishAction) and not action.rate_profile:
            yield span


@dataclass(frozen=True, slots=True)
class _Beginning:
    """Something that happened, and that a phase begins with."""

    name: str
    at_ns: int
    changes: tuple[AppliedChange, ...] = ()
    """Changes of the load due, one for each share of a population; none for a fault."""

    @property
    def ramp_ns(self) -> int:
        """Time over which clients join or leave."""
        return max((change.ramp_ns for change in self.changes), default=0)


@dataclass(frozen=True, slots=True)
class _Cut:
    """The instants of a phase, and the load due in it."""

    name: str
    from_ns: int
    loaded_ns: int
    """Instant from which its load is due: that of a fault, or the next."""
    settled_ns: int
    """Instant at which its clients have joined or left, and an interval more."""
    to_ns: int
    planned: LoadDue
    """Load due of all publishers."""
    due: LoadDue
    """Load due of the publishers that are evaluated."""
    ramp_ns: int
    """Time over which its clients join or leave."""

    @property
    def settles(self) -> bool:
        """True if it has a time in which no client joins or leaves."""
        return self.from_ns + self.ramp_ns < self.to_ns


class _Stage:
    """A publish stage on its way to phases."""

    def __init__(self, run: Assembly, span: StageSpan, tracks: Tracks) -> None:
        self._run = run
        self._span = span
        self._changes = sorted(run.run_log.changes, key=lambda change: change.at_ns)
        self._drop_tracks = _drop_tracks(tracks)
        self._wait_tracks = [
            track
            for (source, metric), track in tracks.items()
            if metric == RUN_DELAY and source.kind in UNDER_TEST
        ]
        self._width_ns = run.plan.snapshot_interval_ns
        self._end_ns = min(span.load_until_ns, span.to_ns)
        self._timeline = run.timeline
        self._beginnings = self._all_beginnings()
        changed = {change.population for b in self._beginnings for change in b.changes}
        self._publishers = sorted({*run.plan.stages[span.index].populations, *changed})
        # Clients with session lifetimes, or with takeovers, are connected at unknown times: not
        # evaluated.
        unknown = {n for n, each in enumerate(run.plan.populations) if each.lifetime is not None}
        unknown |= run.plan.contested
        self._evaluated = [p for p in self._publishers if p not in unknown]
        # Clients that join, leave or read slowly by design say nothing about the load as a whole.
        # Messages for those that have left wait for them, and are not due.
        left_out = {n for n in range(len(run.plan.populations)) if self._takes_less(n)}
        left_out |= unknown | changed
        left_out |= Publishing.at_start_of(run.plan, span.index, self._changes).away
        every = range(len(run.plan.populations))
        steady = [index for index in every if index not in left_out]
        self._receivers = [i for i in every if i in steady or joins_groups(run.plan, i, steady)]
        self._reads_freely = all(p.read_rate_per_s is None for p in run.plan.populations)

    def _takes_less(self, population: int) -> bool:
        """Returns True if clients take less than is due to them, on purpose: they read slowly, or
        acknowledge nothing, or late."""
        planned = self._run.plan.populations[population]
        limits: QueueLimits | None = getattr(planned.protocol, "queue_limits", None)
        if planned.read_rate_per_s is not None or (limits and limits.takes_most is not None):
            return True
        taken_per_s = limits.taken_per_s(planned.clients) if limits else None
        if taken_per_s is None:
            return False
        into = self._run.ledger.into({population}, [self._span.index]).values()
        lasted_s = (self._end_ns - self._span.from_ns) / SECOND_NS
        takes_per_s = len(planned.subscriptions) * taken_per_s
        return sum(flow.counters.expected_total for flow in into) > lasted_s * takes_per_s

    def phases(self) -> Iterator[Phase]:
        """Yields each phase, evaluated; none if the stage is a single short or closed-loop one."""
        cuts = list(self._cuts())
        if self.short() is not None or not (self._beginnings or cuts[0].due.is_open):
            return
        before = Before()
        for cut in cuts:
            if cut.settles:
                phase, before = self._phase(cut, before)
                yield phase

    def outages(self) -> Iterator[Event]:
        """Yields the outages of the stage that no agent explains, with the lack of processors of a
        program that does, and the phases that are too long for evaluation by intervals."""
        for cut in self._cuts():
            step_ns = width_of(cut.settled_ns, cut.to_ns, self._width_ns)
            if step_ns > self._width_ns:
                text = f"{cut.name} is evaluated in steps of {duration_text(step_ns / 1000)}"
                at_s = self._since_start_s(cut.to_ns) or 0.0
                yield Event(at_s=at_s, kind="resolution", text=text)
            for outage in self._silent(cut):
                if not outage.is_sure:
                    continue
                at_s, waited_s = self._since_start_s(outage.from_ns) or 0.0, self._waited_s(outage)
                if outage.is_more_than(waited_s):
                    yield Event(at_s=at_s, kind="outage", text=str(outage))
                    continue
                text = f"{outage}, and a program had no processor for {span_text(waited_s)} of it"
                yield Event(at_s=at_s, kind="host", text=f"at {at_s:.1f} s: {text}")

    def _silent(self, cut: _Cut) -> tuple[Outage, ...]:
        """Returns the outages of a phase; none where the load due is not known."""
        unknown = not cut.due.is_open or any(self._failed_agents(cut))
        if unknown or not self._evaluated:
            return ()
        width_ns = width_of(cut.loaded_ns, cut.to_ns, self._width_ns)
        grid = Grid(cut.loaded_ns, cut.to_ns, width_ns, self._evaluated, self._receivers)
        found = outages(ticks(self._timeline, self._span.index, grid), cut.due)
        return tuple(outage for outage in found if not self._stood_still(outage))

    def _stood_still(self, outage: Outage) -> bool:
        """Returns True if an agent made no snapshot in an outage: it was stopped itself."""
        rows = self._timeline.rows(self._span.index, outage.from_ns, outage.to_ns)
        return any(row.merged == 1 and row.length_ns >= 2 * self._width_ns for row in rows)

    def _waited_s(self, outage: Outage) -> float:
        """Returns the longest time of an outage for which a program under test could run and had
        no processor."""
        started_ns = self._run.run_log.started_ns
        ends_s = ((at - started_ns) / SECOND_NS for at in (outage.from_ns, outage.to_ns))
        from_s, to_s = ends_s
        return max((_share_s(track, from_s, to_s) for track in self._wait_tracks), default=0.0)

    def _failed_agents(self, cut: _Cut) -> Iterator[int]:
        """Yields the agents whose clients were away for a part of a phase."""
        for failure in self._run.run_log.failures:
            away = failure.is_away(cut.from_ns, cut.to_ns)
            if away or failure.rejoins(self._span.from_ns, cut.to_ns):
                yield failure.agent

    def short(self) -> ShortStage | None:
        """The stage, if it has an open loop, no change or fault, and too few intervals."""
        intervals = max(self._end_ns - self._span.from_ns, 0) // self._width_ns
        if self._beginnings or intervals >= MIN_INTERVALS or not next(self._cuts()).due.is_open:
            return None
        name = self._run.plan.stages[self._span.index].name
        return ShortStage(stage=name, intervals=intervals, needed=MIN_INTERVALS)

    def _all_beginnings(self) -> list[_Beginning]:
        """Returns the changes and faults of the stage, in the order of time. The repair of a fault
        begins no phase: a fault is evaluated as a whole."""
        changes = [change for change in self._changes if change.stage == self._span.index]
        started = [
            *(_Beginning(same[0].name, same[0].at_ns, same) for same in together(changes)),
            *(
                _Beginning(fault.name, fault.began_ns)
                for fault in self._run.run_log.faults
                if fault.stage == self._span.index
            ),
        ]
        in_time = sorted(started, key=lambda beginning: beginning.at_ns)
        return [beginning for beginning in in_time if beginning.at_ns < self._end_ns]

    def _cuts(self) -> Iterator[_Cut]:
        plan, stage = self._run.plan, self._span.index
        publishing = Publishing.at_start_of(plan, stage, self._changes)
        each = fan_out(self._run.ledger, stage, self._receivers)
        starts = [max(beginning.at_ns, self._span.from_ns) for beginning in self._beginnings]
        edges = [self._span.from_ns, *starts, self._end_ns]
        for n, (from_ns, to_ns) in enumerate(pairwise(edges)):
            begins = self._beginnings[n - 1] if n else _Beginning(plan.stages[stage].name, from_ns)
            for change in begins.changes:
                publishing.apply(change)
            settled_ns = min(from_ns + begins.ramp_ns + self._width_ns, to_ns)
            yield _Cut(
                name=begins.name,
                from_ns=from_ns,
                loaded_ns=settled_ns if begins.changes or not n else from_ns,
                settled_ns=settled_ns,
                to_ns=to_ns,
                planned=load_due(plan, publishing, self._publishers, each),
                due=load_due(plan, publishing, self._evaluated, each),
                ramp_ns=begins.ramp_ns,
            )

    def _phase(self, cut: _Cut, before: Before) -> tuple[Phase, Before]:
        inside = self._inside(cut)
        width_ns = width_of(cut.settled_ns, cut.to_ns, self._width_ns)
        grid = Grid(cut.settled_ns, cut.to_ns, width_ns, self._evaluated, self._receivers)
        made, drops = ticks(self._timeline, self._span.index, grid), self._drops(cut)
        doubts = tuple(self._doubts(cut, made, inside))
        outcome = PhaseOutcome(ended_collapsed=before.collapsed)
        if not doubts:
            own_drops = drops if self._reads_freely else None
            outcome = follow(made, cut.due, before, own_drops, self._silent(cut))
        if outcome.starved:
            doubts = (_starved_text(made), *outcome.evidence)
        status = PhaseStatus.UNKNOWN if doubts else _status(before, outcome)
        after = replace(before, collapsed=outcome.ended_collapsed)
        if status is PhaseStatus.HELD:
            queue, latency_ns = max(tick.queue for tick in made), mean_latency_ns(made)
            after = replace(
                after,
                queue=max(before.queue, queue),
                latency_ns=max(before.latency_ns, latency_ns),
            )
        phase = self._measured(cut, inside).model_copy(
            update={
                "queue_growth_per_s": round(queue_growth_per_s(second_half(made)), 3),
                "dropped_total": None if drops is None else drops.total,
                "status": status,
                "starved": outcome.starved and outcome.ended_collapsed,
                "collapsed_at_s": None if doubts else self._since_start_s(outcome.collapsed_at_ns),
                "recovered_after_s": None if doubts else _recovered_after_s(cut, outcome),
                "evidence": doubts or outcome.evidence,
            }
        )
        return phase, after

    def _measured(self, cut: _Cut, inside: Activities) -> Phase:
        """Returns the figures of a phase before its evaluation."""
        plan = self._run.plan
        populations = self._populations(cut, inside.values(), plan.alone)
        everybody = range(len(plan.populations))
        delivered = self._delivered(self._sum(cut, "delivery", everybody))
        acknowledged = self._latency(self._sum(cut, "acknowledgement", everybody))
        return Phase(
            stage=self._run.plan.stages[self._span.index].name,
            name=cut.name,
            start_s=self._since_start_s(cut.from_ns) or 0.0,
            duration_s=round((cut.to_ns - cut.from_ns) / SECOND_NS, 3),
            clients=cut.planned.clients,
            due_per_s=cut.planned.sent_per_s,
            sent_per_s=sum(p.sent_per_s for p in populations.values()),
            acked_per_s=sum(p.acked_per_s for p in populations.values()),
            received_per_s=sum(p.received_per_s for p in populations.values()),
            queue_growth_per_s=0.0,
            latency_us=delivered if delivered.count else acknowledged,
            populations=populations,
            wholes=self._populations(cut, inside.values(), plan.wholes),
            status=PhaseStatus.UNKNOWN,
        )

    def _populations(
        self, cut: _Cut, inside: Collection[Activity], members: Mapping[str, Sequence[int]]
    ) -> dict[str, PhasePopulation]:
        """Returns the activity of groups of populations that did more than stay connected."""
        found = {name: self._population(cut, inside, each) for name, each in members.items()}
        return {name: each for name, each in found.items() if _did_anything(each)}

    def _population(
        self, cut: _Cut, inside: Collection[Activity], indices: Sequence[int]
    ) -> PhasePopulation:
        delivered = self._sum(cut, "delivery", indices)
        acknowledged = self._sum(cut, "acknowledgement", indices)
        found = {"latency_us.intended": delivered, "ack_latency_us.intended": acknowledged}
        return PhasePopulation(
            **dict(rates_of(inside, indices)),
            latency_us=self._delivered(delivered),
            ack_latency_us=self._latency(acknowledged),
            time_histograms_ns={name: each for name, each in found.items() if each.count},
        )

    def _delivered(self, histogram: Histogram) -> Latency:
        return self._latency(histogram, self._run.clock_bound_us)

    def _latency(self, histogram: Histogram, bound_us: float = 0.0) -> Latency:
        return Latency.of(histogram, bound_us, self._run.percentiles)

    def _sum(self, cut: _Cut, measure: Measure, indices: Iterable[int]) -> Histogram:
        sums = HistogramSum()
        for index in indices:
            sums.add(self._histogram(cut, measure, index))
        return sums.value()

    def _histogram(self, cut: _Cut, measure: Measure, population: int = 0) -> Histogram:
        key = HistogramKey(self._span.index, measure, population)
        return self._timeline.histograms.between(key, cut.settled_ns, cut.to_ns)

    def _inside(self, cut: _Cut) -> Activities:
        """Returns the activity of each agent in the settled part: of the rows that lie in it; where
        it holds none, of those that began in the phase."""
        busy, chosen = self._run.limits.busy, (self._span.index, cut.from_ns, cut.to_ns)
        rows = self._timeline.rows(*chosen)
        inside = activities((r for r in rows if r.lies_inside(cut.settled_ns, cut.to_ns)), busy)
        begun = (r for r in self._timeline.rows(*chosen) if cut.from_ns <= r.from_ns < cut.to_ns)
        return inside or activities(begun, busy)

    def _doubts(self, cut: _Cut, made: Sequence[Tick], inside: Activities) -> Iterator[str]:
        """Yields the reasons why a phase is inconclusive for the target."""
        if not cut.due.is_open:
            yield "in a closed loop nothing is due by a clock, so nothing can be missed"
        if self._publishers and not self._evaluated:
            yield "all publishers have session lifetimes: the load due at an instant is not known"
        for agent in self._failed_agents(cut):
            yield f"agent {agent} failed, and its clients were away for a part of it"
        needed = ticks_needed(cut.due, width_of(cut.settled_ns, cut.to_ns, self._width_ns))
        if len(made) < needed:
            yield (
                f"{counted(len(made), 'interval')} are settled, {count_text(needed)} are needed: "
                "the phase is too short to be evaluated, or its snapshots end early"
            )
        late = self._histogram(cut, "lateness")
        limits, lateness = self._run.limits, Latency.of(late)
        above = late.count_above(round(1000 * limits.lateness_p99_us))
        if is_late(lateness, above, limits.lateness_p99_us):
            yield (
                f"the generator was late: p99 {duration_text(lateness.p99)} over "
                f"{counted(late.count, 'message')}"
            )
        publishers = self._run.assignment.publishers
        load = [activity for agent, activity in inside.items() if agent not in publishers]
        busy, intervals = sum(each.busy for each in load), sum(each.intervals for each in load)
        if too_busy(busy, intervals):
            yield (
                f"an agent's loop was busy for more than {share_text(limits.busy)} of the time "
                f"in {count_text(busy)} of {counted(intervals, 'interval')}"
            )

    def _drops(self, cut: _Cut) -> Drops | None:
        """Returns the messages that brokers report as dropped in a phase; None without such
        reports."""
        started_ns = self._run.run_log.started_ns
        from_s, to_s = ((at - started_ns) / SECOND_NS for at in (cut.from_ns, cut.to_ns))
        seen = [track for track in self._drop_tracks if track.at_s[0] <= to_s]
        if not seen:
            return None
        grown = [each for track in seen for each in track.growth() if each.amount]
        certain = [each for each in grown if from_s <= each.from_s and each.to_s <= to_s]
        return Drops(
            total=round(sum(each.within(from_s, to_s) for each in grown)),
            certain=round(sum(each.amount for each in certain)),
            first_at_ns=started_ns
            + round(min((each.to_s for each in certain), default=to_s) * SECOND_NS),
            steps=tuple(
                (started_ns + round(each.from_s * SECOND_NS), each.amount) for each in certain
            ),
        )

    def _since_start_s(self, at_ns: int | None) -> float | None:
        if at_ns is None:
            return None
        return round((at_ns - self._run.run_log.started_ns) / SECOND_NS, 3)


def _did_anything(population: PhasePopulation) -> bool:
    """True if there is more than traffic: a kept-alive connection has traffic too."""
    rates = [OF_POPULATIONS[name] for name in Rates.model_fields]
    traffic = {rate.name: 0.0 for rate in rates if rate.unit == "bytes_per_s"}
    return population.model_copy(update=traffic) != PhasePopulation()


def phase_spans(found: Sequence[Phase]) -> list[Span]:
    """The phases that begin with a change or a fault, as spans of the time axis; the first of a
    stage is called like the stage, which has a span of its own."""
    return [
        Span(phase.name, phase.start_s, phase.start_s + phase.duration_s)
        for phase in found
        if phase.name != phase.stage
    ]


def _starved_text(made: Sequence[Tick]) -> str:
    starved_ns = sum(tick.starved_ns for tick in made)
    return (
        f"the host gave an agent no processor for {duration_text(starved_ns / 1000)} of "
        f"{span_text((made[-1].to_ns - made[0].from_ns) / SECOND_NS)}, which explains what was "
        "missing"
    )


def _status(before: Before, outcome: PhaseOutcome) -> PhaseStatus:
    if before.collapsed and outcome.collapsed_at_ns is None:
        recovered = not outcome.ended_collapsed
        return PhaseStatus.RECOVERED if recovered else PhaseStatus.NEVER_RECOVERED
    return PhaseStatus.HELD if outcome.collapsed_at_ns is None else PhaseStatus.COLLAPSED


def _recovered_after_s(cut: _Cut, outcome: PhaseOutcome) -> float | None:
    if outcome.recovered_at_ns is None:
        return None
    since_ns = cut.from_ns if outcome.collapsed_at_ns is None else outcome.collapsed_at_ns
    return round((outcome.recovered_at_ns - since_ns) / SECOND_NS, 3)


def _share_s(track: Track, from_s: float, to_s: float) -> float:
    """Returns the seconds of a span that a share of the time makes, by samples of it. Each is that
    of the time since the sample before."""
    at_s, values, _ = track.own()
    return sum(
        value * max(0.0, min(end_s, to_s) - max(begin_s, from_s))
        for begin_s, end_s, value in zip(at_s, at_s[1:], values[1:], strict=False)
    )


def _drop_tracks(tracks: Tracks) -> list[Track]:
    """One track of dropped messages for each source that has any."""
    sources = {source: None for source, _ in tracks}
    found = (
        next((tracks[source, name] for name in DROPPED_METRICS if (source, name) in tracks), None)
        for source in sources
    )
    return [track for track in found if track is not None]
