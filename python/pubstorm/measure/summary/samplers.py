"""Samplers: what became of everything that the clients of each population did, by QoS, and of the
shares of a population together. Pure arithmetic on what a run measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pubstorm.contract.plan import Plan, PlannedPopulation
from pubstorm.measure.assemble import flow_levels
from pubstorm.metrics.counters import COUNTERS
from pubstorm.result import FlowResult, Latency, PopulationResult, Sampler, StageResult
from pubstorm.result.summary import SamplerKind


@dataclass(frozen=True)
class SampledResults:
    """The results that samplers are made of."""

    plan: Plan
    populations: dict[str, PopulationResult]
    flows: Sequence[FlowResult]
    stages: Sequence[StageResult]


@dataclass(frozen=True)
class _Contribution:
    """The part of one population, or of one flow, in a sampler."""

    kind: SamplerKind
    qos: tuple[int, ...]
    count: int
    of: int | None
    times: Latency | None
    """Response times; None if there is no answer."""
    from_send: Latency | None = None
    """The same from the actual send."""
    is_partial: bool = False
    """True if deliveries of stages that were excluded from loss are not in it."""


def samplers(outcome: SampledResults) -> tuple[Sampler, ...]:
    """The samplers of each population that did anything; the sums over shares before the shares."""
    several = {whole for whole, shares in outcome.plan.wholes.items() if len(shares) > 1}
    sums: dict[str, list[_Contribution]] = {}
    own: dict[str, list[_Contribution]] = {}
    for population in outcome.plan.populations:
        parts = list(_parts(outcome, population))
        if population.of in several:
            sums.setdefault(population.of, []).extend(parts)
        own.setdefault(population.name, []).extend(parts)
    found: list[Sampler] = []
    for population in outcome.plan.populations:
        if population.of in sums:
            found += _of(population.of, sums.pop(population.of), is_sum=True)
        found += _of(population.name, own[population.name], is_sum=False)
    return tuple(found)


def _parts(outcome: SampledResults, population: PlannedPopulation) -> Iterator[_Contribution]:
    result = outcome.populations[population.name]
    for counter, succeeds in SUCCESSES:
        attempts = sum(getattr(result, field) for field in succeeds.of)
        if attempts:
            times = getattr(result, succeeds.times) if succeeds.times else None
            yield _Contribution(succeeds.action, (), getattr(result, counter), attempts, times)
    if result.sent_total or result.skipped_total:
        yield _publishing(population, result)
    published = {each.name: each for each in outcome.plan.populations}
    for flow in outcome.flows:
        if flow.to == population.name and (flow.expected_total or flow.received_total):
            qos = flow_levels(published[flow.source], population)
            received, expected, is_partial = _counted(outcome, flow)
            times = flow.latency_us
            yield _Contribution(
                "sub", qos, received, expected, times.intended, times.actual, is_partial
            )


def _counted(outcome: SampledResults, flow: FlowResult) -> tuple[int, int | None, bool]:
    """Returns the deliveries received and expected of a flow. If its receivers are excluded from
    loss in some stages, the others are counted; if in all, nothing is known to be expected."""
    counted = [stage for stage in outcome.stages if flow.to not in stage.excluded]
    if len(counted) == len(outcome.stages):
        return flow.received_total, flow.expected_total, False
    own = [
        each
        for stage in counted
        for each in stage.flows
        if (each.source, each.to) == (flow.source, flow.to)
    ]
    expected = sum(each.expected_total for each in own)
    if not expected:
        return flow.received_total, None, False
    return sum(each.received_total for each in own), expected, True


def _publishing(population: PlannedPopulation, result: PopulationResult) -> _Contribution:
    """If any message is of QoS 0, no count shows how many of the others were acknowledged."""
    levels = tuple(sorted({publication.qos for publication in population.publications}))
    times = result.ack_latency_us
    if population.mqtt is None:
        return _Contribution(
            "pub", (), result.sent_total, result.sent_total + result.skipped_total, None
        )
    if 0 not in levels:
        count, of = result.acked_total, result.sent_total
    else:
        count, of = result.sent_total, result.sent_total + result.skipped_total
    if levels == (0,):
        return _Contribution("pub", levels, count, of, None)
    return _Contribution("pub", levels, count, of, times.intended, times.actual)


def _of(subject: str, parts: Sequence[_Contribution], *, is_sum: bool) -> Iterator[Sampler]:
    """The parts of a subject put together by kind and QoS."""
    groups: dict[tuple[int, tuple[int, ...]], list[_Contribution]] = {}
    for part in parts:
        groups.setdefault((KINDS.index(part.kind), part.qos), []).append(part)
    for (kind, qos), group in sorted(groups.items()):
        wholes = [part.of for part in group if part.of is not None]
        mean_us, max_us = _summary(part.times for part in group)
        mean_from_send_us, max_from_send_us = _summary(part.from_send for part in group)
        yield Sampler(
            subject=subject,
            is_sum=is_sum,
            kind=KINDS[kind],
            qos=qos,
            count=sum(part.count for part in group),
            of=sum(wholes) if len(wholes) == len(group) else None,
            mean_us=mean_us,
            max_us=max_us,
            mean_from_send_us=mean_from_send_us,
            max_from_send_us=max_from_send_us,
            is_partial=any(part.is_partial for part in group),
            bound_us=max((part.times.bound_us for part in group if part.times), default=0.0),
        )


def _summary(found: Iterable[Latency | None]) -> tuple[float | None, float | None]:
    """Mean and largest over several distributions."""
    times = [each for each in found if each is not None and each.count]
    count = sum(each.count for each in times)
    if not count:
        return None, None
    mean = sum(each.mean * each.count for each in times) / count
    return round(mean, 3), max(each.max for each in times)


KINDS: tuple[SamplerKind, ...] = ("connect", "subscribe", "unsubscribe", "pub", "sub")
SUCCESSES = tuple((m.field, m.successes) for m in COUNTERS if m.successes is not None)
"""Actions with an answer: the field of their successes, and the rest."""
