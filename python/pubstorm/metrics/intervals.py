"""The metrics in the intervals that agents report: the place of each, its name for other programs,
and its tag in the log of histograms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Literal

from pubstorm.contract.histogram import Histogram
from pubstorm.contract.snapshot import (
    AnswerCounters,
    Counters,
    EngineLoad,
    FlowCounters,
    FlowSnapshot,
    Gauges,
    PopulationSnapshot,
)
from pubstorm.contract.sums import AgentPart
from pubstorm.contract.value import Value
from pubstorm.metrics import METRICS
from pubstorm.metrics.metric import Kind, Metric

Part = Literal["population", "state", "flow", "agent", "engine"]
"""Part of an interval: counts or the state of a population, a flow, sums of an agent, or its own
load at the end."""
_PLACES: tuple[tuple[Part, str, type[Value]], ...] = (
    ("population", "counters.", Counters),
    ("population", "answers.", AnswerCounters),
    ("population", "", PopulationSnapshot),
    ("state", "", Gauges),
    ("flow", "counters.", FlowCounters),
    ("flow", "", FlowSnapshot),
)
_PLACES_OF_AGENTS: tuple[tuple[Part, str, type[Value]], ...] = (
    ("agent", "", AgentPart),
    ("engine", "", EngineLoad),
)


@dataclass(frozen=True)
class Reported:
    """A metric in the intervals of agents."""

    metric: Metric
    part: Part
    path: str
    """Place in the part."""

    @cached_property
    def name(self) -> str:
        """Name for other programs, by the conventions of Prometheus; the unit stands before
        `_total`."""
        name, own = self.metric.name, self.metric.export_name
        if self.metric.kind == "histogram":
            name = f"{name}_seconds"
        elif name.startswith("bytes_"):
            name = f"{name.removeprefix('bytes_')}_bytes_total"
        else:
            name = f"{name}_total"
        return f"pubstorm_{own or name}"

    @property
    def kind(self) -> Kind:
        """Kind for other programs, which the end of the name says."""
        if self.name.endswith("_total"):
            return "counter"
        return "histogram" if self.name.endswith("_seconds") else "gauge"

    @cached_property
    def read(self) -> Callable[[Value], int | Histogram]:
        """Returns the metric of a part of an interval."""
        return attrgetter(self.path)


def _reported(metric: Metric) -> Reported:
    is_total = metric.kind == "counter" and not metric.interval
    field = metric.interval or (f"{metric.name}_total" if is_total else metric.name)
    places = _PLACES_OF_AGENTS if "agent" in metric.of else _PLACES
    part, before = next((p, before) for p, before, model in places if field in model.model_fields)
    return Reported(metric, part, f"{before}{field}")


EXPORTED: tuple[Reported, ...] = tuple(_reported(metric) for metric in METRICS if metric.export)
"""The metrics that other programs get."""
LOGGED: tuple[Reported, ...] = tuple(_reported(metric) for metric in METRICS if metric.tag)
"""The histograms of the log."""
