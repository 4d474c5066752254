"""The tables of faults: the faults, and the ledger of the stages that had some."""

from __future__ import annotations

from collections.abc import Iterator

from pubstorm.quantities import count_text
from pubstorm.report.document import Table, Value, columns
from pubstorm.result import FaultResult, Recovery, Result


def faults(result: Result) -> Table:
    """Returns the faults: time, duration, lost clients, recovery and backlog. Lost bridges have a
    row of their own."""
    heads = (
        *columns("word", "fault"),
        *columns("s", "at", "lasted"),
        *columns("word", "who"),
        *columns("s", "lost", "first back", "99 %", "all"),
        *columns("count", "waiting"),
        *columns("s", "drained"),
    )
    return Table("Faults", heads, [row for fault in result.faults for row in _rows(fault)])


def fault_ledger(result: Result) -> Table:
    """Returns the ledger of each stage with a fault, flow by flow."""
    names = ("QoS", "expected", "received", "lost", "dup", "reordered")
    rows = [
        (
            stage.name,
            f"{flow.source} → {flow.to}",
            ", ".join(map(str, flow.qos)) or None,
            flow.expected_total,
            flow.received_total,
            flow.lost_total,
            flow.duplicate_total,
            flow.reordered_total,
        )
        for stage in result.stages
        if any(stage.holds(fault.at_s) for fault in result.faults)
        for flow in stage.flows
    ]
    heads = (*columns("word", "stage", "from → to"), *columns("count", *names))
    return Table("Deliveries of stages with faults", heads, rows)


def _rows(fault: FaultResult) -> Iterator[tuple[Value, ...]]:
    lasted_s = None if fault.repaired_at_s is None else fault.repaired_at_s - fault.at_s
    first: tuple[Value, ...] = (fault.name, fault.at_s, lasted_s)
    last: tuple[Value, ...] = (fault.backlog_peak, fault.drained_s)
    if fault.clients is not None or fault.bridges is None:
        yield (*first, "clients", *_recovery(fault.clients), *last)
        first, last = ("", "", ""), ("", "")
    if fault.bridges is not None:
        yield (*first, "bridges", *_recovery(fault.bridges), *last)


def _recovery(found: Recovery | None) -> tuple[Value, ...]:
    """Returns the number lost of all, and the times of their return."""
    if found is None:
        return ("0", None, None, None)
    lost = f"{count_text(found.before - found.lowest)} of {count_text(found.before)}"
    return (lost, found.first_s, found.most_s, found.all_s)
