"""Sums a run up for the live display, from its totals and the latest snapshot of each agent."""

from __future__ import annotations

from collections.abc import Iterable

from pubstorm.contract.plan import (
    ConnectAction,
    DisconnectAction,
    HoldAction,
    Plan,
    Population,
    PublishAction,
    Stage,
)
from pubstorm.contract.snapshot import Snapshot
from pubstorm.play.barriers import SECOND_NS, schedule_ns, wills_wait_ns
from pubstorm.play.display import PopulationSummary, Summary
from pubstorm.play.progress import Progress
from pubstorm.result import Latency
from pubstorm.result.timeline.cells import latency_of
from pubstorm.result.timeline.rows import GAUGES, Row, activities, rates_of


def summary_of(progress: Progress, started_ns: int, now_ns: int) -> Summary:
    """Returns the state of a run at an instant."""
    plan = progress.plan
    stage, (left_s, share_done) = plan.stages[progress.stage], _time_left(progress, now_ns)
    busy, latest = map(_busy_share, progress.latest_of_load), progress.latest.values()
    return Summary(
        elapsed_s=(now_ns - started_ns) / SECOND_NS,
        stage=stage.name,
        stage_number=progress.stage + 1,
        stages=len(plan.stages),
        progress=share_done,
        left_s=left_s,
        rest_s=_rest_s(progress, left_s, share_done),
        populations=_populations(progress),
        publishes=isinstance(stage.action, PublishAction)
        and any(each.publications for each in plan.populations),
        latency=Latency.of(latency_of(latest, "delivery", "acknowledgement")),
        round_trip=Latency.of(latency_of(latest, "round trip")),
        outcomes=progress.outcomes,
        busy_share=max(busy, default=0.0),
    )


def _time_left(progress: Progress, now_ns: int) -> tuple[float | None, float]:
    """Returns the seconds left in the stage and the share of it that is done."""
    stage = progress.plan.stages[progress.stage]
    match stage.action:
        case ConnectAction():
            return None, _connected_share(progress, stage)
        case DisconnectAction() if not wills_wait_ns(_leaving(progress.plan, stage)):
            return None, 1 - _connected_share(progress, stage)
    # Clients that leave with wills are gone long before their wills have come.
    duration_ns = max(round(_stage_s(progress.plan, stage) * SECOND_NS), 1)
    gone_ns = max(now_ns - progress.entered_ns, 0)
    return max(duration_ns - gone_ns, 0) / SECOND_NS, min(gone_ns / duration_ns, 1.0)


def planned_s(plan: Plan, stages: Iterable[Stage]) -> float:
    """Returns the seconds that stages take by their plan, with the longest wait for wills: without
    drains, and without the start of agents and brokers."""
    return sum(_stage_s(plan, stage) for stage in stages)


def _stage_s(plan: Plan, stage: Stage) -> float:
    action = stage.action
    if isinstance(action, PublishAction | HoldAction):
        return action.duration_ns / SECOND_NS
    duration_ns = schedule_ns(clients_of(plan, stage), action.rate_per_s)
    if isinstance(action, DisconnectAction):
        duration_ns += wills_wait_ns(_leaving(plan, stage))
    return duration_ns / SECOND_NS


def _leaving(plan: Plan, stage: Stage) -> Iterable[Population]:
    return (plan.populations[index] for index in stage.populations)


def _rest_s(progress: Progress, left_s: float | None, share_done: float) -> float:
    plan, stages = progress.plan, progress.plan.stages
    if left_s is None:
        left_s = _stage_s(plan, stages[progress.stage]) * (1 - share_done)
    return left_s + planned_s(plan, stages[progress.stage + 1 :])


def clients_of(plan: Plan, stage: Stage) -> int:
    """Clients that a stage connects or disconnects."""
    if isinstance(stage.action, ConnectAction) and stage.action.clients is not None:
        return sum(stage.action.clients)
    return sum(plan.populations[p].clients for p in stage.populations)


def _connected_share(progress: Progress, stage: Stage) -> float:
    """Connected share of the clients that a stage connects or disconnects."""
    chosen = stage.populations
    clients = clients_of(progress.plan, stage)
    snapshots = progress.latest.values()
    connected = sum(s.populations[p].gauges.connected for s in snapshots for p in chosen)
    return min(connected / clients, 1.0) if clients else 1.0


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
