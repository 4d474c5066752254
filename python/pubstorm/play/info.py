"""The values around a run: what it is, what it brought, and its beginning as its directory stores
it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pubstorm.contract.commands import Hello
from pubstorm.contract.value import U64, Moment, Value
from pubstorm.measure.assemble import Assembly
from pubstorm.measure.monitors.monitoring import Monitored
from pubstorm.play.directory import RunDirectory
from pubstorm.play.display import Live
from pubstorm.play.stage_check import Check
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
