"""The tables of a run beside its populations: samplers, problems, memory by connections, balance,
stalled subscribers, and CPU and memory of brokers by stage."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pubstorm.contract.source import OF_GENERATOR
from pubstorm.quantities import (
    NOTHING,
    count_text,
    share_text,
    span_text,
)
from pubstorm.report.document import Table, Value, columns
from pubstorm.report.watched import broker_sources
from pubstorm.result import (
    R_SQUARED_GOOD,
    MemoryModel,
    Result,
    Sampler,
    StalledSubscriber,
    Statistics,
    TargetResult,
    Watched,
)

TARGETS_MAX = 8
"""Targets of a name that have a row each."""
STALLS_SHOWN = 10
"""Stalls in the table; the others are in the details."""
STAGE_KINDS = {"connect": "ramp", "steady": "steady", "disconnect": "leaving"}
"""Parts of a run that memory and CPU are shown of, with their headings."""


def samplers(result: Result) -> Table:
    """Returns the outcomes of all actions of the clients."""
    rows = [
        (
            sampler.name,
            sampler.mean_us,
            sampler.max_us,
            sampler.mean_from_send_us,
            sampler.count,
            sampler.of,
            None if sampler.of is None else success_text(sampler.count, sampler.of),
        )
        for sampler in result.samplers
    ]
    heads = (
        *columns("word", "sampler"),
        *columns("us", "mean", "max", "mean from send"),
        *columns("count", "succeeded", "of"),
        *columns("share", "rate"),
    )
    table = Table("Samplers", heads, rows, _samplers_note(result.samplers))
    return table.with_bounds([sampler.bound_us for sampler in result.samplers])


def success_text(count: int, of: int) -> str:
    """Returns a share in percent: 100 only if nothing is missing, 0 only if everything is."""
    if not 0 < count < of:
        return share_text(count / of) if of else NOTHING
    percent = 100 * count / of
    if percent <= 99:
        return share_text(count / of)
    digits = max(math.floor(-math.log10(1 - count / of)) - 1, 1)
    return f"{math.floor(percent * 10**digits) / 10**digits:.{digits}f} %"


def problems(result: Result) -> Table:
    """Returns the counted failures, by kind."""
    rows = [
        (
            problem.kind,
            problem.count,
            problem.of,
            _counts({str(reason).replace("_", " "): n for reason, n in problem.reasons.items()}),
            _counts(problem.populations),
        )
        for problem in result.problems
    ]
    counts = columns("count", "count", "of")
    heads = (*columns("word", "problem"), *counts, *columns("word", "reasons", "populations"))
    return Table("Problems", heads, rows).without_empty()


def explanations(result: Result) -> Table:
    """Returns the texts of brokers beside problems."""
    rows = [
        (
            name,
            str(each.outcome).replace("_", " "),
            each.property.replace("_", " "),
            "other texts" if each.text is None else f'"{each.text}"',
            each.count,
        )
        for name, population in result.populations.items()
        for each in population.explanations
    ]
    heads = (
        *columns("word", "population", "outcome", "property", "text"),
        *columns("count", "count"),
    )
    return Table("Reason strings and server references", heads, rows)


def memory(result: Result) -> Table:
    """Returns memory by connections, for every subject with a fitted line."""
    return memory_table(result.memory, "readings")


def memory_table(models: Sequence[MemoryModel], points: str) -> Table:
    """Returns the lines of memory over connections."""
    rows = [_memory_cells(model) for model in models if model.problem is None]
    sizes = columns("bytes", "base", "per connection", "a million need")
    heads = (*columns("word", "memory of"), *sizes, *columns("count", "R²", points))
    notes = [f"{m.subject}: {m.problem}." for m in models if m.problem is not None]
    rough = ", ".join(m.subject for m in models if m.is_rough)
    if rough:
        limit = f"R² below {R_SQUARED_GOOD}"
        notes.append(f"{rough}: rough figures, since memory does not follow a line ({limit}).")
    return Table("Memory by connections", heads, rows, " ".join(notes))


def balance(result: Result) -> Table:
    """Returns the connections of each target; of many of one name the smallest and the largest."""
    rows: list[tuple[Value, ...]] = []
    for group, targets in target_groups(result).items():
        ordered = sorted(targets, key=lambda target: target.connected_max)
        if len(targets) <= TARGETS_MAX:
            rows += [_target_cells(result, target, target.name) for target in targets]
            continue
        for word, target in (("smallest", ordered[0]), ("largest", ordered[-1])):
            label = f"{word} of {count_text(len(targets))} {group}: {target.name}"
            rows.append(_target_cells(result, target, label))
    heads = (
        *columns("word", "target"),
        *columns("count", "connected max"),
        *columns("share", "share", "by plan"),
        *columns("count", "accepted", "failed"),
        *columns("share", "CPU"),
        *columns("bytes", "memory"),
    )
    return Table("Balance of the targets", heads, rows).without_empty()


def balance_text(result: Result) -> str:
    """Returns the balance in one line: `node-0 50.1 %, node-1 49.9 %`."""
    parts: list[str] = []
    for group, targets in target_groups(result).items():
        if len(targets) <= TARGETS_MAX:
            parts += [f"{target.name} {share_text(round(target.share, 4))}" for target in targets]
        else:
            shares = [round(target.share, 4) for target in targets]
            low, high = share_text(min(shares)), share_text(max(shares))
            parts.append(f"{count_text(len(targets))} {group} {low} to {high}")
    return ", ".join(parts)


def target_groups(result: Result) -> dict[str, list[TargetResult]]:
    """Returns the targets that share connections, by name."""
    groups: dict[str, list[TargetResult]] = {}
    for target in result.balance:
        groups.setdefault(target.group, []).append(target)
    return {name: each for name, each in groups.items() if any(t.connected_max for t in each)}


def stalls(result: Result) -> Table:
    """Returns the first subscribers that received nothing though messages were scheduled."""
    every = every_stall(result)
    total = sum(population.stalled_total for population in result.populations.values())
    rows = every.rows[:STALLS_SHOWN]
    is_cut = total > len(rows)
    note = f"Shown are the earliest {len(rows)} of {count_text(total)}." if is_cut else ""
    return Table("Stalled subscribers", every.columns, rows, note)


def every_stall(result: Result) -> Table:
    """Returns all stalls that the result keeps."""
    rows = [
        (
            f"{stall.population} {stall.number}",
            stall.stage or None,
            f"from {span_text(stall.since_s)} {_until(stall)}",
            stall.due,
        )
        for stall in result.stalls
    ]
    words = columns("word", "subscriber", "stage", "got nothing")
    return Table("Every stall", (*words, *columns("count", "messages scheduled")), rows)


def by_stage(result: Result) -> Table:
    """Returns CPU and memory of brokers and services while clients connected, under load, and while
    clients left. Empty if there was only load."""
    found: dict[str, dict[str, Watched]] = {}
    for each in result.monitors:
        if each.kind not in OF_GENERATOR and each.metric in {"cpu", "rss_bytes"}:
            found.setdefault(each.source, {})[each.metric] = each
    cells = {
        source: {
            (metric, kind): _of_kind(result, watched, kind)
            for metric, watched in metrics.items()
            for kind in STAGE_KINDS
        }
        for source, metrics in found.items()
    }
    kinds = [
        kind
        for kind in STAGE_KINDS
        if any(part.count for each in cells.values() for (_, k), part in each.items() if k == kind)
    ]
    if len(kinds) < 2:
        cells = {}
    rows = [
        (
            source,
            *(_mean(each.get(("cpu", kind))) for kind in kinds),
            *(_largest(each.get(("rss_bytes", kind))) for kind in kinds),
        )
        for source, each in cells.items()
    ]
    names = [STAGE_KINDS[kind] for kind in kinds]
    heads = (
        *columns("word", "process"),
        *columns("share", *(f"CPU {name}" for name in names)),
        *columns("bytes", *(f"mem {name}" for name in names)),
    )
    several = sum(stage.kind == "publish" for stage in result.stages) > 1
    note = (
        f"Ramp: connect stages; steady: {'the last publish stage' if several else 'under load'}; "
        "leaving: disconnect stages. CPU is a mean, memory the largest."
    )
    return Table("Brokers and services by stage", heads, rows, note).without_empty()


def disconnect_cpu(result: Result) -> tuple[Statistics, Statistics] | None:
    """Returns CPU of the busiest broker while clients left, and under load; None if unknown."""
    sources = broker_sources(result)
    found = [
        (_of_kind(result, each, "disconnect"), _of_kind(result, each, "steady"))
        for each in result.monitors
        if each.source in sources and each.metric == "cpu"
    ]
    read = [pair for pair in found if pair[0].count]
    return max(read, key=lambda pair: pair[0].mean, default=None)


def _of_kind(result: Result, watched: Watched, kind: str) -> Statistics:
    """Returns the readings of all stages of a kind. Of several publish stages the last is steady,
    since clients may still connect in earlier ones."""
    if kind == "steady":
        loaded = [stage.name for stage in result.stages if stage.kind == "publish"]
        last = watched.spans.get(loaded[-1], Statistics()) if loaded[1:] else Statistics()
        return last if last.count else watched.load
    names = dict.fromkeys(stage.name for stage in result.stages if stage.kind == kind)
    parts = [part for name in names if (part := watched.spans.get(name)) and part.count]
    count = sum(part.count for part in parts)
    if not count:
        return Statistics()
    return Statistics(
        count=count,
        first=parts[0].first,
        last=parts[-1].last,
        min=min(part.min for part in parts),
        mean=sum(part.mean * part.count for part in parts) / count,
        max=max(part.max for part in parts),
    )


def _samplers_note(found: Iterable[Sampler]) -> str:
    """Explains the dashes."""
    notes = []
    if any(each.kind == "pub" and each.qos == (0,) for each in found):
        notes.append("Messages of QoS 0 get no answer, and so have no response time.")
    if any(each.of is None for each in found):
        notes.append("Expected deliveries of clients that connect and leave are not counted.")
    if any(each.is_partial for each in found):
        notes.append(
            "Deliveries are counted in the stages in which no receiver connects or leaves."
        )
    return " ".join(notes)


def _memory_cells(model: MemoryModel) -> tuple[Value, ...]:
    million = model.bytes_of_million
    if model.base_bytes is None or model.bytes_per_connection is None or million is None:
        return (model.subject, *(None,) * 4, model.points)
    sizes = (model.base_bytes, model.bytes_per_connection, million)
    return (model.subject, *sizes, f"{model.r_squared:.3f}", model.points)


def _target_cells(result: Result, target: TargetResult, label: str) -> tuple[Value, ...]:
    watched = {each.metric: each.load for each in result.monitors if each.source == target.name}
    cpu, size = watched.get("cpu"), watched.get("rss_bytes")
    return (
        label,
        target.connected_max,
        round(target.share, 4),
        round(target.planned_share, 4),
        target.connected_total,
        target.connect_failed_total,
        cpu.mean if cpu and cpu.count else None,
        size.mean if size and size.count else None,
    )


def _mean(part: Statistics | None) -> float | None:
    return round(part.mean, 4) if part is not None and part.count else None


def _largest(part: Statistics | None) -> float | None:
    return part.max if part is not None and part.count else None


def _until(stall: StalledSubscriber) -> str:
    if stall.until_s is not None:
        return f"to {span_text(stall.until_s)}"
    return "on" if stall.lasted else "for a while"


def _counts(counts: dict[str, int]) -> str | None:
    return ", ".join(f"{count_text(n)} {name}" for name, n in counts.items()) or None
