"""Phases and faults. A phase is a span between the changes and faults of a publish stage."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from pubstorm.contract import Number, Value
from pubstorm.contract.histogram import Histogram
from pubstorm.quantities import span_text
from pubstorm.result.measures import Latency, Rates


class PhaseStatus(StrEnum):
    """Outcome of a phase."""

    HELD = "held"
    COLLAPSED = "collapsed"
    RECOVERED = "recovered"
    NEVER_RECOVERED = "never recovered"
    UNKNOWN = "unknown"


class PhasePopulation(Rates):
    """Figures of a population in the settled part of a phase."""

    latency_us: Latency = Latency()
    """Latency from the scheduled instant to the delivery."""
    ack_latency_us: Latency = Latency()
    """Latency from the scheduled instant to the acknowledgement."""
    time_histograms_ns: dict[str, Histogram] = Field(default_factory=dict)
    """The distributions behind both, by the names of stages: `latency_us.intended` and
    `ack_latency_us.intended`; empty ones are left out."""


class Phase(Value):
    """A span of a publish stage in which the load was the same."""

    stage: str
    """Name of the stage."""
    name: str
    """Name of the stage, or of the change or fault that begins the phase."""
    start_s: Number
    """Start, after that of the run."""
    duration_s: Number
    """Duration of the phase."""
    clients: int
    """Clients that were to publish."""
    due_per_s: Number
    """Messages due a second."""
    sent_per_s: Number
    """Messages sent."""
    acked_per_s: Number
    """Messages acknowledged."""
    received_per_s: Number
    """Messages received."""
    queue_growth_per_s: Number
    """Messages a second by which those due and unsent, and those sent and unacknowledged, grew."""
    dropped_total: int | None = None
    """Dropped messages, as the broker reports them; null if it reports none."""
    latency_us: Latency = Latency()
    """Latency from the scheduled instant to the delivery; to the acknowledgement if there are no
    receivers."""
    populations: dict[str, PhasePopulation] = Field(default_factory=dict)
    """Figures by population; each share apart."""
    wholes: dict[str, PhasePopulation] = Field(default_factory=dict)
    """The sums of populations with shares."""
    status: PhaseStatus
    """Outcome of the phase."""
    starved: bool = False
    """True if the load was not carried at its end, and the time in which the host gave agents no
    processor explains all that was missing. The status is `unknown`."""
    collapsed_at_s: Number | None = None
    """Time of the collapse, after the start of the run."""
    recovered_after_s: Number | None = None
    """Time from the start of the phase, or from the collapse in it, until the load was carried
    again; null: it was not, or there was no collapse."""
    evidence: tuple[str, ...] = ()
    """The facts, each with its numerators."""

    def times(self, again: str) -> str:
        """Returns when it collapsed and how long its recovery took, to follow a status. `again`
        are the words for the recovery of a phase that collapsed."""
        text = ""
        if self.collapsed_at_s is not None:
            text += f" at {span_text(self.collapsed_at_s)}"
        if self.recovered_after_s is not None:
            recovered = again if self.status is PhaseStatus.COLLAPSED else ""
            text += f"{recovered} after {span_text(self.recovered_after_s)}"
        if self.status is PhaseStatus.NEVER_RECOVERED:
            text += f" in {span_text(self.duration_s)}"
        return text


class ShortStage(Value):
    """A publish stage with too few intervals for a collapse to be seen."""

    stage: str
    """Name of the stage."""
    intervals: int
    """Intervals between snapshots that it has."""
    needed: int
    """Intervals that a phase needs."""


class Recovery(Value):
    """Connections before and after a fault. Times are seconds after the repair; null: not before
    the end of the stage."""

    before: int
    """Connected when the fault began."""
    lowest: int
    """Connected at the worst moment."""
    first_s: Number | None = None
    """Time until the first lost one was back."""
    most_s: Number | None = None
    """Time until 99 % of those before the fault were back."""
    all_s: Number | None = None
    """Time until all were back."""


class FaultResult(Value):
    """Something that was broken on purpose."""

    stage: str
    """Name of the stage."""
    name: str
    """Name of the phase that begins with it."""
    kind: Literal["stop", "kill", "freeze", "rotate", "cut", "delay", "command"]
    """Kind of the fault."""
    victims: tuple[str, ...]
    """Names of the brokers or bridges that it hit; none for a command."""
    command: str | None = None
    """Line that a shell ran; null: the run made the fault itself."""
    failed: str | None = None
    """Why it could not be made, such as a command that failed or brokers that were gone already;
    null: it was made, at least in part."""
    at_s: Number
    """Start of the fault, after the start of the run."""
    repaired_at_s: Number | None
    """Time of the repair: brokers accept connections again, bridges may connect; null: never."""
    clients: Recovery | None = None
    """Clients of the load; null: none was lost."""
    bridges: Recovery | None = None
    """Bridges; null: there are none, or none was lost."""
    backlog_peak: int | None = None
    """Most messages that were due and not yet received or acknowledged; null: nothing was due."""
    drained_s: Number | None = None
    """Time from the repair until the brokers carried the load again and the backlog was gone;
    null if that took longer than the stage."""
    evidence: tuple[str, ...] = ()
    """The facts, each with its numerators."""
