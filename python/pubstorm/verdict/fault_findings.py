"""What the faults of a run bear on its verdict: facts. A fault fails nothing by itself; thresholds
say whether what came of it matters. What deliveries it cost is told of its stage, since nobody can
say which fault cost which. Pure functions of measured values."""

from __future__ import annotations

from collections.abc import Iterable

from pubstorm.quantity import count_text, counted, span_text
from pubstorm.result import Measured, StageFlow
from pubstorm.verdict.findings import Finding, with_faults


def _faults(measured: Measured) -> Iterable[Finding]:
    for fault in measured.faults:
        lasted = "not mended"
        if fault.mended_at_s is not None:
            lasted = f"mended after {span_text(fault.mended_at_s - fault.at_s)}"
        facts = "; ".join((lasted, *fault.evidence))
        yield Finding(f"{fault.name} at {span_text(fault.at_s)}: {facts}")


def _ledgers(measured: Measured) -> Iterable[Finding]:
    """The deliveries of stages with faults, by QoS."""
    for stage in with_faults(measured):
        levels: dict[tuple[int, ...], list[StageFlow]] = {}
        for flow in stage.flows:
            levels.setdefault(flow.qos, []).append(flow)
        for qos, flows in sorted(levels.items()):
            counts = ", ".join(
                f"{count_text(sum(getattr(flow, counter) for flow in flows))} {words}"
                for counter, words in _COUNTED.items()
            )
            owed = sum(flow.expected_total for flow in flows)
            level = f" at QoS {' and '.join(map(str, qos))}" if qos else ""
            yield Finding(
                f"stage {stage.name}, with its faults: {counts} of "
                f"{counted(owed, 'delivery', 'deliveries')}{level}"
            )


_COUNTED = {
    "lost_total": "lost",
    "duplicate_total": "duplicated",
    "reordered_total": "out of order",
}
FAULT_RULES = (_faults, _ledgers)
