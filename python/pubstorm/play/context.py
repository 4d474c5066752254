"""Values around the stages of one run: the plan, the agents, the recorder, the display, the
beginning of the run as its directory stores it, and the figures of a stage that is over, for a
check of the user between two stages, and for the number of messages of the stage."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Literal

from pubstorm.contract import U64, Moment, Value
from pubstorm.contract.commands import ActiveClients, Hello
from pubstorm.contract.histogram import Histogram
from pubstorm.contract.plan import Plan, PublishAction
from pubstorm.contract.snapshot import FlowSnapshot
from pubstorm.contract.sums import total
from pubstorm.fleet import Fleet
from pubstorm.fleet.programs import Assignment
from pubstorm.measure.assemble import Assembly
from pubstorm.measure.monitors.monitoring import Monitored
from pubstorm.measure.recorder import Recorder
from pubstorm.play.directory import RunDirectory
from pubstorm.play.display import Live
from pubstorm.play.progress import Clock, Progress
from pubstorm.quantities import count_text, counted, write_duration
from pubstorm.result import (
    BridgeResult,
    BrokerResult,
    Environment,
    Event,
    ServiceResult,
    StaleState,
)
from pubstorm.result.samples import RUN_FORMAT, Tracks
from pubstorm.scenario import Scenario
from pubstorm.topology.started import Started


@dataclass(frozen=True)
class RunContext:
    """Everything around the stages of one run."""

    plan: Plan
    fleet: Fleet
    recorder: Recorder
    live: Live
    clock: Clock = time.monotonic_ns

    @cached_property
    def progress(self) -> Progress:
        """The state of the run, for barriers."""
        return Progress(self.plan, self.assignment, self.recorder.sums, self.clock)

    @cached_property
    def active(self) -> ActiveClients:
        """Clients that should be connected now."""
        return ActiveClients(self.plan)

    @cached_property
    def assignment(self) -> Assignment:
        """The agents, and what each plays."""
        return Assignment.among(self.plan, self.fleet.agents)

    @property
    def receivers(self) -> list[int]:
        """Populations that subscribe."""
        return [p for p, each in enumerate(self.plan.populations) if each.subscriptions]

    def note(self, kind: str, text: str, at_ns: int | None = None) -> None:
        """Records and shows that something happened, now unless an instant is given."""
        self.recorder.note(kind, text, self.clock() if at_ns is None else at_ns)
        self.live.note(text)


US_NS = 1000


@dataclass(frozen=True)
class PopulationFigures:
    """A population in one stage."""

    connected: int
    """Clients connected at the end of the stage."""
    connect_failed: int
    """Connection attempts that failed."""
    sent: int
    """Messages sent."""
    acked: int
    """Messages acknowledged."""
    skipped: int
    """Scheduled messages that were never sent."""
    expected: int
    """Expected deliveries."""
    received: int
    """Deliveries."""
    lost: int
    """Expected deliveries that did not come."""
    latency: Histogram
    """Latencies of deliveries from the scheduled instant."""
    ack_latency: Histogram
    """Latencies of acknowledgements from the scheduled instant."""

    def latency_us(self, percentile: float = 99) -> float | None:
        """Returns a percentile of the latency of deliveries, or of acknowledgements if there are
        no deliveries, in microseconds. None if nothing was measured."""
        found = self.latency if self.latency.count else self.ack_latency
        return found.quantile_ns(percentile / 100) / US_NS if found.count else None


@dataclass(frozen=True)
class StageFigures:
    """A stage that is over."""

    name: str
    number: int
    """Number of the stage, from 1."""
    kind: str
    """connect, publish, hold or disconnect."""
    duration_s: float
    """Duration of the stage, its drain included."""
    populations: Mapping[str, PopulationFigures]

    def __getitem__(self, population: str) -> PopulationFigures:
        return self.populations[population]


Check = Callable[[StageFigures], str | None]
"""Gets the figures of a stage. Returns the reason why the run ends there; None if it continues."""


def stage_figures(run: RunContext, index: int) -> StageFigures:
    """Returns the figures of a stage that is over."""
    stage, sums = run.plan.stages[index], run.recorder.sums
    span = run.recorder.run_log.spans[-1]
    latest, found = run.progress.latest_of_load, {}
    for number, population in enumerate(run.plan.populations):
        clients, flows = sums.population([number], [index]), sums.flows([index]).values()
        into = total(FlowSnapshot, (flow for flow in flows if flow.to == number))
        expected, received = into.counters.expected_total, into.counters.received_total
        found[population.name] = PopulationFigures(
            connected=sum(s.populations[number].gauges.connected for s in latest),
            connect_failed=clients.counters.connect_failed_total,
            sent=clients.counters.sent_total,
            acked=clients.counters.acked_total,
            skipped=clients.counters.skipped_total,
            expected=expected,
            received=received,
            lost=max(expected - received, 0),
            latency=into.latency_intended,
            ack_latency=clients.ack_intended,
        )
    duration_s = (span.to_ns - span.from_ns) / 1e9
    return StageFigures(stage.name, index + 1, stage.action.kind, duration_s, found)


def unsent_text(run: RunContext, index: int) -> str | None:
    """Says that the time of a stage was over before its number of messages was sent; None if they
    were sent, or if it has none."""
    stage = run.plan.stages[index]
    action = stage.action
    if not isinstance(action, PublishAction) or action.messages is None:
        return None
    own = run.recorder.sums.population(stage.populations, [index]).counters
    sent, wanted = own.sent_total - own.answers_total, sum(action.messages)
    if sent >= wanted:
        return None
    return (
        f"stage {stage.name} sent {count_text(sent)} of {counted(wanted, 'message')} in its time, "
        f"needed are all: give it more than {write_duration(action.duration_ns)} with for, or look "
        "for what held its clients up"
    )


@dataclass(frozen=True)
class RunInfo:
    """Name and folder of a run."""

    scenario: Scenario
    directory: RunDirectory
    live: Live
    started: datetime
    command: str
    """The command line."""
    reports: bool = True
    """True if reports are made of the result."""
    check: Check | None = None
    """A check of the user after each stage."""
    ended: datetime | None = None
    """Default: now."""


@dataclass(frozen=True)
class RunOutput:
    """Everything that a run brought."""

    assembly: Assembly
    tracks: Tracks
    """Samples that the result sums up."""
    monitored: Monitored
    brokers: tuple[BrokerResult, ...]
    services: tuple[ServiceResult, ...]
    bridges: tuple[BridgeResult, ...]
    stale_state: tuple[StaleState, ...] = ()
    warnings: tuple[Event, ...] = ()
    """Warnings from the start-up."""
    environment: Environment | None = None
    """Environment of the start; None: the run has not come that far."""


class RunStart(Value):
    """The beginning of a run. With snapshots and samples it is enough to make the result of a run
    whose controller was killed."""

    format: Literal[2] = RUN_FORMAT
    """Version of the format of the run directory."""
    process: Started
    """The controller."""
    file: str
    """Path of the scenario file."""
    overrides: tuple[str, ...]
    """`PATH=VALUE` each."""
    target: str | None
    """The targets of the command line, separated by spaces."""
    command: str
    """The command line."""
    started: Moment
    """Date and time in ISO 8601."""
    started_ns: U64
    """Start of the first stage on the monotonic clock, in nanoseconds."""
    started_unix_ns: U64 = 0
    """The same instant on the wall clock, in nanoseconds of Unix time; 0: it is not known."""
    hellos: tuple[Hello, ...]
    """The first message of each agent."""
    on: str
    """The place of the agents, as in `fleet.on`."""
    hosts: dict[int, str]
    """Addresses of the agents' hosts; empty: the controller's."""
    environment: Environment
    """The controller's host."""
    brokers: tuple[BrokerResult, ...]
    services: tuple[ServiceResult, ...]
    bridges: tuple[BridgeResult, ...]
