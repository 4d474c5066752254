"""The log of a run: its stages as they were played, its changes, faults and agent failures, each
with its instant. Sums up how well the agents of a run knew the reference clock, and the errors of
times between two of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from pubstorm.contract import LATER, U64, Instant, StoredSource, Value
from pubstorm.contract.commands import Hello
from pubstorm.contract.plan import (
    AddClients,
    ChangeAction,
    ChangeRate,
    Plan,
    PublishAction,
    RemoveClients,
)
from pubstorm.contract.snapshot import ClockState
from pubstorm.errors import without_credentials
from pubstorm.plan.stages import PlannedFault
from pubstorm.quantities import SECOND_NS
from pubstorm.result import ClockResult, Event
from pubstorm.result.timeline.rows import Row

EVENTS_MAX = 10_000
"""Events that are kept: 3 MB."""


@dataclass(frozen=True)
class StageSpan:
    """A stage as it was played, in nanoseconds on the monotonic clock."""

    index: int
    from_ns: int
    load_until_ns: int
    """End of a publish stage's load; the start for other kinds."""
    to_ns: int
    settled: bool
    """True if every agent had done all that it could."""
    by_user: bool = False
    """True if the user ended it before its time. Clients that had not begun to join then stay away
    until a later connect stage."""


class StageEntered(Value):
    """The start of a stage, as the run directory stores it among the events."""

    kind: Literal["enter"] = "enter"
    at_s: Instant
    """Time after the start of the run."""
    stage: U64
    """Index of the stage."""
    by_user: bool = False
    """True if the user ended the stage before it."""


@dataclass(frozen=True)
class AppliedChange:
    """A change as it took effect, whether planned or asked for by control."""

    stage: U64
    """Index of the publish stage."""
    at_ns: U64
    """Instant in nanoseconds on the monotonic clock."""
    name: str
    """Name of the phase that begins with it."""
    population: U64
    """Index of the population."""
    action: ChangeAction
    """The change."""

    @property
    def ramp_ns(self) -> int:
        """Time over which clients join, leave or migrate."""
        return 0 if isinstance(self.action, ChangeRate) else self.action.over_ns

    def fits(self, plan: Plan) -> bool:
        """True if a plan has its stage and its population."""
        return self.stage < len(plan.stages) and self.population < len(plan.populations)

    def edges_ns(self, interval_ns: int) -> tuple[int, int]:
        """Instants at which its phase begins and has settled."""
        return self.at_ns, self.at_ns + self.ramp_ns + interval_ns


@dataclass
class AppliedFault:
    """A fault as it took effect, in nanoseconds on the monotonic clock."""

    planned: PlannedFault
    began_ns: U64
    """Instant at which the first victim was broken."""
    repaired_ns: U64 | None = None
    """Instant at which all victims were repaired; None if they were not in this run."""
    problems: list[str] = field(default_factory=list)
    """Steps that failed, in words."""
    failed: str | None = None
    """Why it could not be made, so that perhaps nothing was broken; None if it was, at least in
    part."""

    @property
    def stage(self) -> int:
        """Index of the stage."""
        return self.planned.stage

    @property
    def name(self) -> str:
        """Name of the phase that begins with it."""
        return self.planned.name

    @property
    def edges_ns(self) -> list[int]:
        """Instants of its beginning and its repair, as far as they are known."""
        return [at_ns for at_ns in (self.began_ns, self.repaired_ns) if at_ns is not None]

    def without_secrets(self) -> AppliedFault:
        """The same without passwords in commands, to be stored."""
        commands = self.planned.commands
        if commands is None:
            return self
        begin = without_credentials(commands.begin)
        shown = replace(commands, begin=begin, repair=None, repaired_when=None)
        return replace(self, planned=replace(self.planned, commands=shown))


class StoredChange(Value):
    """A change among the stored events."""

    kind: Literal["applied_change"] = "applied_change"
    change: AppliedChange


class StoredFault(Value):
    """A fault among the stored events. Its last line has how it ended."""

    kind: Literal["applied_fault"] = "applied_fault"
    fault: AppliedFault


@dataclass
class AgentFailure:
    """An agent that failed in a run that continued."""

    agent: int
    at_ns: int
    """Instant at which the controller noticed the failure, in nanoseconds on the monotonic
    clock."""
    reported_ns: int
    """End of its last snapshot, or the start of the run: nothing is known of it from then on."""
    clients: int
    """Clients that it played."""
    text: str
    """The failure in words."""
    replaced_on: str | None = None
    """Address of the replacement's host, empty for the controller's; None without a
    replacement."""
    rejoined_ns: int | None = None
    """Instant at which the replacement began to rejoin, in nanoseconds on the monotonic clock."""

    def is_away(self, from_ns: int, to_ns: int) -> bool:
        """True if nothing is known of its clients at some time of a span."""
        return self.reported_ns < to_ns and (self.rejoined_ns is None or from_ns < self.rejoined_ns)

    def rejoins(self, from_ns: int, to_ns: int) -> bool:
        """True if the replacement began to rejoin in a span."""
        return self.rejoined_ns is not None and from_ns <= self.rejoined_ns < to_ns


@dataclass
class RunLog:
    """The stages of a run, and the events in them."""

    started_ns: int
    started_unix_ns: int = 0
    """The same instant on the wall clock, in nanoseconds of Unix time; 0: it is not known."""
    ended_ns: int = 0
    spans: list[StageSpan] = field(default_factory=list)
    changes: list[AppliedChange] = field(default_factory=list)
    """Changes of populations that took effect, in the order of time."""
    asked: list[AppliedChange] = field(default_factory=list)
    """Changes beyond the plan, in the order in which they were asked for."""
    faults: list[AppliedFault] = field(default_factory=list)
    """Faults that took effect, in the order of time."""
    failures: list[AgentFailure] = field(default_factory=list)
    """Agents that failed in a run that continued, in the order of time."""
    expect_received: dict[int, set[int]] = field(default_factory=dict)
    """Populations that are excluded from loss by stage, since an agent was away."""
    events: list[Event] = field(default_factory=list)
    """The first events; later ones are counted."""
    left_out: int = 0
    """Events beyond those that are kept."""
    endings: dict[int, str] = field(default_factory=dict)
    """Ending of each agent, in words."""
    interrupted: bool = False
    ended_early: bool = False

    def note(self, kind: str, text: str, at_ns: int) -> Event:
        """Records that something happened."""
        at_s = self.at_s(at_ns)
        event = Event.model_validate({"at_s": at_s, "kind": kind, "text": text})
        if len(self.events) < EVENTS_MAX:
            self.events.append(event)
        else:
            self.left_out += 1
        return event

    def at_s(self, at_ns: int) -> float:
        """An instant in seconds after the start of the run."""
        return round((at_ns - self.started_ns) / SECOND_NS, 3)

    def exclude_from_loss(self, stage: int, populations: Iterable[int]) -> None:
        """Excludes populations from loss in a stage, in which an agent was away."""
        self.expect_received.setdefault(stage, set()).update(populations)

    def excluded_from_loss(self, plan: Plan, stage: int) -> list[int]:
        """Populations that are excluded from loss in a stage, because clients changed or agents
        were away."""
        changed = excluded_from_loss(plan, self.changes, stage)
        publishes = isinstance(plan.stages[stage].action, PublishAction)
        return sorted({*changed, *(self.expect_received.get(stage, ()) if publishes else ())})


def stored_event(line: str | bytes) -> Stored | None:
    """Returns what a line of the stored events has; None if the line is broken."""
    try:
        return _STORED.validate_json(line)
    except ValidationError:
        return None


Stored = Event | StageEntered | StoredChange | StoredFault | StoredSource
_STORED: TypeAdapter[Stored] = TypeAdapter(Stored, config=LATER)


def excluded_from_loss(plan: Plan, changes: Iterable[AppliedChange], stage: int) -> list[int]:
    """Returns populations that subscribe and whose clients joined or left in a stage, or whose
    session lifetimes end, subscriptions flap or connections are taken over while messages are sent.
    Expected := received, because membership changed."""
    joined_or_left = {
        change.population
        for change in changes
        if change.stage == stage and isinstance(change.action, AddClients | RemoveClients)
    }
    if isinstance(plan.stages[stage].action, PublishAction):
        living = enumerate(plan.populations)
        joined_or_left |= {index for index, each in living if each.lifetime or each.flapping}
        joined_or_left |= plan.contested
    return [p for p in sorted(joined_or_left) if plan.populations[p].subscriptions]


US_NS = 1000


def clock_result(
    hello: Hello, rows: Iterable[Row], stamping: Collection[int]
) -> ClockResult | None:
    """Returns the quality of an agent's clock, from its hello and its rows in the order of
    time; None if its host has the reference clock. The bound is that of the stages in which
    messages are stamped, or of the whole run if there was none."""
    known = [(row.to_ns, row.stage, row.clock) for row in rows if row.clock is not None]
    states = [(at_ns, clock) for at_ns, _, clock in known]
    if hello.clock is not None:
        states.insert(0, (hello.clock_ns, hello.clock))
    if not states:
        return None
    stamped = [clock.bound_ns for _, stage, clock in known if stage in stamping]
    bound_ns = max(stamped or [state.bound_ns for _, state in states])
    last = states[-1][1]
    return ClockResult(
        offset_us=last.offset_ns / US_NS,
        drift_ppm=last.drift_ppb / US_NS,
        bound_us=bound_ns / US_NS,
        round_trip_us=min(state.round_trip_ns for _, state in states) / US_NS,
        exchanges_total=last.exchanges_total,
        unanswered_s=round(_unanswered_ns(states) / SECOND_NS, 3),
    )


def clock_bound_us(clocks: Iterable[ClockResult | None]) -> float:
    """Returns the largest error of times that begin at one agent and end at another: the two
    largest bounds together. One agent alone has one clock."""
    bounds_us = sorted((clock.bound_us if clock else 0.0 for clock in clocks), reverse=True)
    return round(sum(bounds_us[:2]), 3) if len(bounds_us) > 1 else 0.0


def _unanswered_ns(states: Sequence[tuple[int, ClockState]]) -> int:
    """The longest time in which no exchange was added to those that were answered."""
    longest_ns = 0
    since_ns = states[0][0]
    for (_, before), (at_ns, state) in pairwise(states):
        if state.exchanges_total != before.exchanges_total:
            since_ns = at_ns
        longest_ns = max(longest_ns, at_ns - since_ns)
    return longest_ns
