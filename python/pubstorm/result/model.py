"""The result as a whole: measurements, what happened, and the verdict. It neither measures nor
judges."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pubstorm.result.cells import Cell
from pubstorm.result.faults import FaultResult
from pubstorm.result.machinery import (
    BridgeResult,
    BrokerResult,
    Environment,
    FleetResult,
    Headroom,
    ServiceResult,
)
from pubstorm.result.monitors import (
    MonitorGap,
    MonitorProblem,
    Observer,
    ProfileResult,
    Residue,
    Watched,
)
from pubstorm.result.phases import Phase, ShortStage
from pubstorm.result.populations import FlowResult, PopulationResult, StageResult
from pubstorm.result.publishers import PublisherResult
from pubstorm.result.summary import (
    MemoryModel,
    Peaks,
    Problem,
    Sampler,
    StalledSubscriber,
    TargetResult,
)
from pubstorm.samples import Unit
from pubstorm.value import Value


class Status(StrEnum):
    """Whether the run answers its question."""

    PASS = "pass"
    FAIL = "fail"
    INVALID = "invalid"


class LimitedBy(StrEnum):
    """Who set the limit that the numbers show."""

    NONE = "none"
    GENERATOR = "generator"
    HOST = "host"
    TARGET = "target"
    BROKER = "broker"
    PUBLISHER = "publisher"
    WINDOW = "window"
    UNKNOWN = "unknown"


class ThresholdOutcome(Value):
    """A condition of the scenario, judged."""

    expression: str
    """The condition as written."""
    found: float | None
    """The value found, in its unit; null: no data."""
    unit: Unit = ""
    """Unit of the value."""
    bound: float = 0.0
    """The value is off by this much at most, since clocks of several hosts made it."""
    passed: bool
    """Whether the condition surely holds."""
    undecided: bool = False
    """Whether it may hold or not: the clocks of the agents are not good enough to say."""
    text: str
    """What was found, in words."""
    default: bool = False
    """True if Pubstorm added the condition, since the scenario has none about this figure."""

    @property
    def label(self) -> str:
        """The condition as reports show it."""
        return f"{self.expression} (default)" if self.default else self.expression

    @property
    def missed(self) -> bool:
        """Whether the condition surely does not hold."""
        return not self.passed and not self.undecided


class Verdict(Value):
    """What the numbers are worth, and what limited them."""

    headline: str = ""
    """The outcome in one sentence."""
    status: Status
    """pass; fail: a threshold or broker failed; invalid: the numbers tell nothing of the target."""
    limited_by: LimitedBy
    """Who set the limit."""
    evidence: tuple[str, ...]
    """The facts behind it, each with its numerators."""
    thresholds: tuple[ThresholdOutcome, ...]
    """The scenario's conditions, in order."""

    @property
    def facts(self) -> tuple[str, ...]:
        """The facts behind it, the one that decided it first: what makes a run invalid comes before
        the conditions that it missed, and these before what else was found."""
        missed = tuple(f"{t.label}: {t.text}" for t in self.thresholds if t.missed)
        if self.status is Status.INVALID:
            return (*self.evidence, *missed)
        return (*missed, *self.evidence)


class Event(Value):
    """Something that happened to the run, other than planned."""

    at_s: float
    """When, after the start of the run."""
    kind: Literal[
        "agent",
        "broker",
        "publisher",
        "restart",
        "interrupt",
        "target",
        "storage",
        "stage",
        "change",
        "fault",
        "bridge",
        "links",
        "monitor",
        "host",
        "memory",
        "residue",
        "scenario",
    ]
    """What it happened to."""
    text: str
    """What happened."""


class ValidityLimits(Value):
    """When the generator counts as saturated."""

    lateness_p99_us: float
    """Largest allowed p99 of the engine's lateness, in microseconds."""
    busy: float
    """Share of an interval above which a loop counts as busy."""


class Measured(Value):
    """Everything a run measured, before it is judged."""

    FORMAT: ClassVar[int] = 2

    format: Literal[2] = 2
    """Version of this format."""
    name: str
    """The scenario's name."""
    run_directory: str
    """Folder that the run was written to."""
    targets: tuple[str, ...]
    """Broker addresses."""
    started: str
    """Wall-clock start, ISO 8601 with offset."""
    ended: str
    """Wall-clock end."""
    duration_s: float
    """From the first stage to the end of the last."""
    interrupted: bool = False
    """Whether a signal ended the run early."""
    ended_early: bool = False
    """Whether the run ended before its last stage."""
    populations: dict[str, PopulationResult]
    """By name; shares each by themselves, as `device/short`."""
    wholes: dict[str, PopulationResult] = Field(default_factory=dict)
    """The sums of populations with shares, by name."""
    flows: tuple[FlowResult, ...]
    """Messages from population to population."""
    stages: tuple[StageResult, ...]
    """In the order played."""
    samplers: tuple[Sampler, ...] = ()
    """What became of everything that the clients did, by population and QoS."""
    problems: tuple[Problem, ...] = ()
    """What ended otherwise than hoped, by kind."""
    stalls: tuple[StalledSubscriber, ...] = ()
    """Subscribers that got nothing though messages were due to them, the earliest."""
    peaks: Peaks = Peaks()
    """The largest sums over all populations."""
    balance: tuple[TargetResult, ...] = ()
    """The connections of each target, of names that have several."""
    memory: tuple[MemoryModel, ...] = ()
    """Memory by connections."""
    fleet: FleetResult
    """The load generator."""
    brokers: tuple[BrokerResult, ...] = ()
    """Brokers that the run started."""
    publishers: tuple[PublisherResult, ...] = ()
    """Publishers that the run started, each a process under test."""
    services: tuple[ServiceResult, ...] = ()
    """Services that the run started beside its brokers."""
    bridges: tuple[BridgeResult, ...] = ()
    """Bridges between brokers."""
    faults: tuple[FaultResult, ...] = ()
    """What was broken on purpose, in the order of time."""
    phases: tuple[Phase, ...] = ()
    """Spans of publish stages that have changes or faults."""
    short_stages: tuple[ShortStage, ...] = ()
    """Publish stages with too few intervals for a phase: no collapse was looked for in them."""
    monitors: tuple[Watched, ...] = ()
    """What was watched beside the clients."""
    observers: tuple[Observer, ...] = ()
    """Clients that only watch."""
    monitor_problems: tuple[MonitorProblem, ...] = ()
    """What could not be watched."""
    monitor_gaps: tuple[MonitorGap, ...] = ()
    """Times in which no monitor was read, since the controller did not run."""
    profile: ProfileResult | None = None
    """`perf record` of a broker; null: it was not asked for."""
    residue: tuple[Residue, ...] = ()
    """What was found on the broker before the run, and what the run left and removed."""
    headroom: Headroom | None = None
    """The generator's load against what `pubstorm calibrate` found; null: it was not calibrated."""
    table: dict[str, Cell] = Field(default_factory=dict)
    """The scenario's own table, by heading."""
    command: str = ""
    """The command line of the run."""
    events: tuple[Event, ...] = ()
    """What happened other than planned, in order."""
    validity: ValidityLimits
    """When the generator counts as saturated."""
    environment: Environment
    """The machine and the programs."""


class Result(Measured):
    """A judged run."""

    verdict: Annotated[Verdict, Field(description="What the numbers are worth.")]

    @classmethod
    def judged(cls, measured: Measured, verdict: Verdict) -> Result:
        """The measurements with their verdict."""
        fields = {name: getattr(measured, name) for name in Measured.model_fields}
        return cls(**fields, verdict=verdict)

    def to_json(self) -> str:
        """The text of `result.json`, verdict first."""
        fields = self.model_dump(mode="json")
        return _to_pretty_json({"verdict": fields.pop("verdict"), **fields}) + "\n"


def _is_statistics(value: dict[str, object]) -> bool:
    numbers = all(isinstance(v, int | float | None) for v in value.values())
    return len(value) <= STATISTICS_MAX and numbers


def _to_pretty_json(value: object, indent: str = "") -> str:
    """JSON with one key a line, and histogram buckets and short statistics in one line."""
    if isinstance(value, dict) and value and not _is_statistics(value):
        inner = indent + "  "
        parts = (f"{inner}{json.dumps(k)}: {_to_pretty_json(v, inner)}" for k, v in value.items())
        return "{\n" + ",\n".join(parts) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(item, dict | str) for item in value):
        inner = indent + "  "
        parts = (inner + _to_pretty_json(item, inner) for item in value)
        return "[\n" + ",\n".join(parts) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False)


STATISTICS_MAX = 7
"""Figures that are written on one line."""
