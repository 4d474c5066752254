"""Fills the code that merges a run with days of its snapshots and readings, at any speed: a million
clients on 16 agents, in four populations. The recorder, the run directory and the result are those
of the controller; only agents, monitors and time are not real."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pubstorm.contract import Sample, Source
from pubstorm.contract.histogram import Histogram
from pubstorm.contract.snapshot import PopulationSnapshot, Snapshot
from pubstorm.fleet import SnapshotReceived
from pubstorm.fleet.programs import Assignment
from pubstorm.measure.assemble import Assembly, limits_of
from pubstorm.measure.monitors.monitoring import Monitored
from pubstorm.measure.recorder import Recorder
from pubstorm.measure.run_log import RunLog, StageSpan
from pubstorm.play.context import RunInfo, RunOutput, RunStart
from pubstorm.play.directory import PLAN_FILE, RunDirectory
from pubstorm.play.display import Live
from pubstorm.play.record import record
from pubstorm.report import SCENARIO_FILE
from pubstorm.result import RunResult
from pubstorm.result.samples import START_FILE
from pubstorm.scenario import parse_scenario
from pubstorm.topology.started import Started
from tests.kit import made
from tests.kit.made import SECOND_NS, START_NS
from tests.kit.measured import ENVIRONMENT

SCENARIO = """\
description: a million clients
target: mqtt://127.0.0.1
snapshot_interval: {interval_s}s
monitors: {{interval: {interval_s}s}}
defaults: "off"
populations:
  device: {{clients: 500k, publications: [{{topic: "up/{{n}}", interval: 5min, qos: 1}}]}}
  mobile: {{clients: 499k, subscriptions: ["down/{{n}}"]}}
  sender: {{clients: 500, publications: [{{topic: "down/{{n}}", rate: 1/s, qos: 1}}]}}
  backend: {{clients: 500, subscriptions: ["up/#"]}}
stages:
  - connect: {{}}
  - publish: {{for: {load_s}s, name: load}}
thresholds: [backend.received_per_s > 1/s, "broker-0.rss_bytes < 8GB"]
"""
FLOWS = ((0, 3), (0, 1), (2, 1), (2, 3))
"""Publishing and receiving population of each flow."""
VARIANTS = 32
"""Snapshots of an agent with other latencies; they come in turn."""
BROKER = Source.member("broker", "broker", 0)


@dataclass(frozen=True)
class Size:
    """Size of a run."""

    hours: float
    interval_s: int = 1
    agents: int = 16
    series: int = 100
    """Series of monitors."""
    durations: int = 15
    """Messages of an agent in a flow and an interval."""

    @property
    def intervals(self) -> int:
        """Intervals of publishing."""
        return round(self.hours * 3600) // self.interval_s


class LongRun:
    """A run that is filled as fast as the code takes it."""

    def __init__(self, folder: Path, size: Size) -> None:
        self.size = size
        text = SCENARIO.format(interval_s=size.interval_s, load_s=size.intervals * size.interval_s)
        self.scenario = parse_scenario(text, "scenario.yaml")
        self.plan = made.compiled(text)
        self.directory = RunDirectory.create(folder)
        self.directory.write(SCENARIO_FILE, text)
        self.directory.write(PLAN_FILE, self.plan.model_dump_json())
        self.hellos = tuple(made.hello(agent, size.agents) for agent in range(size.agents))
        self.directory.write(START_FILE, self._start().model_dump_json())
        self.run_log = RunLog(START_NS)
        assignment = Assignment.among(self.plan, size.agents)
        self.recorder = Recorder(self.plan, assignment, self.run_log, self.directory)
        self.recorder.kept.interval_s = float(size.interval_s)
        self.directory.merging = self.recorder.kept.merging
        self._lines = [list(self._variants(agent)) for agent in range(size.agents)]
        self._sources = list(_sources(size.series))
        self._chance = random.Random(7)
        self.bytes_taken = 0
        """Bytes of the snapshots so far."""

    def fill(self) -> Iterator[int]:
        """Fills the run; yields the number of each interval that is over."""
        width_ns = self.size.interval_s * SECOND_NS
        self.recorder.enter(0, START_NS)
        self.run_log.spans.append(_span(0, START_NS, START_NS + width_ns))
        load_ns = self.size.intervals * width_ns
        for interval in range(self.size.intervals + 1):
            from_ns = START_NS + interval * width_ns
            if interval == 1:
                self.recorder.enter(1, from_ns)
                self.run_log.spans.append(_span(1, from_ns, from_ns + load_ns))
            for agent, lines in enumerate(self._lines):
                line = _placed(lines[interval % VARIANTS], interval, from_ns, width_ns)
                self.bytes_taken += len(line)
                snapshot = Snapshot.model_validate_json(line)
                received = SnapshotReceived(snapshot, line)
                self.recorder.take(received, min(interval, 1))
                assert snapshot.agent == agent
            self.recorder.add_samples(list(self._readings((interval + 1) * self.size.interval_s)))
            yield interval

    def settle(self) -> None:
        """Waits until all journals that are full are compressed and merged, as in real time."""
        if self.directory._ageing is not None:
            self.directory._ageing.wait()

    def finish(self) -> RunResult:
        """Ends the run, evaluates it and stores the result."""
        self.recorder.finish()
        self.run_log.ended_ns = self.run_log.spans[-1].to_ns
        self.run_log.endings = {hello.agent: "bye" for hello in self.hellos}
        assembly = Assembly(
            plan=self.plan,
            hellos=self.hellos,
            run_log=self.run_log,
            sums=self.recorder.sums,
            timeline=self.recorder.timeline,
            limits=limits_of(self.scenario),
        )
        output = RunOutput(
            assembly=assembly,
            tracks=self.recorder.kept.tracks,
            monitored=Monitored(),
            brokers=(),
            services=(),
            bridges=(),
            environment=ENVIRONMENT,
        )
        began = datetime(2026, 11, 27, tzinfo=UTC)
        ended = began + timedelta(hours=self.size.hours)
        info = RunInfo(self.scenario, self.directory, Live(), began, "", reports=False, ended=ended)
        with contextlib.closing(self.directory):
            return record(info, output)

    def _start(self) -> RunStart:
        return RunStart(
            process=Started(kind="run", name="pubstorm", pid=1, boot="none", ticks=1),
            file="scenario.yaml",
            overrides=(),
            target=None,
            command="",
            started="2026-11-27T00:00:00+00:00",
            started_ns=START_NS,
            started_unix_ns=1_795_262_400 * SECOND_NS,
            hellos=self.hellos,
            on="local",
            hosts={},
            environment=ENVIRONMENT,
            brokers=(),
            services=(),
            bridges=(),
        )

    def _variants(self, agent: int) -> Iterator[bytes]:
        """Yields snapshots of an agent without place in time, as the engine writes them."""
        chance = random.Random(agent)
        for _ in range(VARIANTS):
            made_one = self._snapshot(agent, chance).model_dump(mode="json", by_alias=True)
            fields: dict[str, Any] = {**made_one, "sequence": 0, "from_ns": 0, "to_ns": 0}
            for name in ("kind", "sequence", "stage", "from_ns", "to_ns"):
                fields.pop(name)
            yield json.dumps(fields, separators=(",", ":")).encode()

    def _snapshot(self, agent: int, chance: random.Random) -> Snapshot:
        count = self.size.durations

        def latencies(scale_ns: float) -> Histogram:
            return Histogram.of(
                [round(scale_ns * chance.lognormvariate(0, 0.6)) for _ in range(count)]
            )

        def publishing(clients: int) -> PopulationSnapshot:
            acks = latencies(4e5), latencies(3e5)
            sent = len(FLOWS) // 2 * count
            return made.population(
                acks=acks[0],
                acks_actual=acks[1],
                sent_total=sent,
                acked_total=sent,
                bytes_sent_total=130 * sent,
                connected=clients,
                ready=clients,
                in_flight=chance.randint(0, 9),
            )

        def reading(clients: int) -> PopulationSnapshot:
            received = 140 * count * chance.randint(9, 11) // 10
            return made.population(connected=clients, ready=clients, bytes_received_total=received)

        agents = self.size.agents
        populations = (
            publishing(500_000 // agents),
            reading(499_000 // agents),
            publishing(500 // agents),
            reading(500 // agents),
        )
        flows = tuple(
            made.flow(
                source,
                to,
                latencies(6e5),
                latencies(5e5),
                expected_total=count,
                received_total=count,
            )
            for source, to in FLOWS
        )
        width_ns = self.size.interval_s * SECOND_NS
        load = made.load(
            busy_ns=width_ns // 5 + chance.randint(0, width_ns // 50),
            cpu_ns=width_ns // 6 + chance.randint(0, width_ns // 50),
            run_delay_ns=chance.randint(0, 10**6),
            rss_bytes=9_000_000 + 4096 * chance.randint(0, 9),
            ledger_pairs=1000,
            lateness=latencies(6e4),
        )
        return made.snapshot(*populations, from_ns=0, agent=agent, flows=flows, engine=load)

    def _readings(self, at_s: float) -> Iterator[Sample]:
        """Yields readings of the monitors: counts, and gauges that vary by chance."""
        instant_s = at_s + 0.01 * self._chance.random()
        for number, (source, metric) in enumerate(self._sources):
            noise = self._chance.random()
            value = at_s * (number + 1) if number % 3 == 0 else 1e6 * (number + noise)
            yield Sample(source, metric, round(instant_s, 3), round(value, 3))


def _sources(series: int) -> Iterator[tuple[Source, str]]:
    yield BROKER, "$SYS/messages/received"
    yield BROKER, "rss_bytes"
    yield BROKER, "cpu"
    for number in range(3, series):
        yield BROKER, f"broker_figure_{number}"


def _placed(line: bytes, interval: int, from_ns: int, width_ns: int) -> bytes:
    stage = min(interval, 1)
    head = f'{{"kind":"snapshot","sequence":{interval},"stage":{stage},'
    place = f'"from_ns":{from_ns},"to_ns":{from_ns + width_ns},'
    return (head + place).encode() + line[1:] + b"\n"


def _span(index: int, from_ns: int, to_ns: int) -> StageSpan:
    return StageSpan(index, from_ns, to_ns if index else from_ns, to_ns, settled=True)
