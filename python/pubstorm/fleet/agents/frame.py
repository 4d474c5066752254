"""The part of an agent that all agents in Python share: its share of one population, its ends of
stdin and stdout, its counts, and its stages from hello to bye. `Play` is what differs between
them."""

from __future__ import annotations

import argparse
import os
import resource
import select
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel, ValidationError

from pubstorm import __version__
from pubstorm.contract.commands import (
    COMMAND,
    AnyCommand,
    ApplyChange,
    Beat,
    BeatAnswer,
    Bye,
    Close,
    EnterStage,
    Hello,
    Resume,
    Stop,
)
from pubstorm.contract.explanation import ExplanationSum
from pubstorm.contract.histogram import Histogram, HistogramSum
from pubstorm.contract.offered_load import target_of
from pubstorm.contract.plan import Plan, PlannedPopulation, PlannedStage
from pubstorm.contract.protocol import PlannedPublication
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
    TargetSnapshot,
)
from pubstorm.contract.target import Target
from pubstorm.quantities import SECOND_NS

STAMP = struct.Struct("<IIQQQ")
"""Run tag, place in the stream, the stream's key, and when it was due and sent."""
NEVER_NS = (1 << 64) - 1
"""Instant that never comes."""


class AgentError(Exception):
    """Reason why an agent cannot continue, and a hint about the remedy."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True)
class ShardArguments:
    """The words of the command line."""

    agent: int
    """Its number among all agents."""
    agents: int
    """Number of agents."""
    population: int
    """Index of its population."""
    share: int
    """Number of its share: the agent plays each client c with c % shares = share."""
    shares: int


@dataclass(frozen=True)
class AgentShard:
    """An agent's share of the plan."""

    plan: Plan
    place: ShardArguments

    @property
    def population(self) -> PlannedPopulation:
        """The population of its clients."""
        return self.plan.populations[self.place.population]

    @property
    def clients(self) -> Sequence[int]:
        """The indices of its clients in their population."""
        return range(self.place.share, self.population.clients, self.place.shares)

    def target(self, client: int) -> Target:
        """The target of a client: where a publisher listens, and where a subscriber connects."""
        return self.plan.targets[target_of(self.plan, self.place.population, client)]

    def first_publication(self, population: int) -> int:
        """Index of the first publication of a population over all populations."""
        return sum(len(each.publications) for each in self.plan.populations[:population])

    def publications(self) -> list[tuple[int, PlannedPublication]]:
        """All publications of the plan in the order of their indices, with their populations."""
        populations = enumerate(self.plan.populations)
        return [(index, each) for index, p in populations for each in p.publications]


def parse_place(words: Sequence[str], module: str, description: str) -> ShardArguments:
    """The place that a command line says; ends the process with words where it says none."""
    parser = argparse.ArgumentParser(
        prog=f"{sys.executable} -m {module}",
        description=f"{description} Reads a plan (one line of JSON), then commands, from stdin; "
        "writes snapshots to stdout.",
    )
    parser.add_argument("--agent", type=int, required=True, help="its number among all agents")
    parser.add_argument("--agents", type=int, required=True, help="how many agents there are")
    parser.add_argument("--population", type=int, required=True, help="index of its population")
    parser.add_argument("--shard", default="0/1", help="its share of that: INDEX/COUNT")
    given = parser.parse_args(words)
    share, slash, shares = given.shard.partition("/")
    if not (slash and share.isdecimal() and shares.isdecimal() and int(share) < int(shares)):
        parser.error(f"--shard: found {given.shard}, allowed is INDEX/COUNT such as 0/1")
    return ShardArguments(given.agent, given.agents, given.population, int(share), int(shares))


STDIN = 0
CHUNK_BYTES = 1 << 16
COMMAND_BYTES_MAX = 1 << 24


class Pipes:
    """stdin and stdout of this process."""

    def __init__(self) -> None:
        self.closed = False
        """True after the end of stdin, which ends the run."""
        self._pending = b""

    def plan_line(self) -> bytes:
        """The first line; empty where there is none."""
        while b"\n" not in self._pending and not self.closed:
            self._fill()
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    @property
    def has_commands(self) -> bool:
        """True if a command waits to be taken."""
        return b"\n" in self._pending

    def wait(self, wait_s: float) -> None:
        """Until something has come, or for so many seconds."""
        if not self.has_commands:
            select.select([STDIN], [], [], wait_s)

    def commands(self) -> list[AnyCommand]:
        """The commands that have come."""
        if select.select([STDIN], [], [], 0)[0]:
            self._fill()
        *lines, self._pending = self._pending.split(b"\n")
        commands = []
        for line in lines:
            try:
                commands.append(COMMAND.validate_json(line))
            except ValidationError:
                # A line that is no command is not the controller's: the agent stops.
                self.closed = True
        return commands

    def say(self, line: BaseModel) -> None:
        """Writes a line; a closed stdout ends the run."""
        try:
            sys.stdout.write(line.model_dump_json(by_alias=True) + "\n")
            sys.stdout.flush()
        except OSError:
            self.closed = True

    def _fill(self) -> None:
        data = os.read(STDIN, CHUNK_BYTES)
        self.closed = self.closed or not data or len(self._pending) > COMMAND_BYTES_MAX
        self._pending += data


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
    explanations: ExplanationSum = field(default_factory=ExplanationSum)
    connect_time: HistogramSum = field(default_factory=HistogramSum)
    flows: dict[int, FlowTally] = field(default_factory=dict)
    elsewhere: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Deliveries that another population expects no more, by its publisher and it: its group
    received them here."""
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
        self._unexpected = Counter[int]()
        """Deliveries of this stage up to the last snapshot that were not expected here, by
        population of the publisher."""
        self._elsewhere = Counter[tuple[int, int]]()
        """Deliveries of this stage up to the last snapshot that other populations expect no
        more."""
        self.gauges = Counter[str]()
        self.connected_at = Counter[int]()
        """Clients connected, by target."""
        self.ledger_pairs = 0

    def begin_stage(self) -> None:
        """Counts the deliveries of a stage anew; to be called after a snapshot."""
        self._unexpected.clear()
        self._elsewhere.clear()

    def exclude_from_loss(self) -> None:
        """Expects what was received in this stage, as engines expect nothing for the population."""
        for flow in self.now.flows.values():
            flow.counters["expected_total"] += _unexpected(flow)
        for source, received in self._unexpected.items():
            self.now.flows.setdefault(source, FlowTally()).counters["expected_total"] += received

    def exclude_other(self, population: int) -> None:
        """Leaves the expected deliveries of another population in this stage as they are: engines
        expect nothing for it."""
        for pair, number in (self._elsewhere + self.now.elsewhere).items():
            if pair[1] == population:
                self.now.elsewhere[pair] -= number

    def snapshot(self, stage: int | None, *, settled: bool) -> Snapshot:
        """The interval until now; the next one begins here."""
        done, self.now = self.now, Counts()
        for source, flow in done.flows.items():
            self._unexpected[source] += _unexpected(flow)
        self._elsewhere.update(done.elsewhere)
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
            explanations=done.explanations.value(),
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
            flows=tuple(_flows(own, done)),
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


def _unexpected(flow: FlowTally) -> int:
    """Returns the deliveries that were not expected where they were received."""
    return flow.counters["received_total"] - flow.counters["expected_total"]


def _flows(own: int, done: Counts) -> Iterator[FlowSnapshot]:
    """Yields the flows to a population, and those to others whose groups received messages here."""
    flows = {(source, own): flow for source, flow in done.flows.items()}
    less = ((pair, number) for pair, number in done.elsewhere.items() if number)
    flows |= {pair: FlowTally(Counter(expected_total=-number)) for pair, number in less}
    yield from (_flow(source, to, flow) for (source, to), flow in sorted(flows.items()))


def _flow(source: int, to: int, flow: FlowTally) -> FlowSnapshot:
    fields = {
        "source": source,
        "to": to,
        "counters": FlowCounters(**flow.counters),
        "latency_intended": flow.latency_intended.value(),
        "latency_actual": flow.latency_actual.value(),
    }
    return FlowSnapshot.model_validate(fields)


class Play(Protocol):
    """The actions of an agent in its stages."""

    library: str
    """Library that plays the clients, with its version."""

    def enter(self, stage: PlannedStage, at_ns: int) -> None:
        """Begins a stage at an instant; its population may have no part in the stage."""

    def resume(self, resume: Resume) -> None:
        """Continues where the former process has ended, in the stage that was entered."""

    def change(self, change: ApplyChange) -> None:
        """A population changes, its own or another one."""

    def close(self) -> None:
        """A publish stage ends now."""

    def wait(self, pipes: Pipes, wait_s: float) -> None:
        """Until a command has come or there is something to do, or for so many seconds."""

    def turn(self, now_ns: int) -> int:
        """Does what there is to do, for about a millisecond at most; when there is more, in
        nanoseconds on the monotonic clock."""

    def settled(self) -> bool:
        """True if this agent has done all of its part in the stage."""

    def end(self) -> None:
        """The run is over."""


class Agent:
    """One agent, from hello to bye."""

    def __init__(self, part: AgentShard, pipes: Pipes, tally: AgentTally) -> None:
        self._part = part
        self._pipes = pipes
        self._tally = tally
        self._stage: int | None = None
        self._coming: EnterStage | None = None
        self._resume: Resume | None = None
        self._was_settled = False

    def run(self, play: Play) -> None:
        """Plays until the controller stops it or closes stdin."""
        self._greet(play.library)
        interval_ns = self._part.plan.snapshot_interval_ns
        next_ns = time.monotonic_ns() + interval_ns
        wake_ns, stopped = 0, False
        while not stopped and not self._pipes.closed:
            coming_ns = wake_ns if self._coming is None else min(wake_ns, self._coming.at_ns)
            stopped = self._take_commands(play, min(coming_ns, next_ns))
            began_ns = time.monotonic_ns()
            if self._coming is not None and began_ns >= self._coming.at_ns:
                self._enter(play, self._coming)
            wake_ns = play.turn(began_ns)
            now_ns = time.monotonic_ns()
            self._tally.now.busy_ns += now_ns - began_ns
            settled = play.settled()
            if now_ns >= next_ns or (settled and not self._was_settled):
                self._snapshot(settled=settled)
            if now_ns >= next_ns:
                next_ns += ((now_ns - next_ns) // interval_ns + 1) * interval_ns
            self._was_settled = settled
        play.end()
        self._snapshot(settled=self._was_settled)
        self._pipes.say(Bye(snapshots=self._tally.snapshots))

    def _greet(self, library: str) -> None:
        place, populations = self._part.place, self._part.plan.populations
        own = {place.population: len(self._part.clients)}
        hello = Hello(
            agent=place.agent,
            agents=place.agents,
            version=__version__,
            pid=os.getpid(),
            descriptors=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            clients=tuple(own.get(index, 0) for index in range(len(populations))),
            clock_ns=time.monotonic_ns(),
            library=library,
        )
        self._pipes.say(hello)

    def _take_commands(self, play: Play, until_ns: int) -> bool:
        """Waits for commands, and takes them; whether it is to stop."""
        wait_ns = until_ns - time.monotonic_ns()
        if wait_ns > 0:
            play.wait(self._pipes, wait_ns / SECOND_NS)
        for command in self._pipes.commands():
            match command:
                case EnterStage():
                    self._coming = command
                case Resume():
                    self._resume = command
                case ApplyChange():
                    play.change(command)
                case Close():
                    play.close()
                case Beat():
                    self._pipes.say(BeatAnswer())
                case Stop():
                    return True
        return False

    def _enter(self, play: Play, coming: EnterStage) -> None:
        """Enters a stage after a last snapshot of the stage before: each covers one stage only."""
        play.close()
        self._snapshot(settled=play.settled())
        stage = self._part.plan.stages[coming.index]
        self._stage, self._coming, self._was_settled = coming.index, None, False
        self._tally.begin_stage()
        play.enter(stage, coming.at_ns)
        if self._resume is not None:
            play.resume(self._resume)
            self._resume = None

    def _snapshot(self, *, settled: bool) -> None:
        self._pipes.say(self._tally.snapshot(self._stage, settled=settled))
