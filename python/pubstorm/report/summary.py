"""The tables of a run beside its populations: samplers, problems, memory by connections, balance,
and stalled subscribers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pubstorm.contract.snapshot import Explanation
from pubstorm.quantities import NOTHING, count_text, share_text, span_text
from pubstorm.report.layout import Cells, Layout, RunTable, fields, listed, names, words
from pubstorm.result import (
    R_SQUARED_GOOD,
    AddressResult,
    MemoryModel,
    Problem,
    RunResult,
    Sampler,
    StalledSubscriber,
    TargetResult,
    Watched,
)

TARGETS_MAX = 8
"""Targets of a name that have a row each."""
STALLS_SHOWN = 10
"""Stalls in the table; the others are in the details."""


def success_text(count: int, of: int) -> str:
    """Returns a share in percent: 100 only if nothing is missing, 0 only if everything is."""
    if not 0 < count < of:
        return share_text(count / of) if of else NOTHING
    percent = 100 * count / of
    if percent <= 99:
        return share_text(count / of)
    digits = max(math.floor(-math.log10(1 - count / of)) - 1, 1)
    return f"{math.floor(percent * 10**digits) / 10**digits:.{digits}f} %"


def _samplers_note(result: RunResult) -> str:
    """Explains the dashes."""
    notes = []
    if any(each.kind == "pub" and each.qos == (0,) for each in result.samplers):
        notes.append("Messages of QoS 0 get no answer, and so have no response time.")
    if any(each.of is None for each in result.samplers):
        notes.append("Expected deliveries of clients that connect and leave are not counted.")
    if any(each.is_partial for each in result.samplers):
        notes.append(
            "Deliveries are counted in the stages in which no receiver connects or leaves."
        )
    return " ".join(notes)


SAMPLERS = RunTable[Sampler]("Samplers", "load", lambda result: result.samplers).of(
    words("name as sampler"),
    fields("mean_us", "max_us", "mean_from_send_us", "count as succeeded", "of"),
    Cells("rate", "share", lambda s: None if s.of is None else success_text(s.count, s.of)),
    note=_samplers_note,
    bound_us=lambda sampler: sampler.bound_us,
)
"""The outcomes of all actions of the clients."""


def _reasons(problem: Problem) -> str | None:
    return _counts(_plain_keys(problem.reasons))


def _plain_keys(counts: Mapping[Any, int]) -> dict[str, int]:
    return {_plain(reason): count for reason, count in counts.items()}


def _counts(counts: Mapping[str, int]) -> str | None:
    return ", ".join(f"{count_text(n)} {name}" for name, n in counts.items()) or None


def _plain(name: object) -> str:
    return str(name).replace("_", " ")


PROBLEMS = RunTable[Problem]("Problems", "happened", lambda result: result.problems).of(
    words("kind as problem"),
    fields("count"),
    fields("of", when="known"),
    Cells("reasons", "word", _reasons, "known"),
    Cells("populations", "word", lambda problem: _counts(problem.populations), "known"),
)


EXPLANATIONS = RunTable[Explanation](
    "Reason strings and server references",
    "happened",
    lambda result: (
        (name, each) for name, p in result.populations.items() for each in p.explanations
    ),
).of(
    names("population"),
    Cells("outcome", "word", lambda each: _plain(each.outcome)),
    Cells("property", "word", lambda each: _plain(each.property)),
    Cells("text", "word", lambda each: "other texts" if each.text is None else f'"{each.text}"'),
    fields("count"),
)
"""The texts of brokers beside problems."""


class HasMemory(Protocol):
    """A result or a series."""

    @property
    def memory(self) -> Sequence[MemoryModel]:
        """Lines of memory over connections, and the reasons why there are none."""
        ...


def _memory_note(of: HasMemory) -> str:
    notes = [f"{m.subject}: {m.problem}." for m in of.memory if m.problem is not None]
    rough = ", ".join(m.subject for m in of.memory if m.is_rough)
    if rough:
        limit = f"R² below {R_SQUARED_GOOD}"
        notes.append(f"{rough}: rough figures, since memory does not follow a line ({limit}).")
    return " ".join(notes)


def memory_layout(points: str) -> Layout[HasMemory, MemoryModel]:
    """Returns the table of the lines of memory over connections. `points` is what a line fits."""
    return Layout[HasMemory, MemoryModel](
        "Memory by connections", "broker", lambda of: (m for m in of.memory if m.problem is None)
    ).of(
        words("subject as memory of"),
        Cells("base", "bytes", lambda model: model.base_bytes),
        Cells("per connection", "bytes", lambda model: model.bytes_per_connection),
        Cells("a million need", "bytes", lambda model: model.bytes_of_million),
        Cells("R²", "count", lambda m: None if m.r_squared is None else f"{m.r_squared:.3f}"),
        fields(f"points as {points}"),
        note=_memory_note,
    )


class _Target(NamedTuple):
    """A target with its monitors by metric."""

    label: str
    of: TargetResult
    found: Mapping[str, Watched]


def _targets(result: RunResult) -> Iterator[_Target]:
    """Yields the targets; of many of one name the smallest and the largest."""
    for group, targets in target_groups(result).items():
        ordered = sorted(targets, key=lambda target: target.connected_max)
        shown = [(target.name, target) for target in targets]
        if len(targets) > TARGETS_MAX:
            of_many = f"of {count_text(len(targets))} {group}"
            ends = (("smallest", ordered[0]), ("largest", ordered[-1]))
            shown = [(f"{word} {of_many}: {target.name}", target) for word, target in ends]
        for label, target in shown:
            found = {each.metric: each for each in result.monitors if each.source == target.name}
            yield _Target(label, target, found)


BALANCE = RunTable[_Target]("Balance of the targets", "broker", _targets).of(
    words("label as target"),
    fields("of.connected_max"),
    Cells("share", "share", lambda row: round(row.of.share, 4)),
    Cells("by plan", "share", lambda row: round(row.of.planned_share, 4)),
    fields("of.connected_total as accepted", "of.connect_failed_total as failed"),
    listed("targets"),
)
"""The connections of each target."""


def _address(row: AddressResult) -> str:
    return "others" if row.address is None else row.address


ADDRESSES = RunTable[AddressResult](
    "Addresses of the targets", "broker", lambda result: result.addresses
).of(
    words("target"),
    Cells("address", "word", _address),
    fields("connect_attempts_total as attempts", "connected_total as accepted"),
    fields("connect_failed_total as failed"),
    Cells("reasons", "word", lambda row: _counts(_plain_keys(row.outcomes)), "known"),
)
"""Attempts to connect by address, of targets that are names."""


def balance_text(result: RunResult) -> str:
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


def target_groups(result: RunResult) -> dict[str, list[TargetResult]]:
    """Returns the targets that share connections, by name."""
    groups: dict[str, list[TargetResult]] = {}
    for target in result.balance:
        groups.setdefault(target.group, []).append(target)
    return {name: each for name, each in groups.items() if any(t.connected_max for t in each)}


def _silence_text(stall: StalledSubscriber) -> str:
    until = "on" if stall.lasted else "for a while"
    if stall.until_s is not None:
        until = f"to {span_text(stall.until_s)}"
    return f"from {span_text(stall.since_s)} {until}"


def _stalls_note(result: RunResult) -> str:
    shown = len(result.stalls[:STALLS_SHOWN])
    total = sum(population.stalled_total for population in result.populations.values())
    return f"Shown are the earliest {shown} of {count_text(total)}." if total > shown else ""


_STALL: tuple[Cells[StalledSubscriber], ...] = (
    Cells("subscriber", "word", lambda stall: f"{stall.population} {stall.number}"),
    Cells("stage", "word", lambda stall: stall.stage or None),
    Cells("got nothing", "word", _silence_text),
    *fields("due as messages scheduled"),
)
STALLS = RunTable[StalledSubscriber](
    "Stalled subscribers", "happened", lambda result: result.stalls[:STALLS_SHOWN]
).of(_STALL, note=_stalls_note)
"""The first subscribers that received nothing though messages were scheduled."""
EVERY_STALL = RunTable[StalledSubscriber](
    "Every stall",
    "details",
    lambda result: result.stalls if len(result.stalls) > STALLS_SHOWN else (),
).of(_STALL)
"""All stalls that the result keeps, if there are more."""
