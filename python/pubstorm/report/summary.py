"""The tables of what a run comes to beside its populations: samplers, problems, memory by
connections, balance, stalled subscribers, and what brokers needed stage by stage. It knows no
format."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pubstorm.quantity import (
    NOTHING,
    bytes_text,
    count_text,
    duration_text,
    share_text,
    span_text,
)
from pubstorm.report.table import Column, Table
from pubstorm.report.watched import broker_sources
from pubstorm.result import (
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
    """What became of everything that the clients did."""
    rows = [
        (
            sampler.name,
            _time(sampler.mean_us),
            _time(sampler.max_us),
            _time(sampler.mean_from_send_us),
            count_text(sampler.count),
            NOTHING if sampler.of is None else count_text(sampler.of),
            NOTHING if sampler.of is None else success_text(sampler.count, sampler.of),
        )
        for sampler in result.samplers
    ]
    names = ("mean", "max", "mean from send", "succeeded", "of", "rate")
    columns = (Column("sampler", right=False), *map(Column, names))
    table = Table("Samplers", columns, tuple(rows), _samplers_note(result.samplers))
    return table.with_bounds([sampler.bound_us for sampler in result.samplers])


def success_text(count: int, of: int) -> str:
    """A share in percent that is 100 only where nothing is missing, and 0 only where all is."""
    if not 0 < count < of:
        return share_text(count / of) if of else NOTHING
    percent = 100 * count / of
    if percent <= 99:
        return share_text(count / of)
    digits = max(math.floor(-math.log10(1 - count / of)) - 1, 1)
    return f"{math.floor(percent * 10**digits) / 10**digits:.{digits}f} %"


def problems(result: Result) -> Table:
    """What ended otherwise than hoped, by kind."""
    rows = [
        (
            problem.kind,
            count_text(problem.count),
            NOTHING if problem.of is None else count_text(problem.of),
            _counts({str(reason).replace("_", " "): n for reason, n in problem.reasons.items()}),
            _counts(problem.populations),
        )
        for problem in result.problems
    ]
    texts = (Column("reasons", right=False), Column("populations", right=False))
    columns = (Column("problem", right=False), Column("count"), Column("of"), *texts)
    return Table("Problems", columns, tuple(rows)).without_empty_columns()


def memory(result: Result) -> Table:
    """Memory by connections, where a line was fitted to any."""
    return memory_table(result.memory, "readings")


def memory_table(models: Sequence[MemoryModel], points: str) -> Table:
    """Lines of memory over connections, fitted to some points."""
    rows = [_memory_cells(model) for model in models if model.problem is None]
    names = ("base", "per connection", "a million need", "R²", points)
    columns = (Column("memory of", right=False), *map(Column, names))
    missing = [f"{m.subject}: {m.problem}." for m in models if m.problem is not None]
    return Table("Memory by connections", columns, tuple(rows), " ".join(missing))


def balance(result: Result) -> Table:
    """The connections of each target; of many of one name the smallest and the largest."""
    rows: list[tuple[str, ...]] = []
    for group, targets in target_groups(result).items():
        ordered = sorted(targets, key=lambda target: target.connected_max)
        if len(targets) <= TARGETS_MAX:
            rows += [_target_cells(result, target, target.name) for target in targets]
            continue
        for word, target in (("smallest", ordered[0]), ("largest", ordered[-1])):
            label = f"{word} of {count_text(len(targets))} {group}: {target.name}"
            rows.append(_target_cells(result, target, label))
    names = ("connected max", "share", "by plan", "accepted", "failed", "CPU", "memory")
    columns = (Column("target", right=False), *map(Column, names))
    return Table("Balance of the targets", columns, tuple(rows)).without_empty_columns()


def balance_text(result: Result) -> str:
    """The balance in a line: `node-0 50.1 %, node-1 49.9 %`."""
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
    """The targets that the connections were shared out over, by name."""
    groups: dict[str, list[TargetResult]] = {}
    for target in result.balance:
        groups.setdefault(target.group, []).append(target)
    return {name: each for name, each in groups.items() if any(t.connected_max for t in each)}


def stalls(result: Result) -> Table:
    """The first subscribers that got nothing though messages were due to them."""
    every = every_stall(result)
    total = sum(population.stalled_total for population in result.populations.values())
    rows = every.rows[:STALLS_SHOWN]
    is_cut = total > len(rows)
    note = f"Shown are the earliest {len(rows)} of {count_text(total)}." if is_cut else ""
    return Table("Stalled subscribers", every.columns, rows, note)


def every_stall(result: Result) -> Table:
    """All that were kept, where these are more."""
    rows = [
        (
            f"{stall.population} {stall.number}",
            stall.stage or NOTHING,
            f"from {span_text(stall.since_s)} {_until(stall)}",
            count_text(stall.due),
        )
        for stall in result.stalls
    ]
    texts = (Column(name, right=False) for name in ("subscriber", "stage", "got nothing"))
    return Table("Every stall", (*texts, Column("messages due")), tuple(rows))


def by_stage(result: Result) -> Table:
    """What brokers and services needed while clients connected, under load, and while they left;
    only where that says more than the load alone."""
    agents = {f"agent-{agent.agent}" for agent in result.fleet.agents}
    bridges = {each.name for each in result.bridges}
    others = agents | bridges | {"host", *result.populations}
    found: dict[str, dict[str, Watched]] = {}
    for each in result.monitors:
        if each.source not in others and each.metric in {"cpu", "rss_bytes"}:
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
            *(_cpu_cell(each.get(("cpu", kind))) for kind in kinds),
            *(_memory_cell(each.get(("rss_bytes", kind))) for kind in kinds),
        )
        for source, each in cells.items()
    ]
    names = [f"{what} {STAGE_KINDS[kind]}" for what in ("CPU", "mem") for kind in kinds]
    several = sum(stage.kind == "publish" for stage in result.stages) > 1
    note = (
        f"Ramp: connect stages; steady: {'the last publish stage' if several else 'under load'}; "
        "leaving: disconnect stages. CPU is a mean, memory the largest."
    )
    columns = (Column("process", right=False), *map(Column, names))
    table = Table("Brokers and services by stage", columns, tuple(rows), note)
    return table.without_empty_columns()


def disconnect_cpu(result: Result) -> tuple[Statistics, Statistics] | None:
    """CPU of the busiest broker while clients left, and under load; None: nobody read it."""
    sources = broker_sources(result)
    found = [
        (_of_kind(result, each, "disconnect"), _of_kind(result, each, "steady"))
        for each in result.monitors
        if each.source in sources and each.metric == "cpu"
    ]
    read = [pair for pair in found if pair[0].count]
    return max(read, key=lambda pair: pair[0].mean, default=None)


def _of_kind(result: Result, watched: Watched, kind: str) -> Statistics:
    """The readings of all stages of a kind together; steady is the last of several that publish,
    since clients may still come in those before."""
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
    """What the dashes mean."""
    notes = []
    if any(each.kind == "pub" and each.qos == (0,) for each in found):
        notes.append("Messages of QoS 0 get no answer, and so have no response time.")
    if any(each.of is None for each in found):
        notes.append("What is due to clients that come and go is not counted.")
    return " ".join(notes)


def _memory_cells(model: MemoryModel) -> tuple[str, ...]:
    million = model.bytes_of_million
    if model.base_bytes is None or model.bytes_per_connection is None or million is None:
        return (model.subject, *(NOTHING,) * 4, count_text(model.points))
    return (
        model.subject,
        bytes_text(model.base_bytes),
        bytes_text(model.bytes_per_connection),
        bytes_text(million),
        f"{model.r_squared:.3f}",
        count_text(model.points),
    )


def _target_cells(result: Result, target: TargetResult, label: str) -> tuple[str, ...]:
    watched = {each.metric: each for each in result.monitors if each.source == target.name}
    cpu, size = (watched.get(metric) for metric in ("cpu", "rss_bytes"))
    return (
        label,
        count_text(target.connected_max),
        share_text(round(target.share, 4)),
        share_text(round(target.planned_share, 4)),
        count_text(target.connected_total),
        count_text(target.connect_failed_total),
        share_text(cpu.load.mean) if cpu and cpu.load.count else NOTHING,
        bytes_text(size.load.mean) if size and size.load.count else NOTHING,
    )


def _cpu_cell(part: Statistics | None) -> str:
    if part is None or not part.count:
        return NOTHING
    return share_text(round(part.mean, 4))


def _memory_cell(part: Statistics | None) -> str:
    return bytes_text(part.max) if part is not None and part.count else NOTHING


def _until(stall: StalledSubscriber) -> str:
    if stall.until_s is not None:
        return f"to {span_text(stall.until_s)}"
    return "on" if stall.lasted else "for a while"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count_text(n)} {name}" for name, n in counts.items()) or NOTHING


def _time(duration_us: float | None) -> str:
    return NOTHING if duration_us is None else duration_text(duration_us)
