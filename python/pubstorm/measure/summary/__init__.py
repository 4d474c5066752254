"""Sums a run up beside its populations, by pure arithmetic: samplers, problems by kind, memory by
connections, the balance of targets beside the planned one, stalled subscribers, peaks, and the
headroom below the calibrated ceilings of the generator."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pubstorm.contract import TARGET_BROKER, Source
from pubstorm.contract.offered_load import target_of
from pubstorm.contract.plan import Plan, PlannedAttachment, PlannedPopulation
from pubstorm.contract.snapshot import AddressSnapshot, Stall
from pubstorm.contract.sums import total
from pubstorm.host.calibration import Calibration, Fingerprint, find
from pubstorm.measure.assemble import Assembly, flow_levels
from pubstorm.measure.run_log import StageSpan
from pubstorm.measure.summary.memory import MemorySamples, memory_models
from pubstorm.metrics.counters import COUNTERS
from pubstorm.quantities import SECOND_NS
from pubstorm.result import (
    AddressResult,
    BrokerResult,
    Environment,
    FlowResult,
    Headroom,
    Latency,
    Measured,
    Peak,
    Peaks,
    PopulationResult,
    Sampler,
    StageResult,
    StalledSubscriber,
    TargetResult,
    receivers_by_qos,
)
from pubstorm.result.samples import Tracks
from pubstorm.result.summary import SamplerKind, problems
from pubstorm.result.timeline import Timeline
from pubstorm.result.timeline.rows import Row

ADDRESS_ROWS_MAX = 16
"""Addresses of a target that have a row each in the result."""


def target_results(
    assembly: Assembly, groups: Mapping[str, Sequence[int]], names: Mapping[int, str]
) -> tuple[TargetResult, ...]:
    """Returns every target of the names that have several, by name; nothing if agents report no
    targets. `groups` has the indices of the targets of each name, `names` that of each target."""
    sums, peaks = assembly.sums, assembly.timeline.peaks()
    planned = planned_clients(assembly.plan)
    found: list[TargetResult] = []
    for group, members in groups.items():
        most = sum(peaks.connected_to(target) for target in members)
        due = sum(planned[target] for target in members)
        if len(members) < 2 or not any(target in sums.targets for target in members):
            continue
        for target in members:
            found.append(
                TargetResult(
                    name=names[target],
                    group=group,
                    connected_max=peaks.connected_to(target),
                    connected_total=sums.target(target).connected_total,
                    connect_failed_total=sums.target(target).connect_failed_total,
                    share=peaks.connected_to(target) / most if most else 0.0,
                    planned_share=planned[target] / due if due else 0.0,
                )
            )
    return tuple(found)


def address_results(assembly: Assembly, names: Mapping[int, str]) -> tuple[AddressResult, ...]:
    """Returns the attempts at each address of each target: the addresses with the most attempts,
    then the sum of the others. `names` has the name of each target."""
    by_target: dict[int, list[AddressSnapshot]] = {}
    for each in assembly.sums.addresses():
        by_target.setdefault(each.target, []).append(each)
    found: list[AddressResult] = []
    for target, addresses in sorted(by_target.items()):
        ordered = sorted(addresses, key=lambda each: -each.connect_attempts_total)
        shown = [(each.address or None, each) for each in ordered[:ADDRESS_ROWS_MAX]]
        if others := ordered[ADDRESS_ROWS_MAX:]:
            shown.append((None, total(AddressSnapshot, others)))
        for address, each in shown:
            counts = each.model_dump(exclude={"target", "address"})
            found.append(AddressResult(target=names[target], address=address, **counts))
    return tuple(found)


def target_names(
    plan: Plan, brokers: Sequence[BrokerResult], given: Sequence[Source]
) -> dict[int, str]:
    """Returns the names of targets by index: those of the brokers at their ends, names of the
    scenario, or addresses."""
    started = {(broker.host, broker.port): broker.name for broker in brokers}
    named = {n: source.name for n, source in enumerate(given) if source.group != TARGET_BROKER}
    return {
        index: named.get(index) or started.get((target.host, target.port), str(target))
        for index, target in enumerate(plan.targets)
    }


def planned_clients(plan: Plan) -> Counter[int]:
    """Returns the planned clients of each target."""
    planned = Counter[int]()
    for index, population in enumerate(plan.populations):
        if population.is_publisher:
            continue
        at, clients = population.at, population.clients
        if at.choice == "random" and at.count > 1:
            planned.update(target_of(plan, index, client) for client in range(clients))
        else:
            planned.update(dict(_in_turn(at, clients)))
    return planned


def _in_turn(at: PlannedAttachment, clients: int) -> Iterator[tuple[int, int]]:
    each, more = divmod(clients, at.count)
    for place in range(at.count):
        yield at.first + (place + at.shift) % at.count, each + (place < more)


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


__all__ = ["Sources", "peaks", "summaries"]

Summary = tuple[Callable[[], object], object]


@dataclass(frozen=True)
class Sources:
    """The targets of a run, and the samples of its monitors."""

    tracks: Tracks
    brokers: Sequence[BrokerResult]
    """Brokers that the run started."""
    groups: Mapping[str, Sequence[int]]
    """Indices of the targets of each name."""
    given: Sequence[Source] = ()
    """Sources of the first targets, which the run did not start."""


def summaries(measured: Measured, assembly: Assembly, sources: Sources) -> dict[str, Summary]:
    """Returns what makes each part that sums measurements up, by the field of the result, and what
    takes its place if it fails."""
    tracks, groups, brokers = sources.tracks, sources.groups, sources.brokers
    populations, stages = measured.populations, measured.stages
    outcome = SampledResults(assembly.plan, populations, measured.flows, stages)
    watched = MemorySamples(assembly, tracks, stages, groups, brokers, sources.given)
    names = target_names(assembly.plan, brokers, sources.given)
    return {
        "samplers": (lambda: samplers(outcome), ()),
        "problems": (lambda: problems(populations, measured.fleet.unfollowed_total), ()),
        "stalls": (lambda: stalls(assembly), ()),
        "peaks": (lambda: peaks(assembly.timeline, tracks, populations), Peaks()),
        "balance": (lambda: target_results(assembly, groups, names), ()),
        "addresses": (lambda: address_results(assembly, names), ()),
        "memory": (lambda: memory_models(watched), ()),
    }


def peaks(timeline: Timeline, tracks: Tracks, populations: Mapping[str, PopulationResult]) -> Peaks:
    """The peaks of a run; its rates are those of the time axis, whose spans all populations
    share."""
    return Peaks(
        connected=timeline.peaks().connected,
        sent_per_s=_peak(tracks, populations, "sent_per_s"),
        received_per_s=_peak(tracks, populations, "received_per_s"),
        received_by_qos={
            qos: _peak(tracks, names, "received_per_s")
            for qos, names in receivers_by_qos(populations).items()
        },
    )


def _peak(tracks: Tracks, populations: Collection[str], metric: str) -> Peak:
    sums: dict[float, float] = defaultdict(float)
    for (source, name), track in tracks.items():
        if source.kind == "population" and source.name in populations and name == metric:
            for at_s, value in zip(track.at_s, track.values, strict=True):
                sums[at_s] += value
    if not any(sums.values()):
        return Peak()
    at_s, value = max(sums.items(), key=lambda each: each[1])
    return Peak(value=round(value, 2), at_s=at_s)


def stalls(assembly: Assembly) -> tuple[StalledSubscriber, ...]:
    """The stalls that were kept, in the order of time."""
    return tuple(_stalled(assembly, stall) for stall in assembly.sums.stalls)


def _stalled(assembly: Assembly, stall: Stall) -> StalledSubscriber:
    begun = [s for s in assembly.run_log.spans if s.from_ns <= stall.since_ns < s.to_ns]
    return StalledSubscriber(
        population=assembly.plan.populations[stall.population].name,
        number=stall.number,
        stage=assembly.plan.stages[begun[-1].index].name if begun else None,
        since_s=_instant_s(assembly, stall.since_ns),
        until_s=None if stall.until_ns is None else _instant_s(assembly, stall.until_ns),
        lasted=stall.until_ns is None and (not begun or _anybody_left(assembly, stall, begun[-1])),
        due=stall.due,
    )


def _anybody_left(assembly: Assembly, stall: Stall, span: StageSpan) -> bool:
    """True if a client of the population was still stalled when a stage ended."""
    until_ns, populations = span.to_ns, (stall.population,)
    return assembly.timeline.at_end(span.index, until_ns, populations, "stalled") > 0


def _instant_s(assembly: Assembly, instant_ns: int) -> float:
    return round((instant_ns - assembly.run_log.started_ns) / SECOND_NS, 3)


MIN_SPAN_SHARE = 0.5
"""Share of the snapshot interval below which a span is too short for a rate."""
QOS2_COST = 2
"""A message of QoS 2 takes twice the packets of one of QoS 1."""


def headroom_of(assembly: Assembly, environment: Environment) -> tuple[Headroom | None, str]:
    """Returns the headroom of a run by this host's calibration, or the reason why there is none.
    Returns neither if the host was never calibrated."""
    if not environment.engine:
        return None, ""
    calibration, word = find(Fingerprint.of(environment))
    if calibration is None:
        return None, word
    if any(each.mqtt is None for each in assembly.plan.populations):
        return None, "the calibration was made with MQTT and says nothing of this run's headroom"
    if any(target.tls for target in assembly.plan.targets):
        return None, "the calibration was made without TLS and says nothing of this run's headroom"
    clients = [sum(hello.clients) for hello in assembly.hellos]
    rows = assembly.timeline.rows()
    return shares_of_ceilings(assembly.plan, rows, clients, calibration), ""


def shares_of_ceilings(
    plan: Plan, rows: Iterable[Row], clients: Sequence[int], calibration: Calibration
) -> Headroom:
    """The largest shares of the ceilings that an agent reached; `clients` are those of each."""
    long_enough_ns = MIN_SPAN_SHARE * plan.snapshot_interval_ns
    shares = (_share(plan, row, calibration) for row in rows if row.length_ns >= long_enough_ns)
    return Headroom(
        rate=round(max(shares, default=0.0), 4),
        clients=round(max(clients, default=0) / max(1, calibration.clients), 4),
        calibrated=calibration.calibrated,
    )


def _share(plan: Plan, row: Row, calibration: Calibration) -> float:
    """CPU seconds that the messages of a row take by the calibration, for each second."""
    cpu_s = 0.0
    for index, population in enumerate(plan.populations):
        cpu_s += row.count("sent", [index]) * _sending_cpu_s(population, calibration)
        cpu_s += row.count("received", [index]) / calibration.received.median
    return cpu_s * 1e9 / row.length_ns


def _sending_cpu_s(population: PlannedPopulation, calibration: Calibration) -> float:
    """CPU seconds for a message of the population's highest QoS."""
    match max((publication.qos for publication in population.publications), default=0):
        case 0:
            return 1 / calibration.sent_qos0.median
        case 1:
            return 1 / calibration.sent_qos1.median
        case _:
            return QOS2_COST / calibration.sent_qos1.median
