"""Reads figures of monitors: processes, services, the host, agents and bridges, and the lateness of
publishers under test."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable

from pubstorm.contract.source import (
    HOST,
    HOST_OF,
    OF_GENERATOR,
    OTHER_HOST,
    TARGET_BROKER,
    split_member,
)
from pubstorm.metrics.expressions import Expression
from pubstorm.metrics.monitors import SYS_PREFIX, reading_of
from pubstorm.quantities import Unit, span_text
from pubstorm.result import Measured
from pubstorm.result.cells import NOTHING_MEASURED, Found, Missing
from pubstorm.result.monitors import Watched, readings

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
    group, number = split_member(subject)
    if TARGET_BROKER not in {subject, group}:
        return set()
    given = measured.given_targets
    asked = [each for n, each in enumerate(given) if number in {None, n}]
    hosts = Counter(map(_host_of, given))
    alone = {host for host in map(_host_of, asked) if hosts[host] == 1}
    others = (o for o in measured.observers if split_member(o.name)[0] != TARGET_BROKER)
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
