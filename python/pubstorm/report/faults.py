"""What a report says of faults: a table of them, and the ledger of the stages that they were in. It
knows no format."""

from __future__ import annotations

from collections.abc import Iterator

from pubstorm.quantity import NOTHING, count_text, span_text
from pubstorm.report.table import Column, Table
from pubstorm.result import FaultResult, Recovery, Result


def faults(result: Result) -> Table:
    """Each fault: when, for how long, who was lost and when they were back, and what waited. Of
    bridges there is a row of their own where some were lost."""
    names = ("lost", "first back", "99 %", "all", "waiting", "drained")
    columns = (
        Column("fault", right=False),
        Column("at"),
        Column("lasted"),
        Column("who", right=False),
        *map(Column, names),
    )
    return Table("Faults", columns, tuple(row for f in result.faults for row in _rows(f)))


def fault_ledger(result: Result) -> Table:
    """The ledger of each stage that something was broken in, flow by flow."""
    names = ("QoS", "owed", "received", "lost", "dup", "reordered")
    columns = (Column("stage", right=False), Column("from → to", right=False), *map(Column, names))
    rows = tuple(
        (
            stage.name,
            f"{flow.source} → {flow.to}",
            ", ".join(map(str, flow.qos)) or NOTHING,
            *map(
                count_text,
                (
                    flow.expected_total,
                    flow.received_total,
                    flow.lost_total,
                    flow.duplicate_total,
                    flow.reordered_total,
                ),
            ),
        )
        for stage in result.stages
        if any(stage.holds(fault.at_s) for fault in result.faults)
        for flow in stage.flows
    )
    return Table("Deliveries of stages with faults", columns, rows)


def _rows(fault: FaultResult) -> Iterator[tuple[str, ...]]:
    lasted_s = None if fault.mended_at_s is None else fault.mended_at_s - fault.at_s
    first = (fault.name, span_text(fault.at_s), _span(lasted_s))
    waiting = NOTHING if fault.backlog_peak is None else count_text(fault.backlog_peak)
    last = (waiting, _span(fault.drained_s))
    if fault.clients is not None or fault.bridges is None:
        yield (*first, "clients", *_recovery(fault.clients), *last)
        first, last = ("", "", ""), ("", "")
    if fault.bridges is not None:
        yield (*first, "bridges", *_recovery(fault.bridges), *last)


def _recovery(found: Recovery | None) -> tuple[str, str, str, str]:
    """How many were lost of how many, and when they were back."""
    if found is None:
        return ("0", NOTHING, NOTHING, NOTHING)
    lost = f"{count_text(found.before - found.lowest)} of {count_text(found.before)}"
    return (lost, _span(found.first_s), _span(found.most_s), _span(found.all_s))


def _span(span_s: float | None) -> str:
    return NOTHING if span_s is None else span_text(span_s)
