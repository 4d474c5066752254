"""Reads figures of monitors: processes, services, the host, agents and bridges, and the lateness of
publishers under test. Reads figures of a run (targets, memory and stages), of its phases and of its
faults."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import dropwhile

from pubstorm.contract import (
    HOST,
    HOST_OF,
    OF_GENERATOR,
    OTHER_HOST,
    split_member,
)
from pubstorm.metrics.expressions import Expression
from pubstorm.metrics.metric import RunMetric
from pubstorm.metrics.monitors import SYS_PREFIX, reading_of
from pubstorm.quantities import Unit, span_text
from pubstorm.result import FaultResult, Measured, Phase, PhaseStatus
from pubstorm.result.interval import NOTHING_MEASURED, Found, Missing
from pubstorm.result.machinery import Watched, readings

MOVING_AVERAGE = re.compile(r"^\$SYS/.*/(\d+)min$", re.ASCII)
"""Names of the broker's moving averages, with their time constant in minutes."""
SETTLED_TIMES = 4.6
"""Time constants after which such an average is within 1 % of a load that stays the same."""
NO_GROWTH = "the source reported fewer than twice in that time, so there is no rate"
NO_SLOPE = (
    "there is no slope: it needs readings of an hour or more that do not depend on those before"
)
UNITS_LEFT_OUT = ("bytes", "bytes_per_s", "per_s", "us")
"""Units that the name of an expression can leave out, in the order in which they are tried."""


def read_monitors(measured: Measured, asked: Expression) -> Found | Missing:
    """Returns the worst value of the sources that the subject means."""
    subject = asked.subject or ""
    names = {subject}
    if subject.endswith(HOST_OF):
        names = hosts_of(measured, subject.removesuffix(HOST_OF))
    watched = [w for w in measured.monitors if names & {w.source, w.group}]
    if asked.metric.startswith(SYS_PREFIX) and all(w.metric != asked.metric for w in watched):
        watched += [w for w in measured.monitors if w.source in _observing(measured, subject)]
    if not watched:
        return Missing(unwatched(measured, subject, names))
    full = (asked.metric, *(f"{asked.metric}_{suffix}" for suffix in UNITS_LEFT_OUT))
    metric = next((name for name in full if any(w.metric == name for w in watched)), None)
    if metric is None:
        return Missing(f"{subject} shows no {asked.metric}")
    if (unsettled := _unsettled(measured, metric, asked.span)) is not None:
        return Missing(unsettled, "not settled")
    statistic = asked.statistic or "mean"
    known = reading_of(metric)
    further = {"rate": known.growth, "slope": known.slope}
    unit = further.get(statistic, known).unit or ""
    named = [w for w in watched if w.metric == metric]
    if (gap := not_read(named, asked.span)) is not None:
        return Missing(gap, "not read")
    if statistic == "slope":
        return slope_of(named, asked.span, unit)
    values = readings(named, statistic, asked.span)
    if values:
        return Found(max(values), unit)
    has_reading = any(w.over(asked.span).count for w in named)
    return Missing(NO_GROWTH if has_reading else NOTHING_MEASURED)


def slope_of(
    named: Iterable[Watched], span: str | None, unit: Unit, *, is_sum: bool = False
) -> Found | Missing:
    """Returns the sum or the largest of the slopes of some sources, with its bound."""
    found = [each.over(span) for each in named]
    slopes = [(s.slope_per_h, s.slope_bound_per_h) for s in found if s.slope_per_h is not None]
    if slopes and is_sum:
        return Found(sum(per_h for per_h, _ in slopes), unit, sum(bound for _, bound in slopes))
    if slopes:
        per_h, bound_per_h = max(slopes)
        return Found(per_h, unit, bound_per_h)
    return Missing(NO_SLOPE if any(each.count for each in found) else NOTHING_MEASURED)


def hosts_of(measured: Measured, subject: str) -> set[str]:
    """Returns the hosts that brokers, services, publishers and processes of a name are on."""
    servers = {b.name: b.host for b in measured.brokers if subject in {b.name, b.group}}
    servers |= {s.name: s.host for s in measured.services if subject == s.name}
    servers |= {p.name: p.host for p in measured.publishers if subject in {p.name, p.population}}
    hosts = {w.source for w in measured.monitors if w.kind == "host"}
    hosts |= {p.source for p in measured.monitor_problems if p.source.startswith(OTHER_HOST)}
    named = {host.removeprefix(OTHER_HOST) for host in hosts}
    places = {each for each in named if subject in {each, split_member(each)[0]}}
    places |= {
        servers.get(w.source, w.source)
        for w in measured.monitors
        if subject in {w.source, w.group} and w.metric == "cpu" and w.kind not in OF_GENERATOR
    }
    found = (f"{OTHER_HOST}{place}" for place in (*places, *servers.values()))
    return {host if host in hosts else HOST for host in found}


def _observing(measured: Measured, subject: str) -> set[str]:
    """Returns the sources of other names that observe targets, such as `broker-0`: those at the
    address of a target, or at its host if that has no other target."""
    given = measured.given_targets
    asked = [each for name, each in given.items() if subject in {name, split_member(name)[0]}]
    hosts = Counter(map(_host_of, given.values()))
    alone = {host for host in map(_host_of, asked) if hosts[host] == 1}
    others = (observer for observer in measured.observers if observer.name not in given)
    return {o.name for o in others if o.target in asked or _host_of(o.target) in alone}


def _host_of(target: str) -> str:
    """Returns the host of a target that is written as an address."""
    return target.rpartition("://")[2].rpartition(":")[0]


def not_read(named: Iterable[Watched], span: str | None) -> str | None:
    """Returns which figure was read for too small a part of a span; None if all were read."""
    for each in named:
        found = each.over(span)
        if not found.is_enough:
            return f"{each.source}.{each.metric} was {found.unread_text}"
    return None


def _unsettled(measured: Measured, metric: str, span: str | None) -> str | None:
    """Returns why a moving average of the broker says nothing of a span: the load did not last long
    enough before its end. None for other figures, and for settled averages."""
    minutes = MOVING_AVERAGE.search(metric)
    if minutes is None:
        return None
    needed_s = 60 * SETTLED_TIMES * int(minutes[1])
    lasted_s = _lasted_s(measured, span)
    if lasted_s >= needed_s:
        return None
    return (
        f"{metric} is a moving average, which comes within 1 % of a load after "
        f"{span_text(needed_s)}, and the load lasted {span_text(lasted_s)}"
    )


def _lasted_s(measured: Measured, span: str | None) -> float:
    """Returns the time for which the load of a span was the same: of the last phase, or of a stage
    without phases; without a span, of the last one under load."""
    phases = [each for each in measured.phases if span in {None, each.name, each.stage}]
    if phases:
        return phases[-1].duration_s
    stages = [each for each in measured.stages if span in {None, each.name}]
    loaded = [s for s in stages if s.kind == "publish"] or [s for s in stages if s.kind == "hold"]
    return max((stage.steady_s for stage in (loaded or stages)[-1:]), default=0.0)


def unwatched(measured: Measured, subject: str, names: Collection[str]) -> str:
    """Returns why the sources of a subject, by their names, are not among the monitors."""
    for problem in measured.monitor_problems:
        if {problem.source, problem.group} & {*names}:
            return f"{subject} is not watched: {problem.text}"
    return f"{subject} is not watched"


def read_run(measured: Measured, metric: RunMetric, asked: Expression) -> Found | Missing:
    """Returns the figure of a run."""
    match metric.path[0]:
        case "memory":
            found = _memory(measured, asked.subject or "")
        case "balance":
            found = _balance(measured, asked.subject)
        case "peaks":
            found = _peak(measured, metric.path[1])
        case _:
            found = _stages(measured, metric, asked.span)
    return found if isinstance(found, Missing) else Found(found, metric.unit or "")


def _memory(measured: Measured, subject: str) -> float | Missing:
    """Returns the largest line of the subjects of a name."""
    named = [m for m in measured.memory if subject in {m.subject, m.group}]
    slopes = [m.bytes_per_connection for m in named if m.bytes_per_connection is not None]
    if slopes:
        return max(slopes)
    problems = [model.problem for model in named if model.problem is not None]
    if problems:
        return Missing(f"{subject}: {problems[0]}")
    return Missing(unwatched(measured, subject, {subject}))


def _balance(measured: Measured, group: str | None) -> float | Missing:
    """Returns the balance of a name, or the worst of all names."""
    shares: dict[str, list[float]] = {}
    for target in measured.balance:
        if group in {None, target.group}:
            shares.setdefault(target.group, []).append(target.share)
    if not any(map(sum, shares.values())):
        return Missing("no name has several targets that clients were connected to")
    return round(max(max(each) * len(each) for each in shares.values()), 4)


def _peak(measured: Measured, qos: str) -> float | Missing:
    peak = measured.peaks.received_by_qos.get(qos)
    if peak is not None and peak.at_s is not None:
        return peak.value
    if "mixed" in measured.peaks.received_by_qos:
        return Missing("some populations receive at several QoS, which share one rate")
    return Missing(f"nothing came with QoS {qos}")


def _stages(measured: Measured, metric: RunMetric, span: str | None) -> float | Missing:
    """Returns a figure of one stage, or of all stages of its kind, weighted by their duration."""
    field = metric.path[1]
    if span is not None:
        stage = next((stage for stage in measured.stages if stage.name == span), None)
        if stage is None:
            return Missing(f"{span} was not played")
        return float(getattr(stage, field))
    stages = [stage for stage in measured.stages if stage.kind == metric.stage_kind]
    took_s = math.fsum(getattr(stage, metric.weight) for stage in stages)
    if not took_s:
        return Missing("nothing arrived" if stages else f"no {metric.stage_kind} stage was played")
    total = math.fsum(getattr(stage, field) * getattr(stage, metric.weight) for stage in stages)
    return round(total / took_s, 2)


def read_fault(measured: Measured, metric: RunMetric, asked: Expression) -> Found | Missing:
    """Returns the figure of the fault that the span names. If nothing was lost, it was back at
    once."""
    fault = next((f for f in measured.faults if f.name == asked.span), None)
    if fault is None:
        return Missing(f"{asked.span} did not happen")
    if fault.failed is not None:
        return Missing(f"{asked.span} failed: {fault.failed}")
    noun = metric.path[0]
    if noun == "bridges" and all(bridge.up is None for bridge in measured.bridges):
        return Missing("no bridges were counted")
    if noun in {"clients", "bridges"}:
        found = _recovery(fault, noun, asked.statistic)
    else:
        found = _backlog(fault, noun)
    return found if isinstance(found, Missing) else Found(found, metric.unit or "")


def _recovery(fault: FaultResult, noun: str, statistic: str | None) -> float | Missing:
    """Returns the number that was lost, or by a statistic the time until so many were back."""
    found = fault.clients if noun == "clients" else fault.bridges
    if found is None:
        return 0.0
    if statistic is None:
        return float(found.before - found.lowest)
    back_s: float | None = getattr(found, f"{statistic}_s")
    late = Missing(f"{noun} were not back in stage {fault.stage}")
    return late if back_s is None else back_s


def _backlog(fault: FaultResult, field: str) -> float | Missing:
    if fault.backlog_peak is None:
        return Missing(NOTHING_MEASURED)
    value: float | None = getattr(fault, field)
    late = Missing(f"the backlog was not gone in stage {fault.stage}")
    return late if value is None else float(value)


def read_phase(measured: Measured, metric: RunMetric, asked: Expression) -> Found | Missing:
    """Returns the time until the load was carried again, which may be in a later phase of the
    stage."""
    phases = list(_phases_from(measured, asked.span))
    if not phases:
        return Missing(f"{asked.span} is no phase of this run")
    if phases[0].status is PhaseStatus.HELD:
        return Found(0.0, metric.unit or "")
    for phase in phases:
        if phase.status is PhaseStatus.UNKNOWN:
            why = next(iter(phase.evidence), "nothing is known about the load")
            return Missing(f"phase {phase.name} was not evaluated: {why}")
        if phase.recovered_after_s is not None:
            since_s = phase.start_s if phase.collapsed_at_s is None else phase.collapsed_at_s
            carried_s = since_s + phase.recovered_after_s
            return Found(round(carried_s - phases[0].start_s, 3), metric.unit or "")
    return Missing(f"the load was not carried again in stage {phases[0].stage}")


def _phases_from(measured: Measured, name: str | None) -> Iterator[Phase]:
    """Yields the phase of a name and the later ones of its stage."""
    phases = list(dropwhile(lambda phase: phase.name != name, measured.phases))
    yield from (phase for phase in phases if phase.stage == phases[0].stage)
