"""Sums a run up for the live display, from its totals and the latest snapshot of each agent. The
display without a terminal: a line on stderr at an interval, as stdout is for data."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from pubstorm.contract.plan import (
    ConnectAction,
    DisconnectAction,
    HoldAction,
    Plan,
    PlannedPopulation,
    PlannedStage,
    PublishAction,
)
from pubstorm.contract.snapshot import Snapshot
from pubstorm.metrics import columns_of
from pubstorm.metrics.metric import Metric, ReportColumn
from pubstorm.output import warn
from pubstorm.play.display import Live, PopulationSummary, StageTime, Summary
from pubstorm.play.progress import Clock, Progress, schedule_ns, wills_wait_ns
from pubstorm.quantities import (
    SECOND_NS,
    count_text,
    duration_text,
    rate_text,
    share_text,
    span_text,
)
from pubstorm.result import Latency
from pubstorm.result.timeline.cells import latency_of
from pubstorm.result.timeline.rows import GAUGES, Row, activities, rates_of


def summary_of(progress: Progress, started_ns: int, now_ns: int) -> Summary:
    """Returns the state of a run at an instant."""
    plan, stage = progress.plan, progress.plan.stages[progress.stage]
    busy, latest = map(_busy_share, progress.latest_of_load), progress.latest.values()
    connected = sum(s.populations[p].gauges.connected for s in latest for p in stage.populations)
    gone_s = (now_ns - progress.entered_ns) / SECOND_NS
    return Summary(
        elapsed_s=(now_ns - started_ns) / SECOND_NS,
        time=stage_time(plan, progress.stage, gone_s, connected),
        populations=_populations(progress),
        publishes=isinstance(stage.action, PublishAction)
        and any(each.publications for each in plan.populations),
        totals=progress.totals,
        latency=Latency.of(latency_of(latest, "delivery", "acknowledgement")),
        round_trip=Latency.of(latency_of(latest, "round trip")),
        outcomes=progress.outcomes,
        busy_share=max(busy, default=0.0),
    )


def stage_time(plan: Plan, number: int, gone_s: float, connected: float) -> StageTime:
    """Returns the progress of a stage, by its number from 0, that has lasted for `gone_s` and in
    whose populations `connected` clients are connected."""
    stage = plan.stages[number]
    clients, seconds = clients_of(plan, stage), max(_stage_s(plan, stage), 1e-9)
    connected_share = min(connected / clients, 1.0) if clients else 1.0
    left_s = None
    match stage.action:
        case ConnectAction():
            share = connected_share
        case DisconnectAction() if not wills_wait_ns(_leaving(plan, stage)):
            share = 1 - connected_share
        case _:
            # Clients that leave with wills are gone long before their wills have come.
            share, left_s = min(max(gone_s, 0) / seconds, 1.0), max(seconds - max(gone_s, 0), 0.0)
    rest_s = _stage_s(plan, stage) * (1 - share) if left_s is None else left_s
    return StageTime(
        name=stage.name,
        number=number + 1,
        stages=len(plan.stages),
        share=share,
        connected_share=connected_share,
        left_s=left_s,
        rest_s=rest_s + planned_s(plan, plan.stages[number + 1 :]),
    )


def planned_s(plan: Plan, stages: Iterable[PlannedStage]) -> float:
    """Returns the seconds that stages take by their plan, with the longest wait for wills: without
    drains, and without the start of agents and brokers."""
    return sum(_stage_s(plan, stage) for stage in stages)


def _stage_s(plan: Plan, stage: PlannedStage) -> float:
    action = stage.action
    if isinstance(action, PublishAction | HoldAction):
        return action.duration_ns / SECOND_NS
    duration_ns = schedule_ns(clients_of(plan, stage), action.rate_per_s)
    if isinstance(action, DisconnectAction):
        duration_ns += wills_wait_ns(_leaving(plan, stage))
    return duration_ns / SECOND_NS


def _leaving(plan: Plan, stage: PlannedStage) -> Iterable[PlannedPopulation]:
    return (plan.populations[index] for index in stage.populations)


def clients_of(plan: Plan, stage: PlannedStage) -> int:
    """Clients that a stage connects or disconnects."""
    if isinstance(stage.action, ConnectAction) and stage.action.clients is not None:
        return sum(stage.action.clients)
    return sum(plan.populations[p].clients for p in stage.populations)


def _populations(progress: Progress) -> tuple[PopulationSummary, ...]:
    latest = [Row.of(snapshot) for snapshot in progress.latest.values()]
    activity = activities(latest).values()
    return tuple(
        PopulationSummary(
            population.name,
            population.clients,
            {
                **{gauge: sum(row.gauge(gauge, [index]) for row in latest) for gauge in GAUGES},
                **dict(rates_of(activity, [index])),
                "foreign_per_s": sum(each.per_s("foreign", [index]) for each in activity),
                "missing": progress.missing[index],
            },
        )
        for index, population in enumerate(progress.plan.populations)
    )


def _busy_share(snapshot: Snapshot) -> float:
    span_ns = snapshot.to_ns - snapshot.from_ns
    return snapshot.engine.busy_ns / span_ns if span_ns > 0 else 0.0


class PlainLive(Live):
    """Prints a summary at the start of each stage, and one after each interval."""

    def __init__(self, interval_ns: int, clock: Clock = time.monotonic_ns) -> None:
        self._interval_ns = interval_ns
        self._clock = clock
        self._next_ns = 0
        self._stage = 0

    def begin(self, name: str, _folder: Path) -> None:
        """Names the run."""
        self._next_ns = self._stage = 0
        warn(f"run {name}")

    def step(self, text: str) -> None:
        """Prints the line."""
        warn(text)

    def starting(self, text: str) -> None:
        """Prints the line if its time has come."""
        if self._is_time():
            warn(text)

    def show(self, summary: Summary) -> None:
        """Prints one line if its time has come, or if a stage begins."""
        is_new, self._stage = summary.time.number != self._stage, summary.time.number
        if self._is_time() or is_new:
            warn(line_of(summary, self.after_s))

    def note(self, text: str) -> None:
        """Prints the note."""
        warn(f"! {text}")

    def _is_time(self) -> bool:
        now_ns = self._clock()
        if now_ns < self._next_ns:
            return False
        self._next_ns = now_ns + self._interval_ns
        return True


def line_of(summary: Summary, after_s: float = 0.0) -> str:
    """A summary in one line. `after_s` is the time that further runs take."""
    parts = [
        f"{span_text(summary.elapsed_s)}",
        f"{summary.time.name} {share_text(round(summary.time.share, 2))}",
        *filter(None, (_text(*each, summary) for each in columns_of("live"))),
    ]
    parts += [f"{reason} {count_text(count)}" for reason, count in summary.outcomes.items()]
    parts.append(f"busy {share_text(round(summary.busy_share, 2))}")
    parts.append(summary.time.left_text(after_s))
    return "  ".join(parts)


def _text(metric: Metric, column: ReportColumn, summary: Summary) -> str:
    """Returns a figure of all populations together; empty if it is not worth the room."""
    populations = summary.populations
    if metric.kind == "histogram":
        latency = getattr(summary, metric.name)
        head, _ = column.named(metric.name)[-1]
        return f"{head} {duration_text(latency.p99)}" if latency.count else ""
    if not column.rank:
        return ""
    value = sum(each.figures.get(metric.name, 0) for each in populations)
    if metric.unit == "per_s":
        is_due = summary.publishes and column.when == "always"
        if not value and not is_due:
            return ""
        total = summary.totals.get(metric.name.removesuffix("_per_s"))
        so_far = f" ({count_text(total)})" if total else ""
        return f"{column.head.removesuffix('/s')} {rate_text(value)}/s{so_far}"
    if metric.of_a_size:
        clients = sum(population.clients for population in populations)
        return f"{column.head} {count_text(value)}/{count_text(clients)}"
    return f"{column.head} {count_text(value)}" if value else ""
