"""Phases: the spans between the changes and faults of a publish stage, each judged by itself. It
judges nothing."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from pubstorm.result.measures import Latency, Rates
from pubstorm.value import Value


class PhaseStatus(StrEnum):
    """How the target took a phase."""

    HELD = "held"
    COLLAPSED = "collapsed"
    RECOVERED = "recovered"
    NEVER_RECOVERED = "never recovered"
    UNKNOWN = "unknown"


class PhasePopulation(Rates):
    """What a population did in the settled part of a phase."""

    latency_us: Latency = Latency()
    """From the intended send to the delivery."""
    ack_latency_us: Latency = Latency()
    """From the intended send to the acknowledgement."""


class Phase(Value):
    """A span of a publish stage in which the load was the same."""

    stage: str
    """Name of the stage."""
    name: str
    """Its own name: that of the stage, or of the change or fault that it begins with."""
    start_s: float
    """Its start, after that of the run."""
    duration_s: float
    """How long it took."""
    clients: int
    """Clients that were to publish."""
    due_per_s: float
    """Messages due a second."""
    sent_per_s: float
    """Messages sent."""
    acked_per_s: float
    """Messages acknowledged."""
    received_per_s: float
    """Messages received."""
    queue_growth_per_s: float
    """Messages a second by which those due and unsent, and those sent and unacknowledged, grew."""
    dropped_total: int | None = None
    """Messages that the broker says it dropped; null where it tells nothing."""
    latency_us: Latency = Latency()
    """From the intended send to the delivery, or to the acknowledgement where nobody receives."""
    populations: dict[str, PhasePopulation] = Field(default_factory=dict)
    """By population; shares each by themselves."""
    wholes: dict[str, PhasePopulation] = Field(default_factory=dict)
    """The sums of populations with shares."""
    status: PhaseStatus
    """How the target took it."""
    starved: bool = False
    """True if the load was not carried at its end, and the time in which the host gave engines no
    processor explains all that was missing. The status is `unknown`."""
    collapsed_at_s: float | None = None
    """When it collapsed, after the start of the run."""
    recovered_after_s: float | None = None
    """Time from the start of the phase, or from the collapse in it, until the load was carried
    again; null: it was not, or there was no collapse."""
    evidence: tuple[str, ...] = ()
    """The facts, each with its numerators."""


class ShortStage(Value):
    """A publish stage with too few intervals for a collapse to be seen."""

    stage: str
    """Name of the stage."""
    intervals: int
    """Intervals between snapshots that it has."""
    needed: int
    """Intervals that a phase needs."""
