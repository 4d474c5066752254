"""The tables of faults: the faults, and the ledger of the stages that had some."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from pubstorm.quantities import count_text
from pubstorm.report.document import Unit, Value
from pubstorm.report.layout import Cells, RunTable, fields, metrics, names, words
from pubstorm.result import FaultResult, Recovery, Result, StageFlow


class _Row(NamedTuple):
    """A fault, and the clients or bridges that it disconnected. Bridges have a row of their own."""

    fault: FaultResult
    who: str
    recovery: Recovery | None
    is_first: bool = True


def _rows(result: Result) -> Iterator[_Row]:
    for fault in result.faults:
        has_clients = fault.clients is not None or fault.bridges is None
        if has_clients:
            yield _Row(fault, "clients", fault.clients)
        if fault.bridges is not None:
            yield _Row(fault, "bridges", fault.bridges, not has_clients)


def _once(head: str, unit: Unit, read: Callable[[FaultResult], Value]) -> Cells[_Row]:
    """Returns a column of the fault, with a cell in its first row."""
    return Cells(head, unit, lambda row: read(row.fault) if row.is_first else "")


def _lost_text(row: _Row) -> str:
    """Returns the number lost of all."""
    found = row.recovery
    if found is None:
        return "0"
    return f"{count_text(found.before - found.lowest)} of {count_text(found.before)}"


FAULTS = RunTable[_Row]("Faults", "happened", _rows).of(
    _once("fault", "word", lambda fault: fault.name),
    _once("at", "s", lambda fault: fault.at_s),
    _once("lasted", "s", lambda f: None if f.repaired_at_s is None else f.repaired_at_s - f.at_s),
    words("who"),
    Cells("lost", "s", _lost_text),
    fields("recovery.first_s as first back", "recovery.most_s as 99 %", "recovery.all_s as all"),
    _once("waiting", "count", lambda fault: fault.backlog_peak),
    _once("drained", "s", lambda fault: fault.drained_s),
)


def _flows(result: Result) -> Iterator[tuple[str, StageFlow]]:
    """Yields the flows of stages with a fault, each with the name of its stage."""
    for stage in result.stages:
        if any(stage.holds(fault.at_s) for fault in result.faults):
            yield from ((stage.name, flow) for flow in stage.flows)


FAULT_LEDGER = RunTable[StageFlow]("Deliveries of stages with faults", "happened", _flows).of(
    names("stage"),
    Cells("from → to", "word", lambda flow: f"{flow.source} → {flow.to}"),
    Cells("QoS", "count", lambda flow: ", ".join(map(str, flow.qos)) or None),
    metrics("expected", "received", "lost", "duplicate as dup", "reordered"),
)
