"""What a run comes to beside its populations: samplers, problems by kind, memory by connections,
the balance of the targets, stalled subscribers and peaks. It reckons nothing."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pubstorm.snapshot import Reason
from pubstorm.value import Value

MILLION = 1_000_000
SamplerKind = Literal["connect", "subscribe", "pub", "sub"]


class Sampler(Value):
    """What became of one thing that the clients of a population did."""

    subject: str
    """The population, or the one that has it as a share."""
    is_sum: bool = False
    """Whether it is the sum over the shares of the subject."""
    kind: SamplerKind
    """connect: connections; subscribe: filters; pub: messages sent; sub: messages received."""
    qos: tuple[int, ...] = ()
    """Levels of its messages; several where the counts do not tell them apart."""
    count: int
    """How often it came to a good end: connections accepted, filters granted, messages
    acknowledged (of QoS 0 sent), deliveries received."""
    of: int | None
    """How often it was tried: connections begun, filters answered, messages sent (of QoS 0 due),
    expected deliveries; null: not known, since its clients come and go."""
    mean_us: float | None = None
    """Mean response time: from the start of TCP to CONNACK, from the instant a message was due to
    its acknowledgement or delivery; null: there is no answer to wait for, or none came."""
    max_us: float | None = None
    """The largest."""
    mean_from_send_us: float | None = None
    """The mean from the instant a message was sent; null: there is none, or it is no message."""
    max_from_send_us: float | None = None
    """The largest from the instant a message was sent."""
    bound_us: float = 0.0
    """All four are off by this much at most, since clocks of several hosts made them; 0: one clock
    did."""

    @property
    def name(self) -> str:
        """What it is called, such as `device pub QoS 1`."""
        level = f" QoS {' and '.join(map(str, self.qos))}" if self.qos else ""
        return f"{self.subject} {self.kind}{level}"


class Problem(Value):
    """Everything of one kind that ended otherwise than hoped."""

    kind: str
    """Its name, such as `connections failed`."""
    count: int
    """How often."""
    of: int | None = None
    """Out of how many; null: nobody counted."""
    text: str
    """In words."""
    reasons: dict[Reason, int] = Field(default_factory=dict)
    """By reason, where there are any."""
    populations: dict[str, int] = Field(default_factory=dict)
    """By population, those that had it."""


class MemoryPoint(Value):
    """Memory at a number of connections."""

    connections: float
    """Clients connected."""
    bytes: float
    """Memory."""


class MemoryModel(Value):
    """Memory as a straight line over connections, fitted by least squares."""

    subject: str
    """A broker or a group that is watched together, `engines`, or `host` for its kernel."""
    base_bytes: float | None = None
    """Memory without a connection; null: no line was fitted."""
    bytes_per_connection: float | None = None
    """What each connection adds; null: no line was fitted."""
    r_squared: float | None = None
    """Share of the scatter that the line explains; null: no line was fitted."""
    points: int = 0
    """Readings that it was fitted to, or that were too few."""
    problem: str | None = None
    """Why no line was fitted; null: one was."""
    steady: MemoryPoint | None = None
    """Means over the last load, or the last hold stage; null: there was neither."""

    @property
    def bytes_of_million(self) -> float | None:
        """What a million connections would need."""
        if self.base_bytes is None or self.bytes_per_connection is None:
            return None
        return self.base_bytes + MILLION * self.bytes_per_connection


class TargetResult(Value):
    """One target's part of the connections."""

    name: str
    """The broker, or the address of one that the run did not start."""
    group: str
    """Its name in the scenario; `target` for those of a target."""
    connected_max: int
    """Most clients connected to it at once."""
    connected_total: int
    """Connections that it accepted."""
    connect_failed_total: int
    """Attempts at it that failed."""
    share: float
    """Its part of the most connections of its group, 0 to 1."""
    planned_share: float
    """Its part of the clients of its group by the plan."""


class StalledSubscriber(Value):
    """A subscriber that got nothing for a while though messages were due to it."""

    population: str
    """Its population."""
    number: int
    """Its number."""
    stage: str | None
    """The stage in which it began; null: none was played then."""
    since_s: float
    """When it last got something, or could first have, after the start of the run."""
    until_s: float | None
    """When it got something again; null: nobody told."""
    lasted: bool
    """Whether it got nothing more before its stage ended, as far as anybody can say: agents tell
    of a hundred in an interval, but count all."""
    due: int
    """Messages that were due to it meanwhile, about."""


class Peak(Value):
    """The largest of something over time."""

    value: float = 0.0
    """The largest."""
    at_s: float | None = None
    """When, after the start of the run; null: at no single instant."""


class Peaks(Value):
    """The largest sums over all populations."""

    connected: int = 0
    """Most clients connected at once."""
    sent_per_s: Peak = Peak()
    """Largest rate of messages sent, of an interval."""
    received_per_s: Peak = Peak()
    """Largest rate of messages received, of an interval."""
