"""The result as a whole: measurements, events and the verdict."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pubstorm.contract import TARGET_BROKER, U64, Instant, Moment, Number, Value, split_member
from pubstorm.quantities import SLOPES, Unit
from pubstorm.result.interval import Cell
from pubstorm.result.machinery import (
    BridgeResult,
    BrokerResult,
    Environment,
    FleetResult,
    Headroom,
    MonitorGap,
    MonitorProblem,
    ObserverTraffic,
    ProfileResult,
    PublisherResult,
    ServiceResult,
    StaleState,
    Watched,
)
from pubstorm.result.measures import FlowResult, PopulationResult, StageResult
from pubstorm.result.phases import FaultResult, Phase, ShortStage
from pubstorm.result.summary import (
    AddressResult,
    MemoryModel,
    Peaks,
    Problem,
    Sampler,
    StalledSubscriber,
    TargetResult,
)


class Status(StrEnum):
    """Outcome of a run or a search. Only a search is open: this host or the load generator ended
    it, or kept its answer from being played again."""

    PASS = "pass"
    FAIL = "fail"
    OPEN = "open"
    INVALID = "invalid"


class LimitedBy(StrEnum):
    """Component that set the limit."""

    NONE = "none"
    GENERATOR = "generator"
    HOST = "host"
    TARGET = "target"
    BROKER = "broker"
    PUBLISHER = "publisher"
    NETWORK = "network"
    LINK = "link"
    SERVICE = "service"
    WINDOW = "window"
    SCENARIO = "scenario"
    UNKNOWN = "unknown"


class ThresholdOutcome(Value):
    """A threshold of the scenario, evaluated."""

    expression: str
    """The threshold as written."""
    figure: str = ""
    """Figure as written, such as `device.latency.p99`."""
    metric: str = ""
    """The metric of the figure, such as `latency`."""
    limit: Number = 0.0
    """The value that the figure is compared with, in the unit."""
    found: Number | None
    """The value found, in the unit; null: no data."""
    unit: Unit = ""
    """Unit of both values."""
    bound: Number = 0.0
    """Largest error of the value, since clocks of several hosts made it; of a slope, half the width
    of its interval."""
    passed: bool
    """True if the threshold certainly passes."""
    undecided: bool = False
    """True if the clocks of the agents are too inexact to decide, if the limit lies in the interval
    of a slope, or if the value from the actual send decides otherwise."""
    from_send: Number | None = None
    """The value from the actual send, of a latency of which the generator made more than a fifth
    and more than 1 ms; null for other values."""
    text: str
    """The value found, in words."""
    default: bool = False
    """True if Pubstorm added the threshold, since the scenario has none about this figure."""

    @property
    def is_slope(self) -> bool:
        """True for a slope over time."""
        return self.unit in SLOPES.values()

    @property
    def label(self) -> str:
        """The threshold as reports show it."""
        return f"{self.expression} (default)" if self.default else self.expression

    @property
    def missed(self) -> bool:
        """True if the threshold certainly fails."""
        return not self.passed and not self.undecided


class Verdict(Value):
    """The outcome of a run with its evidence."""

    headline: str = ""
    """The outcome in one sentence."""
    status: Status
    """pass; fail: a threshold or broker failed; invalid: the figures are no evidence about the
    target."""
    limited_by: LimitedBy
    """Component that set the limit."""
    evidence: tuple[str, ...]
    """The facts behind it, each with its numerators."""
    thresholds: tuple[ThresholdOutcome, ...]
    """The scenario's conditions, in order."""

    def unstored(self, reason: str) -> Verdict:
        """Returns the verdict on a run that is not stored: nothing can show its figures later."""
        text = f"the run is not stored: {reason}"
        return self.model_copy(
            update={
                "headline": f"Invalid: {text}.",
                "status": Status.INVALID,
                "evidence": (text, *self.evidence),
            }
        )

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

    at_s: Instant
    """Time after the start of the run."""
    kind: Literal[
        "agent",
        "failure",
        "broker",
        "publisher",
        "service",
        "restart",
        "interrupt",
        "target",
        "storage",
        "resolution",
        "summary",
        "stage",
        "change",
        "fault",
        "outage",
        "bridge",
        "links",
        "monitor",
        "host",
        "memory",
        "stale_state",
        "scenario",
        "check",
        "export",
        "by_hand",
    ]
    """Subject of the event."""
    text: str
    """Description of the event."""


class ValidityLimits(Value):
    """Limits above which the generator counts as saturated."""

    lateness_p99_us: Number
    """Largest allowed p99 of the lateness of agents, in microseconds."""
    busy: Number
    """Share of an interval above which a loop counts as busy."""


class Measured(Value):
    """Measurements of a run, before they are evaluated."""

    FORMAT: ClassVar[int] = 4

    format: Literal[4] = 4
    """Version of this format."""
    name: str
    """The scenario's name."""
    run_directory: str
    """Folder that the run was written to."""
    targets: tuple[str, ...]
    """Broker addresses."""
    target_names: tuple[str, ...] = ()
    """Names of the first targets, which the run did not start, as monitors call them. Empty: they
    are `broker-0` and so on."""
    started: Moment
    """Wall-clock start, ISO 8601 with offset."""
    started_unix_ns: U64 = 0
    """Start of the first stage on the wall clock, in nanoseconds of Unix time: every `at_s` counts
    from it. 0: it is not known."""
    started_monotonic_ns: U64 = 0
    """The same instant on the clock of `snapshots.jsonl`, in nanoseconds."""
    ended: Moment
    """Wall-clock end."""
    duration_s: Number
    """Time from the first stage to the end of the last."""
    interrupted: bool = False
    """True if a signal ended the run early."""
    ended_early: bool = False
    """True if the run ended before its last stage."""
    populations: dict[str, PopulationResult]
    """Populations by name; each share apart, as `device/short`."""
    wholes: dict[str, PopulationResult] = Field(default_factory=dict)
    """The sums of populations with shares, by name."""
    flows: tuple[FlowResult, ...]
    """Messages from population to population."""
    stages: tuple[StageResult, ...]
    """Stages in the order played."""
    samplers: tuple[Sampler, ...] = ()
    """Outcomes of all actions of the clients, by population and QoS."""
    problems: tuple[Problem, ...] = ()
    """Counted failures, by kind."""
    stalls: tuple[StalledSubscriber, ...] = ()
    """Subscribers that got nothing though messages were due to them, the earliest."""
    peaks: Peaks = Peaks()
    """The largest sums over all populations."""
    balance: tuple[TargetResult, ...] = ()
    """The connections of each target, of names that have several."""
    addresses: tuple[AddressResult, ...] = ()
    """Attempts to connect to each address of targets that are names, at most 16 addresses each and
    the sum of the others."""
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
    """Faults in the order of time."""
    phases: tuple[Phase, ...] = ()
    """Spans of publish stages that have changes or faults."""
    short_stages: tuple[ShortStage, ...] = ()
    """Publish stages with too few intervals for a phase: no collapse was looked for in them."""
    monitors: tuple[Watched, ...] = ()
    """Figures of the monitors."""
    observers: tuple[ObserverTraffic, ...] = ()
    """Clients that only watch."""
    monitor_problems: tuple[MonitorProblem, ...] = ()
    """Monitors that failed."""
    monitor_gaps: tuple[MonitorGap, ...] = ()
    """Times in which no monitor was read, since the controller did not run."""
    profile: ProfileResult | None = None
    """`perf record` of a broker; null: it was not asked for."""
    stale_state: tuple[StaleState, ...] = ()
    """Stale state found before the run, and state that the run left and removed."""
    headroom: Headroom | None = None
    """The generator's load against what `pubstorm calibrate` found; null: it was not calibrated."""
    table: dict[str, Cell] = Field(default_factory=dict)
    """The scenario's own table, by heading."""
    command: str = ""
    """The command line of the run."""
    events: tuple[Event, ...] = ()
    """Unplanned events in the order of time."""
    validity: ValidityLimits
    """Limits above which the generator counts as saturated."""
    environment: Environment
    """The machine and the programs."""

    @property
    def given_targets(self) -> dict[str, str]:
        """Addresses of the targets that the run did not start, by name. Those that it started
        follow them in `targets`."""
        given = self.targets[: len(self.targets) - len(self.brokers) - len(self.publishers)]
        numbered = (f"{TARGET_BROKER}-{number}" for number, _ in enumerate(given))
        return dict(zip(self.target_names or numbered, given, strict=False))

    @property
    def shown_targets(self) -> tuple[str, ...]:
        """The targets in words: names that a scenario gave them, and addresses."""
        given = self.given_targets
        words = (
            address if split_member(name)[0] == TARGET_BROKER else f"{name} ({address})"
            for name, address in given.items()
        )
        return (*words, *self.targets[len(given) :])

    @property
    def changed_by_hand(self) -> bool:
        """True if a user changed the load, broke something or ended a stage during the run."""
        return any(event.kind == "by_hand" for event in self.events)


class RunResult(Measured):
    """A run with its verdict."""

    verdict: Annotated[Verdict, Field(description="What the numbers are worth.")]

    @classmethod
    def of(cls, measured: Measured, verdict: Verdict) -> RunResult:
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
