"""The machinery of a run: agents, brokers, publishers, services, bridges, the machine and its
programs, with the figures of their monitors over the whole run, its stages and its phases.
`samples.csv` has the readings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import (
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from pubstorm.contract import Number, SourceKind, Value
from pubstorm.contract.histogram import Histogram
from pubstorm.metrics.metric import READING_STATISTICS
from pubstorm.quantities import span_text
from pubstorm.result.measures import Latency

MAX_BUSY_INTERVALS_SHARE = 0.1
"""Share of the intervals under full load in which a loop may be busier than allowed."""

MIN_LATE = 10
"""Late messages from which the generator was late."""


def too_busy(busy: int, intervals: int) -> bool:
    """Returns whether loops were busy in too many intervals. One of several is chance."""
    return busy > MAX_BUSY_INTERVALS_SHARE * intervals and (busy > 1 or intervals < 3)


def is_late(lateness: Latency, late: int, allowed_us: float) -> bool:
    """Returns True if too many messages were late. One of sixty is the 99th percentile, and chance:
    it takes MIN_LATE late ones, or most of all messages."""
    enough = late >= MIN_LATE or 2 * late > lateness.count
    return lateness.count > 0 and lateness.p99 > allowed_us and enough


class ClockResult(Value):
    """Error of an agent's time against the reference clock of the controller's host."""

    offset_us: Number
    """Offset added to its host's clock at the end, in microseconds."""
    drift_ppm: Number
    """Rate of the reference clock above that of its host at the end, in parts per million."""
    bound_us: Number
    """Largest error of its time in publish stages, in microseconds; in all stages if none
    published."""
    round_trip_us: Number
    """Shortest round trip of its exchanges, in microseconds."""
    exchanges_total: int
    """Exchanges that were answered."""
    unanswered_s: Number = 0.0
    """Longest time between two of its reports in which none was, in seconds."""


class FailureResult(Value):
    """An agent that failed in a run that continued."""

    agent: int
    """Index of its shard."""
    at_s: Number
    """Time after the start of the run."""
    clients: int
    """Clients that it played."""
    text: str
    """Description of the failure, with the host."""
    replaced_on: str | None = None
    """Host of the replacement, empty for the controller's; null without a replacement."""
    rejoined_after_s: Number | None = None
    """Time from the failure until the replacement began to rejoin, in seconds."""


class AgentResult(Value):
    """One agent."""

    agent: int
    """Index of its shard."""
    version: str
    """Version of the engine."""
    pid: int
    """Process id."""
    descriptors: int
    """Limit of open descriptors."""
    clients: int
    """Clients that it played."""
    snapshots: int
    """Snapshots that came from it."""
    connect_failed_total: int = 0
    """Connection attempts of its clients that failed."""
    sent_total: int = 0
    """Messages that its clients sent."""
    acked_total: int = 0
    """Messages of its clients that were acknowledged."""
    abandoned_total: int = 0
    """Messages of its clients that were given up with their session."""
    skipped_total: int = 0
    """Messages of its clients that were due and not sent."""
    expected_total: int = 0
    """Deliveries expected of the messages that its clients sent, also to clients of other agents.
    Deliveries that are excluded from loss count at the agent that received them."""
    received_total: int = 0
    """Deliveries to its clients, also of messages that other agents sent."""
    cpu_s: Number
    """CPU time that it used."""
    run_delay_s: Number | None = None
    """Time in which its loop could run and had no processor; null: the kernel does not count it."""
    rss_max_bytes: int
    """Largest resident memory."""
    busy_share: Number
    """Share of the publishing time that its loop was not waiting."""
    ending: str
    """Ending: `bye`, or a description."""
    host: str = ""
    """Address of its host; empty: the one that the run was started on."""
    clock: ClockResult | None = None
    """Error of its time; null if its host has the reference clock."""


class FleetResult(Value):
    """The load generator itself, which decides about validity."""

    on: str = "local"
    """Site: local, ray, or ray:// and an address."""
    agents: tuple[AgentResult, ...] = ()
    """One entry for each agent."""
    failures: tuple[FailureResult, ...] = ()
    """Agents that failed in a run that continued, in the order of time."""
    clock_bound_us: Number = 0.0
    """Delivery times between hosts are off by this much at most, in microseconds: the two largest
    bounds of agents together; 0: one clock made them."""
    lateness_us: Latency = Latency()
    """Lateness in publish stages of messages that only the agent held up."""
    blocked_us: Latency = Latency()
    """Lateness in publish stages of messages that window, socket or a lost connection held up."""
    load_intervals_total: int = 0
    """Intervals of agents that lie wholly in publishing time."""
    busy_intervals_total: int = 0
    """Intervals in which the loop was busier than `validity.busy` allows."""
    starved_intervals_total: int = 0
    """Intervals of agents in publish stages in which the host gave the agent no processor for more
    than 5 % of the time, though the agent used at most 90 % of one."""
    busy_starved_total: int = 0
    """Intervals that count in both totals."""
    starved_share: Number = 0.0
    """Largest share of the publishing time for which the host gave one agent no processor, in its
    starved intervals."""
    late_total: int = 0
    """Messages that were written later than `validity.lateness_p99`, and that nothing but the
    agent held up."""
    late_starved_total: int = 0
    """The part of `late_total` that belongs to starved intervals."""
    ledger_pairs: int = 0
    """(Stream, receiver) pairs that the ledger follows."""
    unfollowed_total: int = 0
    """Deliveries outside the ledger's bound: counted, but not checked for order and duplicates."""
    held_s: float = 0.0
    """Longest time in which an agent published nothing because the controller did not read its
    snapshots for a minute, in seconds."""


class Headroom(Value):
    """The generator's load as shares of its calibrated ceilings on this host, 0 to 1 and beyond."""

    rate: Number
    """Messages sent and received a second."""
    clients: Number
    """Clients of the largest agent."""
    calibrated: str
    """Time of the calibration, ISO 8601."""


class BrokerResult(Value):
    """A broker that the run started."""

    name: str
    """Name in the scenario, with a number."""
    group: str = ""
    """Name in the scenario."""
    kind: str
    """Its kind, as in the scenario."""
    version: str
    """Version that it states."""
    host: str
    """Address that it listens on."""
    port: int
    """Port that it listens on."""
    pid: int
    """Process id."""
    died: bool
    """True if it exited early and was not restarted."""
    speaks_sys: bool = False
    """True if it publishes counters under `$SYS`."""
    metrics_url: str | None = None
    """URL of its counters in Prometheus' format; null if there is none."""
    restarts: int = 0
    """Restarts after early exits."""
    cpus: tuple[int, ...] = ()
    """Processors that it may use; empty: all of its host."""
    memory_limit_bytes: int | None = None
    """Limit of its memory, which a cgroup sets; null: none."""


class ServiceResult(Value):
    """A service that the run started beside its brokers."""

    name: str
    """Name in the scenario."""
    kind: str
    """redis."""
    version: str
    """Version that it states."""
    host: str
    """Address that it listens on."""
    port: int
    """Port that it listens on."""
    pid: int
    """Process id."""
    died: bool
    """True if it exited early."""
    seeded_rows: int | None = None
    """Users and rights that the run has written to it; null: it wrote none."""


class BridgeResult(Value):
    """Bridges of one name."""

    name: str
    """Name in the scenario."""
    main: str
    """The main broker."""
    small: str
    """The small brokers."""
    bridges: int
    """Number of them."""
    up: int | None
    """Number that was up when the first stage began; null if unknown."""
    up_after_s: Number | None
    """Time from the start of the small brokers until that was so."""


class BrokerVersion(Value):
    """A broker binary that the run used."""

    kind: str
    """Its kind, as in the scenario."""
    version: str
    """Version that it states."""


class Environment(Value):
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


class PublisherResult(Value):
    """A publisher under test: one process with one PUB socket."""

    name: str
    """Name of its population, with a number if that has several clients."""
    population: str
    """Population of the publisher."""
    kind: Literal["libzmq", "pyzmq", "command"]
    """Program: of libzmq, of pyzmq, or any other."""
    library: str = ""
    """Library and version that it states, such as `libzmq 4.3.5`; empty: it states none."""
    pid: int
    """Process id."""
    host: str = ""
    """Address of its host; empty: the controller's."""
    address: str
    """Listening address, `host:port`."""
    high_water_mark: int
    """Messages that it queues for one subscriber at most, before it drops the next; 0: no limit."""
    io_threads: int = 1
    """Threads of libzmq that do input and output."""
    security: Literal["null", "plain", "curve"] = "null"
    """Mechanism that its subscribers must speak."""
    burst: int = 1
    """Messages scheduled at once."""
    sent_total: int = 0
    """Messages that it gave to its socket; those that the socket dropped are among them."""
    skipped_total: int = 0
    """Messages due and not sent."""
    lateness_us: Latency = Latency()
    """Lateness of messages given to the socket in publish stages."""
    time_histograms_ns: dict[str, Histogram] = Field(default_factory=dict)
    """The distribution behind it, by the name of its field; nothing if it is empty."""
    busy_share: Number = 0.0
    """Share of the publishing time that its loop was not waiting."""
    ending: str = ""
    """Ending: `bye`, or a description."""
    clock: ClockResult | None = None
    """Quality of its clock; None if its host has the reference clock."""

    @property
    def due_total(self) -> int:
        """Messages that were due, or that a closed loop sent."""
        return self.sent_total + self.skipped_total


ENOUGH_SHARE = 0.9
"""Share of a span that readings must cover for a figure over it."""
_FIELDS = {"rate": "rate_per_s", "slope": "slope_per_h"}
"""Fields of statistics whose name differs."""
_RARE = {"slope_per_h": None, "slope_bound_per_h": 0.0, "unread_s": 0.0, "span_s": 0.0}
"""Fields of statistics that are left out at this value. Pydantic 2.11 cannot say it at a field."""


class Statistics(Value):
    """Readings of a span, in short; zeros where there are none."""

    count: int = 0
    """Readings."""
    first: Number = 0.0
    """The first."""
    last: Number = 0.0
    """The last."""
    min: Number = 0.0
    """The smallest."""
    mean: Number = 0.0
    """Arithmetic mean."""
    max: Number = 0.0
    """The largest."""
    rate_per_s: Number | None = None
    """Growth of a count per second, from the first distinct reading to the last. A count that
    falls started again at zero. null: fewer than two distinct readings."""
    slope_per_h: Number | None = None
    """Slope of a line through the readings, in the unit of the readings an hour. Left out if too
    little was measured: less than an hour, or readings that depend on those before them."""
    slope_bound_per_h: Number = 0.0
    """Half the width of its confidence interval of 95 %. Left out if there is no slope."""
    unread_s: Number = 0.0
    """Time in the span for which readings were due and none came, in seconds. Left out if it is
    0."""
    span_s: Number = 0.0
    """Length of the span, in seconds. Left out if readings cover it."""

    @model_serializer(mode="wrap")
    def _without_rare(self, whole: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = whole(self)
        return {
            name: value
            for name, value in fields.items()
            if name not in _RARE or value != _RARE[name]
        }

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Returns the schema of the fields, of which the rare ones are not required."""
        fields: Any = {key: part for key, part in core_schema.items() if key != "serialization"}
        schema = handler(fields)
        required = [name for name in schema.get("required", ()) if name not in _RARE]
        return {**schema, "required": required}

    @property
    def is_enough(self) -> bool:
        """True if readings cover enough of the span for a figure over it."""
        return self.unread_s <= (1 - ENOUGH_SHARE) * self.span_s

    @property
    def unread_text(self) -> str:
        """The time without readings, in words."""
        return f"not read for {span_text(self.unread_s)} of {span_text(self.span_s)}"

    def value(self, statistic: str) -> float | None:
        """Returns a statistic by its name in expressions; None if there are too few readings.
        Raises KeyError if there is no such statistic."""
        if statistic not in READING_STATISTICS:
            raise KeyError(statistic)
        if statistic == "increase":
            return self.last - self.first
        found: float | None = getattr(self, _FIELDS.get(statistic, statistic))
        return found


class Watched(Value):
    """One figure of one source."""

    source: str
    """Name of a broker (`broker-0`) or of many together (`boxes`), `host`, another host
    (`host-NAME`), `agent-0`, bridges, a source of the monitors, or for its rates a population."""
    kind: SourceKind
    """Kind of the source. A publisher under test can have the name of its population."""
    group: str
    """Subject of thresholds that several sources share; equal to `source` if there is none."""
    metric: str
    """Name, unit last."""
    whole: Statistics
    """Readings over the whole run."""
    load: Statistics
    """Readings over the publish stages, without their drains; equal to `whole` if there are
    none."""
    spans: dict[str, Statistics] = Field(default_factory=dict)
    """Readings over each stage and phase, by name."""

    def over(self, span: str | None) -> Statistics:
        """Returns the readings in a span; without one, those under load."""
        return self.load if span is None else self.spans.get(span, Statistics())


def readings(watched: Iterable[Watched], statistic: str, span: str | None) -> list[float]:
    """Returns a statistic of each monitor that has it in a span."""
    found = (each.over(span) for each in watched)
    values = (each.value(statistic) for each in found if each.count)
    return [value for value in values if value is not None]


class ObserverTraffic(Value):
    """A client that only watches, and is load for the broker too. Its traffic is in no other
    figure."""

    name: str
    """The source it reads for."""
    target: str
    """Address of its broker."""
    topics: tuple[str, ...]
    """Topic filters of its subscriptions."""
    received_total: int
    """Messages that it received."""
    received_bytes: int
    """Their payloads together, in bytes."""
    problem: str | None = None
    """Reason of its failure; null if it worked."""


class MonitorGap(Value):
    """A time in which the controller did not run: no monitor was read."""

    from_s: Number
    """Start, after that of the run."""
    to_s: Number
    """End, after the start of the run."""


class MonitorProblem(Value):
    """Something that could not be watched."""

    source: str
    """Name of the source of the monitor."""
    group: str = ""
    """Subject of thresholds that several sources share; empty if there is none."""
    at_s: Number
    """Time after the start of the run."""
    text: str
    """Description of the problem, with advice."""


class ProfiledSymbol(Value):
    """A function in the profile of a broker."""

    share: Number
    """Share of the samples that were in it."""
    command: str
    """The program."""
    module: str
    """File or kernel of the function."""
    symbol: str
    """Name of the function."""


class ProfileResult(Value):
    """The profile by `perf record`, or the reason why there is none."""

    broker: str
    """The profiled broker."""
    stage: str
    """Stage of the profile."""
    status: Literal["recorded", "missing"]
    """missing: perf is not there, not allowed, or found nothing."""
    text: str
    """Description of the profile, or of what is missing, with advice."""
    samples_total: int = 0
    """Samples taken."""
    symbols: tuple[ProfiledSymbol, ...] = ()
    """Functions with the largest shares, largest first."""
    folded_file: str | None = None
    """File of folded stacks in the run directory, one `a;b;c count` on each line."""


class StaleState(Value):
    """Stale state of a broker before the run, or state that the run left and removed."""

    target: str
    """The broker."""
    when: Literal["before", "after"]
    """Before the run, or after it."""
    what: Literal["retained", "sessions", "queued", "declared", "cleared", "unknown"]
    """Retained messages that this run's clients would get or that its topics have; sessions of
    this run's client identifiers; messages queued for them; exchanges and queues that this run's
    clients declare; such ones that a killed run had left and that were deleted; or it could not be
    looked for."""
    total: int
    """Number of them."""
    text: str
    """Description, with examples."""
