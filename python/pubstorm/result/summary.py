"""Figures of a run beside its populations: samplers, memory by connections, the balance of targets,
stalled subscribers, peaks, and problems, which are counted failures by kind, with their reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from pubstorm.contract import Number, Value
from pubstorm.contract.reasons import Reason
from pubstorm.contract.snapshot import Answer, Outcome
from pubstorm.metrics.metric import Failures
from pubstorm.metrics.populations import POPULATIONS
from pubstorm.quantities import count_text
from pubstorm.result.measures import PopulationResult

MILLION = 1_000_000
R_SQUARED_GOOD = 0.9
"""Share of the scatter from which memory follows a line."""
SamplerKind = Literal["connect", "subscribe", "unsubscribe", "pub", "sub"]


class Sampler(Value):
    """Outcomes of one kind of action of a population's clients."""

    subject: str
    """The population, or the one that has it as a share."""
    is_sum: bool = False
    """True for the sum over the shares of the subject."""
    kind: SamplerKind
    """connect: connections; subscribe and unsubscribe: filters; pub: messages sent; sub: messages
    received."""
    qos: tuple[int, ...] = ()
    """QoS levels of its messages; several if the counts do not separate them."""
    count: int
    """Successes: connections accepted, filters granted or removed, messages acknowledged (of QoS 0
    sent), deliveries received."""
    of: int | None
    """Attempts: connections begun, filters answered, messages sent (of QoS 0 scheduled), expected
    deliveries; null if unknown, since clients connect and leave."""
    is_partial: bool = False
    """True if `count` and `of` are about the stages in which no receiver connects or leaves."""
    mean_us: Number | None = None
    """Mean response time: from the start of TCP to CONNACK, from the instant a message was due to
    its acknowledgement or delivery; null: there is no answer to wait for, or none came."""
    max_us: Number | None = None
    """The largest."""
    mean_from_send_us: Number | None = None
    """Mean from the instant a message was sent; null for other actions, or without one."""
    max_from_send_us: Number | None = None
    """The largest from the instant a message was sent."""
    bound_us: Number = 0.0
    """All four are off by this much at most, since clocks of several hosts made them; 0: one clock
    did."""

    @property
    def name(self) -> str:
        """Name, such as `device pub QoS 1`."""
        level = f" QoS {' and '.join(map(str, self.qos))}" if self.qos else ""
        return f"{self.subject} {self.kind}{level}"


class Problem(Value):
    """Failures of one kind, with their reasons."""

    kind: str
    """Name, such as `connections failed`."""
    count: int
    """Number of failures."""
    of: int | None = None
    """Number of all; null if unknown."""
    text: str
    """Description."""
    reasons: dict[Outcome, int] = Field(default_factory=dict)
    """Numbers by reason."""
    populations: dict[str, int] = Field(default_factory=dict)
    """Numbers by population."""


class MemoryPoint(Value):
    """Memory at a number of connections."""

    connections: Number
    """Clients connected."""
    bytes: Number
    """Memory."""


class MemoryModel(Value):
    """Memory as a straight line over connections, fitted by least squares."""

    subject: str
    """A broker or a group that is watched together, `engines`, or `host` for its kernel."""
    group: str = ""
    """Subject of thresholds that several share; empty if there is none."""
    base_bytes: Number | None = None
    """Memory without a connection; null: no line was fitted."""
    bytes_per_connection: Number | None = None
    """Memory that each connection adds; null if no line was fitted."""
    r_squared: Number | None = None
    """Share of the scatter that the line explains; null: no line was fitted."""
    points: int = 0
    """Readings that it was fitted to, or that were too few."""
    problem: str | None = None
    """Why no line was fitted; null: one was."""
    steady: MemoryPoint | None = None
    """Means over the last load, or the last hold stage; null: there was neither."""

    @property
    def is_rough(self) -> bool:
        """True if the line leaves more than a tenth of the scatter."""
        return self.r_squared is not None and self.r_squared < R_SQUARED_GOOD

    @property
    def bytes_of_million(self) -> float | None:
        """Memory that a million connections would need."""
        if self.base_bytes is None or self.bytes_per_connection is None:
            return None
        return self.base_bytes + MILLION * self.bytes_per_connection


class TargetResult(Value):
    """One target's part of the connections."""

    name: str
    """The broker, or the address of one that the run did not start."""
    group: str
    """Name in the scenario; `target` for those of a target."""
    connected_max: int
    """Most clients connected to it at once."""
    connected_total: int
    """Connections that it accepted."""
    connect_failed_total: int
    """Attempts at it that failed."""
    share: Number
    """Share of the most connections of its group, 0 to 1."""
    planned_share: Number
    """Share of the clients of its group by the plan."""


class AddressResult(Value):
    """Attempts to connect to one address of a target that is a name."""

    target: str
    """The broker, or the address of one that the run did not start."""
    address: str | None
    """IPv4 or IPv6 address; null: all further addresses of the target."""
    connect_attempts_total: int
    """Attempts to connect."""
    connected_total: int
    """Connections that the target accepted."""
    connect_failed_total: int
    """Attempts that failed."""
    outcomes: dict[Outcome, int] = Field(default_factory=dict)
    """Reasons of the failed attempts."""


class StalledSubscriber(Value):
    """A subscriber that got nothing for a while though messages were due to it."""

    population: str
    """Population of the subscriber."""
    number: int
    """Number of the subscriber."""
    stage: str | None
    """The stage in which it began; null: none was played then."""
    since_s: Number
    """Time of its last delivery, or of the first that it could get, after the start of the run."""
    until_s: Number | None
    """Time of its next delivery; null if unknown."""
    lasted: bool
    """True if it received nothing more before its stage ended. Agents report a hundred stalls in an
    interval, but count all."""
    due: int
    """Messages that were due to it meanwhile, about."""


class Peak(Value):
    """The largest of something over time."""

    value: Number = 0.0
    """The largest."""
    at_s: Number | None = None
    """Time after the start of the run; null if there is no single instant."""


class Peaks(Value):
    """The largest sums over all populations."""

    connected: int = 0
    """Most clients connected at once."""
    sent_per_s: Peak = Peak()
    """Largest rate of messages sent, of an interval."""
    received_per_s: Peak = Peak()
    """Largest rate of messages received, of an interval."""
    received_by_qos: dict[str, Peak] = Field(default_factory=dict)
    """The same for each QoS of deliveries: `0`, `1`, `2`, and `mixed` for populations that receive
    at several."""


@dataclass(frozen=True)
class ProblemKind:
    """A kind of problem: a metric that counts failures."""

    field: str
    """Field of a population's result with the number."""
    failures: Failures

    def count(self, population: PopulationResult) -> int:
        """Returns the number of a population."""
        return self._sum(population, (self.field,))

    def of(self, population: PopulationResult) -> int:
        """Returns the number of all of a population."""
        return self._sum(population, self.failures.of)

    def _sum(self, population: PopulationResult, fields: tuple[str, ...]) -> int:
        if self.failures.after and not getattr(population, self.failures.after):
            return 0
        return sum(getattr(population, field) for field in fields)


def problems(
    populations: Mapping[str, PopulationResult], unfollowed_total: int
) -> tuple[Problem, ...]:
    """Returns the problems of all kinds that occurred."""
    found = [
        problem for kind in KINDS.values() if (problem := problem_of(kind, populations)) is not None
    ]
    if unfollowed_total:
        received = sum(population.received_total for population in populations.values())
        words = f"{_out_of(unfollowed_total, received)} deliveries were not followed"
        name = "deliveries not followed"
        problem = Problem(kind=name, count=unfollowed_total, of=received, text=words)
        found.append(problem)
    return tuple(found)


def problem_of(kind: ProblemKind, populations: Mapping[str, PopulationResult]) -> Problem | None:
    """Returns the problem of one kind, over some populations; None if there was none."""
    by_population = {name: kind.count(each) for name, each in populations.items()}
    count = sum(by_population.values())
    if not count:
        return None
    of = sum(map(kind.of, populations.values())) if kind.failures.of else None
    reasons = sum((Counter(dict(_reasons(kind, p))) for p in populations.values()), Counter())
    why = reasons_text(reasons, populations.values())
    return Problem(
        kind=kind.failures.kind,
        count=count,
        of=of,
        text=f"{_out_of(count, of)} {kind.failures.words}" + (f": {why}" if why else ""),
        reasons=dict(reasons.most_common()),
        populations={name: each for name, each in by_population.items() if each},
    )


def reasons_text(counts: Counter[Reason | Answer], populations: Iterable[PopulationResult]) -> str:
    """Returns reasons with their counts, the most frequent first: `12 connect refused`."""
    peer = "broker" if any(p.can.has_broker for p in populations) else "publisher"
    words = ((n, str(r).replace("_", " ").replace("broker", peer)) for r, n in counts.most_common())
    return ", ".join(f"{count_text(n)} {word}" for n, word in words if n)


def _reasons(
    kind: ProblemKind, population: PopulationResult
) -> Iterator[tuple[Reason | Answer, int]]:
    """Yields the reasons of a population for a kind. Reasons of several kinds fill the number that
    the reasons of this kind only leave."""
    room = kind.count(population)
    for is_meant in (kind.failures.names, kind.failures.possible.__contains__):
        for reason, count in sorted(population.outcomes.items()):
            if is_meant(reason) and min(count, room) > 0:
                yield reason, min(count, room)
                room -= min(count, room)


def _out_of(count: int, of: int | None) -> str:
    return count_text(count) if of is None else f"{count_text(count)} of {count_text(of)}"


KINDS: Mapping[str, ProblemKind] = {
    metric.name: ProblemKind(metric.field, metric.failures)
    for metric in sorted(POPULATIONS, key=lambda m: m.failures.place if m.failures else 0)
    if metric.failures is not None
}
"""Kinds of problems by the name of their metric, in the order of a result."""
