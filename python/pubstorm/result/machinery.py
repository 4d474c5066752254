"""What a run was played on: engines, brokers of its own, machine and programs. It knows no
message."""

from __future__ import annotations

from pubstorm.result.measures import Latency
from pubstorm.value import Value

MAX_BUSY_INTERVALS_SHARE = 0.1
"""Share of the intervals under full load in which a loop may be busier than allowed."""


def too_busy(busy: int, intervals: int) -> bool:
    """Returns whether loops were busy in too many intervals. One of several is chance."""
    return busy > MAX_BUSY_INTERVALS_SHARE * intervals and (busy > 1 or intervals < 3)


class ClockResult(Value):
    """How well an agent knew the reference clock, that of the host the run was started on."""

    offset_us: float
    """What was added to its host's clock at the end, in microseconds."""
    drift_ppm: float
    """How much faster the reference clock ran at the end, in parts of a million."""
    bound_us: float
    """Its time was off by this much at most, in microseconds: the largest of the intervals of
    publish stages, or of all where none was played."""
    round_trip_us: float
    """Shortest round trip of its exchanges, in microseconds."""
    exchanges_total: int
    """Exchanges that were answered."""
    unanswered_s: float = 0.0
    """Longest time between two of its reports in which none was, in seconds."""


class AgentLoss(Value):
    """An engine that was lost in a run that went on."""

    agent: int
    """Index of its shard."""
    at_s: float
    """When, after the start of the run."""
    clients: int
    """Clients that it played."""
    text: str
    """What happened to it, naming its host."""
    replaced_on: str | None = None
    """Host of the engine that plays its clients since; null: nobody does."""
    back_after_s: float | None = None
    """Time from the loss until that one had begun, in seconds."""


class AgentResult(Value):
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
    run_delay_s: float | None = None
    """Time in which its loop could run and had no processor; null: the kernel does not count it."""
    rss_max_bytes: int
    """Its largest resident memory."""
    busy_share: float
    """Share of the publishing time that its loop was not waiting."""
    ending: str
    """How it ended: `bye`, or what happened to it."""
    host: str = ""
    """Address of its host; empty: the one that the run was started on."""
    clock: ClockResult | None = None
    """How well it knew the reference clock; null: its host has it."""


class FleetResult(Value):
    """The load generator itself: the ground of the validity verdict."""

    on: str = "local"
    """Where it ran: local, ray, or ray:// and an address."""
    agents: tuple[AgentResult, ...] = ()
    """One entry for each engine process."""
    losses: tuple[AgentLoss, ...] = ()
    """Engines that were lost while the run went on, in the order of time."""
    clock_bound_us: float = 0.0
    """Delivery times between hosts are off by this much at most, in microseconds: the two largest
    bounds of agents together; 0: one clock made them."""
    lateness_us: Latency = Latency()
    """In publish stages: how late messages were written that nothing but the engine held up."""
    blocked_us: Latency = Latency()
    """In publish stages: how late messages were written that window, socket or a lost connection
    held up."""
    load_intervals_total: int = 0
    """Intervals of agents that lie wholly in publishing time."""
    busy_intervals_total: int = 0
    """Those of them in which the loop was busier than `validity.busy` allows."""
    starved_intervals_total: int = 0
    """Intervals of agents in publishing time in which the host gave the agent no processor for more
    than 5 % of the time, though it used at most 90 % of one."""
    busy_starved_total: int = 0
    """Intervals that count in both totals."""
    late_total: int = 0
    """Messages that were written later than `validity.lateness_p99`, and that nothing but the
    engine held up."""
    late_starved_total: int = 0
    """The part of `late_total` that belongs to starved intervals."""
    ledger_pairs: int = 0
    """(Stream, receiver) pairs that the ledger follows."""
    unfollowed_total: int = 0
    """Deliveries outside the ledger's bound: counted, but not checked for order and duplicates."""


class Headroom(Value):
    """The generator's load as shares of its calibrated ceilings on this host, 0 to 1 and beyond."""

    rate: float
    """Messages sent and received a second."""
    clients: float
    """Clients of the largest agent."""
    calibrated: str
    """When the host was calibrated, ISO 8601."""


class BrokerResult(Value):
    """A broker that the run started."""

    name: str
    """Its name: that in the scenario and a number."""
    group: str = ""
    """Its name in the scenario."""
    kind: str
    """embedded, mosquitto, rabbitmq, nats or command."""
    version: str
    """Version that it states."""
    host: str
    """Address that it listens on."""
    port: int
    """Port that it listens on."""
    pid: int
    """Process id."""
    died: bool
    """Whether it ended before it was told to, and was not started again."""
    speaks_sys: bool = False
    """Whether it publishes counters under `$SYS`."""
    metrics_url: str | None = None
    """Where it shows counters in Prometheus' format; null if it does not."""
    restarts: int = 0
    """How often it was started again after it had ended unasked."""


class ServiceResult(Value):
    """A service that the run started beside its brokers."""

    name: str
    """Its name in the scenario."""
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
    """Whether it ended before it was told to."""
    seeded_rows: int | None = None
    """Users and rights that the run has written to it; null: it wrote none."""


class BridgeResult(Value):
    """Bridges of one name."""

    name: str
    """Its name in the scenario."""
    main: str
    """The main broker."""
    small: str
    """The small brokers."""
    bridges: int
    """How many."""
    up: int | None
    """How many were up when the first stage began; null: they do not tell."""
    up_after_s: float | None
    """Time from the start of the small brokers until that was so."""


class BrokerVersion(Value):
    """A broker binary that the run used."""

    kind: str
    """embedded, mosquitto, rabbitmq, nats or command."""
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
