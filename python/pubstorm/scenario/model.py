"""The scenario as immutable values in base units: durations in nanoseconds, rates a second, sizes
in bytes, shares from 0 to 1. The docstrings are the reference that users read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Literal

from pydantic import Field, PrivateAttr, model_validator

from pubstorm.contract import Source
from pubstorm.contract.capabilities import SCHEMES
from pubstorm.contract.target import PublisherTarget, Target, sources_of
from pubstorm.quantities import MILLISECOND_NS, SECOND_NS
from pubstorm.scenario.addresses import Addresses, Sources, Targets
from pubstorm.scenario.base import Part
from pubstorm.scenario.fields import (
    Duration,
    Interval,
    Name,
    PacketBytes,
    PositiveDuration,
    PositiveDurationOrNever,
    Scale,
    Seed,
    Share,
    Text,
    ThresholdLine,
)
from pubstorm.scenario.fleet import ScenarioFleet
from pubstorm.scenario.flows import DeclaredFlow
from pubstorm.scenario.kinds import AnyPopulation, StartedPublishers, with_kinds
from pubstorm.scenario.monitors import Monitors, Profile
from pubstorm.scenario.populations import Population, RunParts, Simulated
from pubstorm.scenario.series import Search, Sweep, TableColumn, Variation
from pubstorm.scenario.stages import DEFAULT_STAGES, Stage
from pubstorm.scenario.stores import MAIN
from pubstorm.scenario.topology import ScenarioTopology


class Validity(Part):
    """Limits above which the load generator counts as saturated, which makes a run invalid."""

    lateness_p99: PositiveDuration = 10 * MILLISECOND_NS
    """The 99th percentile of the lateness with which agents wrote messages, by their own fault."""
    busy: Share = 0.9
    """Share of the time that an agent's loop was not waiting."""


class Scenario(Part):
    """Everything that a run does, and the conditions of its success."""

    name: Name = "scenario"
    """Name of the run's folder. Default: the name of the file."""
    description: Text = ""
    """One line for the list of scenarios."""
    target: Targets = Field(
        default=(),
        description="Brokers that clients connect to, or publishers of ZeroMQ that already run: "
        f"{', '.join(f'`{each.form}`' for each in SCHEMES)}, or a list of addresses of one "
        "protocol.\nClient c of a population goes to target c modulo their number. `addresses` "
        "chooses among the\naddresses of a host's name. A mapping gives names to targets, also of "
        "several protocols, such as\n`{mqtt: mqtt://one.example, log: kafka://two.example}`: "
        "populations say the name in `at`. Not\nneeded if the topology starts brokers; with both, "
        "each population says `at`. With bridges it can\nbe the broker that they lead to.",
    )
    topology: ScenarioTopology = ScenarioTopology()
    """The brokers that the run itself starts and stops."""
    populations: Mapping[Name, AnyPopulation] = Field(min_length=1)
    """Clients that behave alike, by name."""
    flows: tuple[DeclaredFlow, ...] = ()
    """Flows that programs beside the brokers carry from one name to another, such as `{from:
    "device/{n}/state", of: device, to: "device.{n}.state", at: backend}`. The subscribers are
    expected to receive the messages."""
    scale: Scale = 1.0
    """Factor of all sizes: clients of populations without a publisher, clients that stages connect,
    add or remove, brokers with a bridge to another one, faults of such brokers, and virtual hosts
    of a federation. A size is at least 1. Ranges `{each NAME}` and limits in percent follow the
    sizes."""
    stages: tuple[Stage, ...] = Field(DEFAULT_STAGES, min_length=1)
    """Stages, in order. Default: connect, then publish for 10s."""
    drain: Duration = 5 * SECOND_NS
    """Longest wait without progress for messages in flight after a publish stage. The whole wait
    lasts at most 20 times as long."""
    stall_after: PositiveDurationOrNever = 10 * SECOND_NS
    """Time after which a subscriber counts as stalled: messages were scheduled for it, and it
    received none. The result names it. Or `never`. Messages that cross bridges do not count."""
    max_packet: PacketBytes = 64 * 1024 * 1024
    """Largest MQTT packet that a client accepts from a broker, up to 256MB. A client that gets a
    larger one closes the connection, with the outcome `packet_too_large`."""
    sources: Sources = None
    """Addresses that clients connect from, used in turn: addresses and ranges such as
    127.0.0.1-127.0.0.8, or `auto`: on loopback one for each 10 000 clients of a target. With agents
    on several hosts, name the addresses of all hosts: each agent uses those of its own host."""
    addresses: Addresses | None = None
    """Use of several addresses of a target's name, such as `in_turn`. Default: the first address of
    IPv4, else the first one, and no failover."""
    seed: Seed = 1
    """Seed of every random choice: the same scenario makes the same load."""
    fleet: ScenarioFleet = ScenarioFleet()
    """The agents."""
    snapshot_interval: Interval = SECOND_NS
    """Time between two snapshots of an agent."""
    monitors: Monitors = Monitors()
    """Monitors beside the clients."""
    profile: Profile | None = None
    """`perf record` of a broker in a stage. Default: none."""
    clean_start: Literal["report", "require", "skip"] = "report"
    """Before the run, Pubstorm looks for stale state on the broker: retained messages and sessions
    of earlier runs. `report` reports it, `require` makes the run invalid, `skip` does not look.
    Except for `skip`, Pubstorm removes after the run what this run leaves."""
    sweep: Sweep | None = None
    """Plays the scenario many times with values that vary. Default: once."""
    search: Search | None = None
    """Looks for the largest value at which the scenario passes. Default: the scenario is played as
    it is."""
    table: Mapping[str, Text] = Field(default_factory=dict)
    """Columns of a table of your own: heading and metric, such as `CPU: broker.cpu`. A sweep has
    one row for each step; there, a column can also be a path that it varies, or `number`, `step`,
    `note`, `verdict`, `limited_by`, `command` or `duration`; with a search `search.best`,
    `search.most`, `search.limited_by` or `search.trials`."""
    tables: Mapping[str, Mapping[str, TableColumn]] = Field(default_factory=dict)
    """Tables over a sweep, by title: a row for each step, and by heading a column of one variant's
    metric, such as `{variant: fast, metric: device.lost}`, or of what varies, such as `clients`."""
    thresholds: tuple[ThresholdLine, ...] = ()
    """Conditions of success, such as `device.lost == 0` or `device.latency.p99 < 100ms`. A limit of
    `connected` in percent is about all clients or bridges of that name."""
    abort_when: tuple[ThresholdLine, ...] = ()
    """Conditions that end the run before its time, such as `backend.latency.p99 > 2s`: it has
    failed then. They are evaluated on the run so far: in publish and hold stages from their tenth
    interval on, and after each stage. Lost messages are known after a stage."""
    defaults: Literal["on", "off"] = "on"
    """Default thresholds: every client connects, every message is sent, nothing is lost, no will
    either, and messages of QoS 1 and 2 are acknowledged. A threshold about the same figure of a
    population replaces the default for that population; `off` removes all. Clients that read
    slowly, leave or die by the plan, and stages with a fault, have fewer defaults."""
    validity: Validity = Validity()
    """Limits above which the load generator counts as saturated."""

    @model_validator(mode="before")
    @classmethod
    def mark_kinds(cls, value: Any) -> Any:
        """Gives each population its kind, which depends on the rest of the scenario."""
        return with_kinds(value) if isinstance(value, dict) else value

    @property
    def publishers(self) -> dict[str, StartedPublishers]:
        """The populations of publishers that the run starts, in order: client k of one is a process
        of its own, with a target of its own."""
        populations = self.populations.items()
        return {name: each for name, each in populations if isinstance(each, StartedPublishers)}

    @property
    def server_labels(self) -> frozenset[str]:
        """Labels of the hosts of its brokers, services and publishers."""
        publishers = (each.hosts for each in self.publishers.values())
        return self.topology.labels.union(label for label in publishers if label is not None)

    @property
    def engine_labels(self) -> frozenset[str]:
        """Labels of hosts of agents that play some populations only."""
        simulated = (each for each in self.populations.values() if isinstance(each, Simulated))
        labels = {each.hosts for each in simulated} - {self.fleet.hosts}
        return frozenset(label for label in labels if label is not None)

    @property
    def targets_publish(self) -> bool:
        """True if the targets are publishers of ZeroMQ that already run."""
        return any(isinstance(target, PublisherTarget) for target in self.target)

    @property
    def target_sources(self) -> tuple[Source, ...]:
        """The targets as monitors call them."""
        return sources_of(self.target)

    @property
    def target_sizes(self) -> dict[str, int]:
        """Number of targets of each name."""
        return dict(Counter(target.name for target in self.target))

    def targets_called(self, name: str) -> tuple[Target, ...]:
        """Returns the targets of a name."""
        return tuple(target for target in self.target if target.name == name)

    def targets_of(self, population: Population) -> tuple[Target, ...]:
        """Returns the targets that already run among those that a population connects to."""
        at = population.attached_to
        return self.target if at is None else self.targets_called(at.brokers)

    def publisher_of(self, population: Population) -> StartedPublishers | None:
        """Returns the publishers that a population connects to; None if it connects to others."""
        at = population.attached_to
        publisher = None if at is None else self.populations.get(at.brokers)
        return publisher if isinstance(publisher, StartedPublishers) else None

    def around(self, population: Population) -> RunParts:
        """Returns the parts of the run that the clients of a population depend on."""
        targets, topology = self.targets_of(population), self.topology
        return RunParts(
            publishers=self.publisher_of(population),
            streams=topology.streams,
            exchanges=topology.exchanges,
            populations=self.populations,
            drain_ns=self.drain,
            is_at_target=bool(targets),
            federates=topology.federates,
            virtual_host=getattr(next(iter(targets), None), "virtual_host", MAIN),
        )

    def names_of(self, flow: DeclaredFlow) -> tuple[str, str]:
        """Returns the names in the plan that the messages of a flow have at their publishers, and
        at the subscribers."""
        publisher, receiver = self.populations[flow.of], self.populations[flow.at]
        name = publisher.named(flow.from_, self.around(publisher))
        return name, receiver.named(flow.to, self.around(receiver))

    _source_text: str = PrivateAttr(default="")
    _source: ScenarioText | None = PrivateAttr(default=None)
    _steps: tuple[Step, ...] = PrivateAttr(default=())

    @property
    def source_text(self) -> str:
        """The text it was read from, with the overrides as comments at its end."""
        return self._source_text

    @property
    def source(self) -> ScenarioText:
        """The source of the scenario."""
        assert self._source is not None, "only a scenario that was read can be read again"
        return self._source

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of its sweep, without repeats; none where there is no sweep."""
        return self._steps

    @property
    def directory(self) -> FilePath | None:
        """The folder of the scenario file, where relative paths begin and commands start; None if
        this host does not have it."""
        folder = None if self._source is None else FilePath(self._source.file).absolute().parent
        return folder if folder is not None and folder.is_dir() else None

    def read_from(self, source: ScenarioText, text: str, steps: tuple[Step, ...]) -> Scenario:
        """The same scenario with where it was read from, the text of that with its settings, and
        the steps of its sweep."""
        copy = self.model_copy()
        copy._source = source
        copy._source_text = text
        copy._steps = steps
        return copy


@dataclass(frozen=True, slots=True)
class ScenarioText:
    """Source of a scenario: enough to read the scenario again with other values."""

    text: str
    """Of the file."""
    file: str
    """Path of the file."""
    overrides: tuple[str, ...] = ()
    """`PATH=VALUE` each."""
    target: str | None = None
    """Target instead of the file's; None for that of the file."""
    left_out: tuple[str, ...] = ()
    """Keys and conditions of the file that make no sense with that target or on that cluster, each
    with the reason."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a sweep."""

    variation: Variation
    """Values that the step changes."""
    scenario: Scenario
    """The scenario with that, and without a sweep."""
    played: Variation
    """The values with sizes times the scale, for labels and tables."""
