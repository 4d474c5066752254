"""The figures of a stage that is over, for a check of the user between two stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pubstorm.contract.histogram import Histogram
from pubstorm.contract.snapshot import FlowSnapshot
from pubstorm.contract.sums import total
from pubstorm.play.context import RunContext

US_NS = 1000


@dataclass(frozen=True)
class PopulationFigures:
    """A population in one stage."""

    connected: int
    """Clients connected at the end of the stage."""
    connect_failed: int
    """Connection attempts that failed."""
    sent: int
    """Messages sent."""
    acked: int
    """Messages acknowledged."""
    skipped: int
    """Scheduled messages that were never sent."""
    expected: int
    """Expected deliveries."""
    received: int
    """Deliveries."""
    lost: int
    """Expected deliveries that did not come."""
    latency: Histogram
    """Latencies of deliveries from the scheduled instant."""
    ack_latency: Histogram
    """Latencies of acknowledgements from the scheduled instant."""

    def latency_us(self, percentile: float = 99) -> float | None:
        """Returns a percentile of the latency of deliveries, or of acknowledgements if there are
        no deliveries, in microseconds. None if nothing was measured."""
        found = self.latency if self.latency.count else self.ack_latency
        return found.quantile_ns(percentile / 100) / US_NS if found.count else None


@dataclass(frozen=True)
class StageFigures:
    """A stage that is over."""

    name: str
    number: int
    """Number of the stage, from 1."""
    kind: str
    """connect, publish, hold or disconnect."""
    duration_s: float
    """Duration of the stage, its drain included."""
    populations: Mapping[str, PopulationFigures]

    def __getitem__(self, population: str) -> PopulationFigures:
        return self.populations[population]


Check = Callable[[StageFigures], str | None]
"""Gets the figures of a stage. Returns the reason why the run ends there; None if it continues."""


def stage_figures(run: RunContext, index: int) -> StageFigures:
    """Returns the figures of a stage that is over."""
    stage, sums = run.plan.stages[index], run.recorder.sums
    span = run.recorder.run_log.spans[-1]
    latest, found = run.progress.latest_of_load, {}
    for number, population in enumerate(run.plan.populations):
        clients, flows = sums.population([number], [index]), sums.flows([index]).values()
        into = total(FlowSnapshot, (flow for flow in flows if flow.to == number))
        expected, received = into.counters.expected_total, into.counters.received_total
        found[population.name] = PopulationFigures(
            connected=sum(s.populations[number].gauges.connected for s in latest),
            connect_failed=clients.counters.connect_failed_total,
            sent=clients.counters.sent_total,
            acked=clients.counters.acked_total,
            skipped=clients.counters.skipped_total,
            expected=expected,
            received=received,
            lost=max(expected - received, 0),
            latency=into.latency_intended,
            ack_latency=clients.ack_intended,
        )
    duration_s = (span.to_ns - span.from_ns) / 1e9
    return StageFigures(stage.name, index + 1, stage.action.kind, duration_s, found)
