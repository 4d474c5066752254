"""Counts of an agent since its last snapshot, and the snapshot of them."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from pubstorm.contract.histogram import Histogram, HistogramSum
from pubstorm.contract.snapshot import (
    Answer,
    Counters,
    EngineLoad,
    FlowCounters,
    FlowSnapshot,
    Gauges,
    PopulationSnapshot,
    Reason,
    Snapshot,
    TargetSnapshot,
)
from pubstorm.fleet.zmq_agent.part import AgentShard

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
NOTHING = Histogram()
IDLE = PopulationSnapshot(
    gauges=Gauges(),
    counters=Counters(),
    outcomes={},
    connect_time=NOTHING,
    ack_intended=NOTHING,
    ack_actual=NOTHING,
)


@dataclass
class FlowTally:
    """Deliveries of one population's messages."""

    counters: Counter[str] = field(default_factory=Counter)
    latency_intended: HistogramSum = field(default_factory=HistogramSum)
    latency_actual: HistogramSum = field(default_factory=HistogramSum)


@dataclass
class Counts:
    """Events since the last snapshot."""

    counters: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[Reason | Answer] = field(default_factory=Counter)
    connect_time: HistogramSum = field(default_factory=HistogramSum)
    flows: dict[int, FlowTally] = field(default_factory=dict)
    targets: dict[int, Counter[str]] = field(default_factory=dict)
    lateness: HistogramSum = field(default_factory=HistogramSum)
    busy_ns: int = 0
    unfollowed_total: int = 0


class AgentTally:
    """The counts of an agent, and what is true of it now."""

    def __init__(self, part: AgentShard) -> None:
        self._part = part
        self._from_ns = time.monotonic_ns()
        self._cpu_ns = time.process_time_ns()
        self._run_delay_ns = run_delay_ns()
        self.now = Counts()
        self.snapshots = 0
        """Number of snapshots made."""
        self.gauges = Counter[str]()
        self.connected_at = Counter[int]()
        """Clients connected, by target."""
        self.ledger_pairs = 0

    def snapshot(self, stage: int | None, *, settled: bool) -> Snapshot:
        """The interval until now; the next one begins here."""
        done, self.now = self.now, Counts()
        from_ns, self._from_ns = self._from_ns, time.monotonic_ns()
        cpu_ns, self._cpu_ns = self._cpu_ns, time.process_time_ns()
        delay_ns, self._run_delay_ns = self._run_delay_ns, run_delay_ns()
        self.snapshots += 1
        own = self._part.place.population
        populations = [IDLE] * len(self._part.plan.populations)
        populations[own] = PopulationSnapshot(
            gauges=Gauges(**self.gauges),
            counters=Counters(**done.counters),
            outcomes=dict(done.outcomes),
            connect_time=done.connect_time.value(),
            ack_intended=NOTHING,
            ack_actual=NOTHING,
        )
        return Snapshot(
            agent=self._part.place.agent,
            sequence=self.snapshots - 1,
            stage=stage,
            from_ns=from_ns,
            to_ns=self._from_ns,
            settled=settled,
            populations=tuple(populations),
            flows=tuple(_flow(source, own, flow) for source, flow in sorted(done.flows.items())),
            targets=tuple(
                TargetSnapshot(target=target, connected=self.connected_at[target], **counts)
                for target, counts in sorted(done.targets.items())
            ),
            engine=EngineLoad(
                busy_ns=min(done.busy_ns, self._from_ns - from_ns),
                cpu_ns=self._cpu_ns - cpu_ns,
                run_delay_ns=_growth(delay_ns, self._run_delay_ns),
                rss_bytes=rss_bytes(),
                lateness=done.lateness.value(),
                blocked=NOTHING,
                ledger_pairs=self.ledger_pairs,
                unfollowed_total=done.unfollowed_total,
            ),
        )


def rss_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def run_delay_ns() -> int | None:
    """Time in which this thread could run and had no processor; None if the kernel does not count
    it."""
    try:
        on_cpu_ns, delay_ns, _ = Path("/proc/thread-self/schedstat").read_text().split()
    except (OSError, ValueError):
        return None
    return int(delay_ns) if int(on_cpu_ns) else None


def _growth(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None else max(now - before, 0)


def _flow(source: int, to: int, flow: FlowTally) -> FlowSnapshot:
    fields = {
        "source": source,
        "to": to,
        "counters": FlowCounters(**flow.counters),
        "latency_intended": flow.latency_intended.value(),
        "latency_actual": flow.latency_actual.value(),
    }
    return FlowSnapshot.model_validate(fields)
