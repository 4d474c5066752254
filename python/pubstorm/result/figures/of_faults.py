"""Figures of faults. They have a fault as their span and no subject."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pubstorm.quantities import UnfitError
from pubstorm.result import FaultResult, Measured
from pubstorm.result.figures.metric import NOTHING_MEASURED, Asked, Found, Metric, Missing

BACK_STATISTICS: Mapping[str, str] = {
    "first": "Until the first of the lost ones was back.",
    "most": "Until 99 % of those before the fault were connected again.",
    "all": "Until all of them were connected again.",
}
_BACK = tuple(BACK_STATISTICS)


@dataclass(frozen=True)
class FaultMetric(Metric):
    """A figure of faults."""

    def check(self, asked: Asked) -> None:
        """Raises UnfitError unless the expression names a fault and a statistic of the figure."""
        name = asked.metric
        if asked.span is None:
            hint = "for example clients_back.most@kill cloud"
            raise UnfitError(name, f"is {name}@FAULT, the name of a fault", hint)
        super().check(asked)

    def read(self, measured: Measured, asked: Asked) -> Found | Missing:
        """Returns the figure of the fault that the span names. If nothing was lost, it was back at
        once."""
        fault = next((f for f in measured.faults if f.name == asked.span), None)
        if fault is None:
            return Missing(f"{asked.span} did not happen")
        if fault.failed is not None:
            return Missing(f"{asked.span} failed: {fault.failed}")
        noun, _, what = asked.metric.partition("_")
        if noun == "bridges" and all(bridge.up is None for bridge in measured.bridges):
            return Missing("no bridges were counted")
        if noun in {"clients", "bridges"}:
            found = self._recovery(fault, noun, asked.statistic if what == "back" else None)
        else:
            found = self._backlog(fault, asked.metric)
        return found if isinstance(found, Missing) else Found(found, self.unit or "")

    def _recovery(self, fault: FaultResult, noun: str, statistic: str | None) -> float | Missing:
        found = fault.clients if noun == "clients" else fault.bridges
        if found is None:
            return 0.0
        if statistic is None:
            return float(found.before - found.lowest)
        back_s: float | None = getattr(found, f"{statistic}_s")
        late = Missing(f"{noun} were not back before stage {fault.stage} ended")
        return late if back_s is None else back_s

    def _backlog(self, fault: FaultResult, metric: str) -> float | Missing:
        if fault.backlog_peak is None:
            return Missing(NOTHING_MEASURED)
        if metric == "backlog_peak":
            return float(fault.backlog_peak)
        late = Missing(f"the backlog was not gone before stage {fault.stage} ended")
        return late if fault.drained_s is None else fault.drained_s


FAULT_METRICS: Mapping[str, FaultMetric] = {
    "clients_lost": FaultMetric("", "Clients connected before the fault, less the lowest number."),
    "clients_back": FaultMetric("s", "Time from the repair until clients were back.", _BACK),
    "bridges_lost": FaultMetric("", "Bridges up before the fault, less the lowest number."),
    "bridges_back": FaultMetric("s", "Time from the repair until bridges were back.", _BACK),
    "backlog_peak": FaultMetric(
        "", "Largest number of messages scheduled and not yet received or acknowledged."
    ),
    "drained": FaultMetric("s", "Time from the repair until the backlog was gone."),
}
