"""What the faults of a run bear on its verdict: facts. A fault fails nothing by itself; thresholds
say whether what came of it matters. Pure functions of measured values."""

from __future__ import annotations

from collections.abc import Iterable

from pubstorm.quantity import span_text
from pubstorm.result import Measured
from pubstorm.verdict.findings import Finding


def _faults(measured: Measured) -> Iterable[Finding]:
    for fault in measured.faults:
        lasted = "not mended"
        if fault.mended_at_s is not None:
            lasted = f"mended after {span_text(fault.mended_at_s - fault.at_s)}"
        facts = "; ".join((lasted, *fault.evidence))
        yield Finding(f"{fault.name} at {span_text(fault.at_s)}: {facts}")


FAULT_RULES = (_faults,)
