"""What a run found, as it is stored in `result.json`: measurements, environment and verdict.
Durations of messages are in microseconds, spans in seconds; counters end in `_total`. It is a
value: it neither measures nor judges."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from pubstorm.histogram import Histogram
from pubstorm.snapshot import Counters, FlowCounters, Reason


class ResultModel(BaseModel):
    """A frozen value that refuses unknown keys."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        json_schema_serialization_defaults_required=True,
    )


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
    WINDOW = "window"
    UNKNOWN = "unknown"


class ThresholdOutcome(ResultModel):
    """A condition of the scenario, judged."""

    expression: str
    """The condition as written."""
    found: float | None
    """The value found, in the unit of the result (microseconds for times); null: no data."""
    passed: bool
    """Whether the condition holds."""
    text: str
    """What was found, in words."""


class Verdict(ResultModel):
    """What the numbers are worth, and what limited them."""

    status: Status
    """pass; fail: a threshold or broker failed; invalid: the numbers tell nothing of the target."""
    limited_by: LimitedBy
    """Who set the limit."""
    evidence: tuple[str, ...]
    """The facts behind it, each with its numerators."""
    thresholds: tuple[ThresholdOutcome, ...]
    """The scenario's conditions, in order."""


class Latency(ResultModel):
    """A distribution of durations in microseconds; zeros when it is empty."""

    count: int = 0
    """Durations counted, without the negative ones."""
    mean: float = 0.0
    """Arithmetic mean."""
    min: float = 0.0
    """The smallest."""
    p50: float = 0.0
    """Half of the durations are not longer."""
    p90: float = 0.0
    """90 % of the durations are not longer."""
    p99: float = 0.0
    """99 % of the durations are not longer."""
    p999: float = 0.0
    """99.9 % of the durations are not longer."""
    max: float = 0.0
    """The largest."""
    negative_total: int = 0
    """Negative durations, which only wrong clocks make; they are in none of the other figures."""

    @classmethod
    def of(cls, histogram: Histogram) -> Latency:
        """The summary of a histogram."""
        us_p50, us_p90, us_p99, us_p999 = (
            histogram.quantile_ns(q) / 1000 for q in (0.5, 0.9, 0.99, 0.999)
        )
        return cls(
            count=histogram.count,
            mean=round(histogram.mean_ns() / 1000, 3),
            min=histogram.min_ns / 1000,
            p50=us_p50,
            p90=us_p90,
            p99=us_p99,
            p999=us_p999,
            max=histogram.max_ns / 1000,
            negative_total=histogram.negative_total,
        )


class LatencyPair(ResultModel):
    """The two latencies of a message."""

    intended: Latency = Latency()
    """From the instant it was due."""
    actual: Latency = Latency()
    """From the instant it was handed to the socket."""


class HistogramPair(ResultModel):
    """The full distributions behind a pair of latencies, in nanoseconds."""

    intended: Histogram = Histogram()
    """From the instant a message was due."""
    actual: Histogram = Histogram()
    """From the instant it was handed to the socket."""

    def latency_us(self) -> LatencyPair:
        """Both summaries."""
        return LatencyPair(intended=Latency.of(self.intended), actual=Latency.of(self.actual))


class Rates(ResultModel):
    """Rates over the steady windows: the intervals that lie wholly in a publish stage's time."""

    sent_per_s: float = 0.0
    """Messages sent."""
    acked_per_s: float = 0.0
    """Messages acknowledged."""
    received_per_s: float = 0.0
    """Messages received."""


class PopulationResult(Counters):
    """What the clients of a population did and saw in the whole run."""

    clients: int
    """Clients planned."""
    connected_max: int = 0
    """Most clients connected at once."""
    ready_max: int = 0
    """Most clients at once that were connected with every filter answered."""
    in_flight_max: int = 0
    """Most messages at once sent and not acknowledged."""
    in_flight: int = 0
    """Messages sent and not acknowledged when the last publish stage ended."""
    backlog: int = 0
    """Messages due and not sent when the last publish stage ended."""
    closed_loop_window: int | None = None
    """Window of its closed-loop publications of QoS 1 and 2, the smallest; null: there is none."""
    closed_loop: bool = False
    """Whether any of its publications is closed loop."""
    expected_total: int = 0
    """Deliveries owed to its clients."""
    received_total: int = 0
    """Deliveries seen, each message once for each receiver."""
    lost_total: int = 0
    """Deliveries owed and not seen."""
    duplicate_total: int = 0
    """Deliveries of a message that the receiver already had."""
    reordered_total: int = 0
    """Deliveries after a later message of the same stream."""
    stale_total: int = 0
    """Deliveries too far behind their stream to be told from duplicates."""
    outcomes: dict[Reason, int] = Field(default_factory=dict)
    """What ended otherwise than hoped, by reason."""
    rates: Rates = Rates()
    """Over the steady windows."""
    latency_us: LatencyPair = LatencyPair()
    """From send to delivery, of all that its clients received."""
    ack_latency_us: LatencyPair = LatencyPair()
    """From send to acknowledgement, of what its clients sent with QoS 1 and 2."""
    connect_time_us: Latency = Latency()
    """From the start of TCP to CONNACK."""
    ack_histogram_ns: HistogramPair = HistogramPair()
    """The distributions behind `ack_latency_us`."""


class FlowResult(FlowCounters):
    """The ledger of the messages from one population to another."""

    source: str
    """The publishing population."""
    to: str
    """The receiving population."""
    lost_total: int
    """Deliveries owed and not seen."""
    surplus_total: int
    """Deliveries seen beyond those owed, which only a ledger cut short makes."""
    latency_us: LatencyPair
    """From send to delivery."""
    histogram_ns: HistogramPair
    """The distributions behind `latency_us`."""


class StagePopulation(Rates):
    """What a population did in one stage."""

    connected_total: int
    """Connections accepted."""
    connect_failed_total: int
    """Attempts that failed."""
    disconnected_total: int
    """Connections lost."""
    sent_total: int
    """Messages sent."""
    acked_total: int
    """Messages acknowledged."""
    skipped_total: int
    """Messages due and not sent."""
    received_total: int
    """Messages received."""
    expected_total: int
    """Messages owed."""


class StageResult(ResultModel):
    """A stage as it was played."""

    name: str
    """Its name in the scenario."""
    kind: Literal["connect", "publish", "hold", "disconnect"]
    """What it does."""
    start_s: float
    """Its start, after that of the run."""
    duration_s: float
    """How long it took, with drain."""
    steady_s: float
    """Length of the window that its rates are taken over; 0 where there is none."""
    settled: bool
    """Whether every agent had done all that it could."""
    populations: dict[str, StagePopulation]
    """By population."""


class AgentResult(ResultModel):
    """One engine process."""

    agent: int
    """Index of its shard."""
    version: str
    """Version of the engine."""
    pid: int
    """Process id."""
    descriptors: int
    """Its limit of open descriptors."""
    clients: int
    """Clients that it played."""
    snapshots: int
    """Snapshots that came from it."""
    cpu_s: float
    """CPU time that it used."""
    rss_max_bytes: int
    """Its largest resident memory."""
    busy_share: float
    """Share of the publishing time that its loop was not waiting."""
    ending: str
    """How it ended: `bye`, or what happened to it."""


class FleetResult(ResultModel):
    """The load generator itself: the ground of the validity verdict."""

    agents: tuple[AgentResult, ...] = ()
    """One entry for each engine process."""
    lateness_us: Latency = Latency()
    """In publish stages: how late messages were written that nothing but the engine held up."""
    blocked_us: Latency = Latency()
    """In publish stages: how late messages were written that window, socket or a lost connection
    held up."""
    load_intervals_total: int = 0
    """Intervals of agents that lie wholly in publishing time."""
    busy_intervals_total: int = 0
    """Those of them in which the loop was busier than `validity.busy` allows."""
    ledger_pairs: int = 0
    """(Stream, receiver) pairs that the ledger follows."""
    unfollowed_total: int = 0
    """Deliveries outside the ledger's bound: counted, but not checked for order and duplicates."""


class BrokerResult(ResultModel):
    """A broker that the run started."""

    name: str
    """Its name: that in the scenario and a number."""
    kind: str
    """embedded or mosquitto."""
    version: str
    """Version that it states."""
    host: str
    """Address that it listens on."""
    port: int
    """Port that it listens on."""
    pid: int
    """Process id."""
    died: bool
    """Whether it ended before it was told to."""


class Event(ResultModel):
    """Something that happened to the run, other than planned."""

    at_s: float
    """When, after the start of the run."""
    kind: Literal["agent", "broker", "interrupt", "target", "storage", "stage"]
    """What it happened to."""
    text: str
    """What happened."""


class BrokerVersion(ResultModel):
    """A broker binary that the run used."""

    kind: str
    """embedded or mosquitto."""
    version: str
    """Version that it states."""


class Environment(ResultModel):
    """The machine and the programs of a run."""

    host: str
    """Name of the machine."""
    kernel: str
    """Operating system and kernel."""
    machine: str
    """Architecture."""
    cpu_model: str
    """Model of the processor."""
    cores: int
    """Processors that this process may use."""
    memory_bytes: int
    """Memory of the machine."""
    python: str
    """Version of Python."""
    pubstorm: str
    """Version of Pubstorm."""
    engine: str
    """Version of the engine; empty if none said hello."""
    descriptors_soft: int
    """Limit of open descriptors, soft."""
    descriptors_hard: int
    """Limit of open descriptors, hard."""
    sysctls: dict[str, str]
    """Kernel settings that load depends on; those that cannot be read are left out."""
    git_commit: str | None
    """Commit of the folder the run was started in."""
    brokers: tuple[BrokerVersion, ...]
    """Brokers that the run started."""


class ValidityLimits(ResultModel):
    """When the generator counts as saturated."""

    lateness_p99_us: float
    """Largest allowed p99 of the engine's lateness, in microseconds."""
    busy: float
    """Share of an interval above which a loop counts as busy."""


class Measured(ResultModel):
    """Everything a run measured, before it is judged."""

    FORMAT: ClassVar[int] = 1

    format: Literal[1] = 1
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
    """By name."""
    flows: tuple[FlowResult, ...]
    """Messages from population to population."""
    stages: tuple[StageResult, ...]
    """In the order played."""
    fleet: FleetResult
    """The load generator."""
    brokers: tuple[BrokerResult, ...] = ()
    """Brokers that the run started."""
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


def _to_pretty_json(value: object, indent: str = "") -> str:
    """JSON with one key a line, and histogram buckets in one line."""
    if isinstance(value, dict) and value:
        inner = indent + "  "
        parts = (f"{inner}{json.dumps(k)}: {_to_pretty_json(v, inner)}" for k, v in value.items())
        return "{\n" + ",\n".join(parts) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(item, dict | str) for item in value):
        inner = indent + "  "
        parts = (inner + _to_pretty_json(item, inner) for item in value)
        return "[\n" + ",\n".join(parts) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False)
