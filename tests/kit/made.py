"""Plans, snapshots and run logs made by hand: each builder has defaults for what a test leaves
out."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pubstorm.contract import OTHER_HOST, Sample, Source, split_member
from pubstorm.contract.commands import Hello
from pubstorm.contract.histogram import Histogram
from pubstorm.contract.plan import Plan, PlannedAttachment, PlannedPopulation
from pubstorm.contract.protocol import Mqtt
from pubstorm.contract.reasons import Reason
from pubstorm.contract.snapshot import (
    Answer,
    Counters,
    EngineLoad,
    FlowCounters,
    FlowSnapshot,
    Gauges,
    PopulationSnapshot,
    Snapshot,
)
from pubstorm.contract.sums import RunSum
from pubstorm.contract.target import Target
from pubstorm.fleet.programs import Assignment
from pubstorm.measure.assemble import Assembly
from pubstorm.measure.recorder import LoadSampler
from pubstorm.measure.run_log import RunLog, StageSpan
from pubstorm.plan import compile_plan, planned_targets
from pubstorm.result import ValidityLimits
from pubstorm.result.timeline import Timeline
from pubstorm.result.timeline.rows import COUNTS, GAUGES, Row
from pubstorm.scenario import parse_scenario

GOLDEN = Path(__file__).parents[2] / "contract" / "golden"
SECOND_NS = 10**9
START_NS = 1000 * SECOND_NS
EMPTY = Histogram()
LIMITS = ValidityLimits(lateness_p99_us=10_000, busy=0.9)


def source(name: str) -> Source:
    """The source that has this name in tests: numbered names are agents and brokers, a few others
    have kinds of their own, and the rest are populations."""
    group, number = split_member(name)
    if number is not None and group in {"agent", "broker", "cloud", "main", "node"}:
        return Source.member("agent" if group == "agent" else "broker", group, number)
    if name == "host" or name.startswith(OTHER_HOST):
        return Source.single("host", name)
    if name in {"boxes", "broker"}:
        return Source.single("broker", name)
    if name == "redis":
        return Source.single("service", name)
    return Source.single("bridge" if name in {"uplink", "up"} else "population", name)


def golden_plan() -> Plan:
    """The plan that both languages read."""
    text = (GOLDEN / "plan.json").read_text()
    return Plan.model_validate(json.loads(text), strict=False)


def compiled(text: str) -> Plan:
    """The plan of a scenario."""
    scenario = parse_scenario(text, "s.yaml")
    return compile_plan(scenario, planned_targets(scenario), run_tag=1)


def plan(*populations: PlannedPopulation, **parts: Any) -> Plan:
    """A plan for one target; `parts` are its other fields."""
    fields: dict[str, Any] = {
        "name": "plan",
        "run_tag": 1,
        "seed": 1,
        "targets": (Target(host="127.0.0.1", port=1883),),
        "targets_joined": False,
        "sources": (),
        "snapshot_interval_ns": SECOND_NS,
        "drain_ns": 0,
        "populations": populations,
        "stages": (),
    }
    return Plan(**{**fields, **parts})


def clients(name: str, **parts: Any) -> PlannedPopulation:
    """10 clients of MQTT at the only target; `parts` are other fields of the population."""
    fields: dict[str, Any] = {
        "name": name,
        "clients": 10,
        "first": 0,
        "at": PlannedAttachment(first=0, count=1),
        "protocol": Mqtt(client_id=f"{name}-{{n}}", clean_session=True),
        "username": None,
        "password": None,
        "tls": None,
        "keep_alive_s": 60,
        "connect_timeout_ns": 10 * SECOND_NS,
        "reconnect": None,
        "read_rate_per_s": None,
        "subscriptions": (),
        "publications": (),
    }
    return PlannedPopulation(**{**fields, **parts})


def hello(agent: int = 0, agents: int = 1, **parts: Any) -> Hello:
    """The first line of an agent."""
    fields = {"version": "1", "pid": 1, "descriptors": 9, "clients": (), "clock_ns": 0}
    return Hello(agent=agent, agents=agents, **{**fields, **parts})


def population(
    *,
    acks: Histogram = EMPTY,
    acks_actual: Histogram = EMPTY,
    connect_time: Histogram = EMPTY,
    outcomes: dict[Reason | Answer, int] | None = None,
    **counts: int,
) -> PopulationSnapshot:
    """A population's interval; `counts` are gauges and counters, by their names."""
    gauges = {name: counts.pop(name) for name in [*counts] if name in Gauges.model_fields}
    return PopulationSnapshot(
        gauges=Gauges(**gauges),
        counters=Counters(**counts),
        outcomes=outcomes or {},
        connect_time=connect_time,
        ack_intended=acks,
        ack_actual=acks_actual,
    )


def flow(
    source: int, to: int, intended: Histogram = EMPTY, actual: Histogram = EMPTY, **counts: int
) -> FlowSnapshot:
    """A flow's interval, with its latencies from the intended and from the actual send."""
    named: dict[str, Any] = {"from": source}
    return FlowSnapshot(
        **named,
        to=to,
        counters=FlowCounters(**counts),
        latency_intended=intended,
        latency_actual=actual,
    )


def load(**parts: Any) -> EngineLoad:
    """The load of an engine that does nothing else."""
    fields: dict[str, Any] = dict.fromkeys(
        ("busy_ns", "cpu_ns", "rss_bytes", "ledger_pairs", "unfollowed_total"), 0
    )
    return EngineLoad(**{**fields, "lateness": EMPTY, "blocked": EMPTY, **parts})


def snapshot(*populations: PopulationSnapshot, from_ns: int, **parts: Any) -> Snapshot:
    """A second of the only agent in stage 1, unless `parts` have other values."""
    fields: dict[str, Any] = {
        "agent": 0,
        "sequence": 0,
        "stage": 1,
        "from_ns": from_ns,
        "to_ns": from_ns + SECOND_NS,
        "settled": False,
        "populations": populations,
        "flows": (),
        "engine": load(),
    }
    return Snapshot(**{**fields, **parts})


def run_log(from_ns: int, until_ns: int, *, drain_s: int = 0, **parts: Any) -> RunLog:
    """The log of a run that connects until `from_ns`, and publishes from then on."""
    to_ns = until_ns + drain_s * SECOND_NS
    spans = [
        StageSpan(0, START_NS, START_NS, from_ns, settled=True),
        StageSpan(1, from_ns, until_ns, to_ns, settled=True),
    ]
    return RunLog(START_NS, **{"ended_ns": until_ns, "spans": spans, **parts})


def assembly(
    played: Plan, log: RunLog, snapshots: Iterable[Snapshot], *hellos: Hello, **parts: Any
) -> Assembly:
    """The measurements of a run, under the usual limits."""
    taken = list(snapshots)
    line = timeline(played, taken, log.started_ns)
    return Assembly(played, list(hellos), log, sums(taken), line, LIMITS, **parts)


def sums(snapshots: Iterable[Snapshot]) -> RunSum:
    """The sums of some snapshots."""
    found = RunSum()
    for each in snapshots:
        found.take(each)
    return found


def timeline(played: Plan, snapshots: Iterable[Snapshot], started_ns: int = START_NS) -> Timeline:
    """The timeline of some snapshots."""
    found = Timeline(played, started_ns)
    for each in snapshots:
        found.take(each)
    return found


class Sampled:
    """A timeline with the samples that are made of it."""

    def __init__(self, played: Plan, agents: int = 1) -> None:
        self.line = Timeline(played, START_NS)
        self.sampler = LoadSampler(played, Assignment.among(played, agents), self.line)

    def take(self, snapshot: Snapshot) -> list[Sample]:
        """Takes a snapshot; the samples of the spans that are complete with it."""
        return self.sampler.take(self.line.take(snapshot), snapshot)

    def fail(self, agent: int, at_ns: int) -> None:
        """Makes an agent fail in the first stage."""
        self.sampler.fail(agent, self.line.fail(agent, at_ns, 0))

    def all(self, snapshots: Iterable[Snapshot]) -> list[Sample]:
        """All samples of some snapshots."""
        found = [sample for each in snapshots for sample in self.take(each)]
        return found + self.sampler.finish()


def row(agent: int, from_ns: int, to_ns: int, *clients: Mapping[str, int], **parts: Any) -> Row:
    """A row with the gauges and counts of each population."""
    gauges, counts = (
        array("q", (each.get(name, 0) for name in names for each in clients))
        for names in (GAUGES, COUNTS)
    )
    fields = {"sequence": 0, "stage": 1, "gauges": gauges, "counts": counts, **parts}
    return Row(agent=agent, from_ns=from_ns, to_ns=to_ns, **fields)
