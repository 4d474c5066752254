"""Findings about faults. A fault fails no run by itself; thresholds decide whether its effects
matter. A fault whose command failed makes the run invalid: perhaps it broke nothing. Lost
deliveries belong to the stage, since no fault can be named as their cause."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pubstorm.metrics.counters import COUNTERS
from pubstorm.quantities import count_text, counted, span_text
from pubstorm.result import FaultResult, Measured, StageFlow, StageResult
from pubstorm.result.verdict.culprit import EvidenceKind
from pubstorm.result.verdict.findings import Finding, invalid, with_faults


def _faults(measured: Measured) -> Iterable[Finding]:
    """One line for each fault. The connections and deliveries of a stage with one fault are in
    that line; a stage with several faults has a line of its own for them."""
    for stage in with_faults(measured):
        inside = [fault for fault in measured.faults if stage.holds(fault.at_s)]
        facts = "; ".join(_stage_facts(stage))
        alone = len(inside) == 1
        for fault in inside:
            yield Finding(_fault_text(fault, facts if alone else ""))
        if facts and not alone:
            yield Finding(f"stage {stage.name}, with its faults: {facts}")
    for fault in measured.faults:
        if fault.failed is not None:
            text = f"fault {fault.name} at {span_text(fault.at_s)} failed: {fault.failed}"
            yield invalid(text, EvidenceKind.UNEXPLAINED, "a fault could not be made")
    outside = (f for f in measured.faults if not any(s.holds(f.at_s) for s in measured.stages))
    yield from (Finding(_fault_text(fault, "")) for fault in outside)


def _fault_text(fault: FaultResult, more: str) -> str:
    lasted = "not repaired"
    if fault.repaired_at_s is not None:
        lasted = f"repaired after {span_text(fault.repaired_at_s - fault.at_s)}"
    facts = "; ".join((lasted, *fault.evidence, *((more,) if more else ())))
    return f"{fault.name} at {span_text(fault.at_s)}: {facts}"


def _stage_facts(stage: StageResult) -> Iterator[str]:
    """The connections and deliveries of a stage with faults, the latter by QoS."""
    populations = stage.populations.values()
    failed = sum(population.connect_failed_total for population in populations)
    ended = sum(population.disconnected_total for population in populations)
    if failed or ended:
        yield (
            f"{counted(ended, 'connection')} ended and {counted(failed, 'connection attempt')} "
            "failed"
        )
    levels: dict[tuple[int, ...], list[StageFlow]] = {}
    for flow in stage.flows:
        levels.setdefault(flow.qos, []).append(flow)
    for qos, flows in sorted(levels.items()):
        counts = ", ".join(
            f"{count_text(sum(getattr(flow, counter) for flow in flows))} {words}"
            for counter, words in _EFFECTS.items()
        )
        expected = sum(flow.expected_total for flow in flows)
        level = f" at QoS {' and '.join(map(str, qos))}" if qos else ""
        yield f"{counts} of {counted(expected, 'delivery', 'deliveries')}{level}"


_EFFECTS = {metric.field: metric.fault_effect for metric in COUNTERS if metric.fault_effect}
FAULT_RULES = (_faults,)
