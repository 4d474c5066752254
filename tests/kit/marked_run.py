"""A run in this process with three marked values: the rate of a publication, the latencies in each
snapshot of an agent, and the CPU time of a broker. The agent is a slot of this process. The broker
is a program that only listens. Everything between is the real code.

A walk ends at a form of its value that MARKS does not know: a new form belongs there."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pubstorm.cli.run import play
from pubstorm.contract.commands import Bye, Hello
from pubstorm.contract.histogram import Histogram, HistogramSum
from pubstorm.contract.plan import Plan
from pubstorm.contract.snapshot import Snapshot
from pubstorm.errors import FleetError
from pubstorm.experiment.comparison import Question, compare_stored
from pubstorm.experiment.invocation import Invocation
from pubstorm.exports import Exports, Item, Run
from pubstorm.exports.tally import Tally
from pubstorm.fleet import Slot
from pubstorm.fleet.site import AgentCommand
from pubstorm.host import proc
from pubstorm.host.members import LocalProcesses, ProcessReading
from pubstorm.host.preflight.needs import AgentHost
from pubstorm.measure.monitors import choice
from pubstorm.play import one_run
from pubstorm.play.display import Live
from pubstorm.report import document_of
from pubstorm.report.files import markdown
from pubstorm.web.metrics import CONTENT_TYPE, page
from pubstorm.web.now import VerdictSoFar
from pubstorm.web.process import FAMILIES
from tests.kit import made
from tests.kit.made import SECOND_NS
from tests.kit.trace import Marks, Trace

RATE_PER_S = 9.40613
LATENCY_NS = 7_317_130
LATENCIES = Histogram.of([LATENCY_NS] * 73)
TICKS = 1_371_250
"""CPU time of the broker between two readings, in clock ticks. Its share of a core is a number that
no sum or mean rounds."""
LOOK_S = 100
"""Time between two readings on the clock of the broker's processes."""
CPU = TICKS / LOOK_S / proc.TICKS_PER_S
PERIOD_NS = SECOND_NS / RATE_PER_S
MARKS = {
    "rate": Marks(
        numbers=(RATE_PER_S, PERIOD_NS, round(PERIOD_NS)),
        texts=(str(RATE_PER_S), str(round(PERIOD_NS))),
    ),
    "histogram": Marks(
        numbers=(LATENCY_NS, LATENCY_NS / 1e3, LATENCY_NS / 1e6, LATENCY_NS / 1e9),
        texts=(str(LATENCY_NS), str(LATENCY_NS / 1e3)),
        classes=(Histogram, HistogramSum),
    ),
    "cpu": Marks(
        numbers=(TICKS, CPU, 100 * CPU),
        texts=(str(TICKS), str(CPU)),
    ),
}
BROKER = (
    "import signal, socket, sys; s = socket.create_server(('', int(sys.argv[1]))); signal.pause()"
)
SCENARIO = f"""\
clean_start: skip
monitors: {{interval: 100ms}}
topology:
  brokers:
    broker: {{kind: command, command: ["{sys.executable}", "-c", "{BROKER}", "{{port}}"]}}
populations:
  device: {{clients: 10, publications: [{{topic: "t/{{n}}", rate: {RATE_PER_S}/s, qos: 1}}]}}
  backend: {{clients: 1, subscriptions: ["t/#"]}}
stages: [connect, publish: 3s]
thresholds: [broker.cpu < 1000, backend.latency.p99 < 1s]
"""
"""Its publish stage is long enough for the histograms of a second to be packed away."""
SNAPSHOTS_S = 0.1
READINGS = 3
"""Readings of the broker in each stage before the agent has settled."""


class MarkedAgent:
    """A slot of this process, and the only agent in it."""

    host, name, agents = "", "agent 0", 1

    def __init__(self, trace: Trace, is_settled: Callable[[int], bool]) -> None:
        self._trace = trace
        self._is_settled = is_settled
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._to_ns = time.monotonic_ns()
        self._snapshots = 0
        self._playing: asyncio.Task[None] | None = None

    async def spawn(self) -> None:
        """Does nothing: the process runs."""

    async def send(self, line: str) -> None:
        """Follows a command. The first line is the plan, which ends the walk of the rate."""
        command = json.loads(line)
        if "populations" in command:
            self._trace.end("rate")
            self._say(made.hello(clients=(10, 1), clock_ns=time.monotonic_ns()))
        elif command["command"] == "stage":
            if self._playing is not None:
                self._playing.cancel()
            self._playing = asyncio.create_task(self._play(command["index"]))
        elif command["command"] == "stop":
            self._say(Bye(snapshots=self._snapshots))
            self._lines.put_nowait(b"")
            self._code.set_result(0)

    async def line(self) -> bytes:
        """Returns the next line."""
        return await self._lines.get()

    async def wait(self) -> int:
        """Returns the exit code."""
        return await asyncio.shield(self._code)

    def kill(self) -> None:
        """Ends the agent."""
        if self._playing is not None:
            self._playing.cancel()
        if not self._code.done():
            self._code.set_result(-9)

    def last_words(self) -> str:
        """Returns nothing."""
        return ""

    async def _play(self, stage: int) -> None:
        while True:
            self._report(stage)
            await asyncio.sleep(SNAPSHOTS_S)

    def _report(self, stage: int) -> None:
        count = LATENCIES.count if stage else 0
        flow = made.flow(0, 1, LATENCIES, LATENCIES, expected_total=count, received_total=count)
        joined = 0 if self._snapshots else 1
        device = made.population(
            connected=10,
            ready=10,
            connect_attempts_total=10 * joined,
            connected_total=10 * joined,
            sent_total=count,
        )
        backend = made.population(
            connected=1,
            ready=1,
            connect_attempts_total=joined,
            connected_total=joined,
            subscribed_total=joined,
        )
        from_ns, self._to_ns = self._to_ns, time.monotonic_ns()
        snapshot = made.snapshot(
            device,
            backend,
            from_ns=from_ns,
            to_ns=self._to_ns,
            sequence=self._snapshots,
            stage=stage,
            settled=self._is_settled(stage),
            flows=(flow,) if stage else (),
        )
        self._snapshots += 1
        self._say(snapshot)

    def _say(self, line: Hello | Snapshot | Bye) -> None:
        self._lines.put_nowait(line.model_dump_json(by_alias=True).encode() + b"\n")


class Here:
    """The site of the agent."""

    def __init__(self, make: Callable[[], Slot]) -> None:
        self._make = make

    def hosts(self, label: str | None) -> Sequence[AgentHost]:  # noqa: ARG002
        """Returns one host with room."""
        return [AgentHost("", "x86_64", 4, 5000, 2**34)]

    async def open(self) -> None:
        """Does nothing."""

    def localised(self, plan: Plan) -> Plan:
        """Returns the plan."""
        return plan

    async def place(self, commands: Sequence[AgentCommand]) -> Sequence[Slot]:
        """Makes the agent."""
        return [self._make() for _ in commands]

    async def place_programs(
        self,
        commands: Sequence[AgentCommand],  # noqa: ARG002
        addresses: Sequence[str],  # noqa: ARG002
    ) -> Sequence[Slot]:
        """Places nothing."""
        return []

    async def replace(self, agent: int) -> Slot:
        """Finds no other place."""
        raise FleetError(f"agent {agent} has one place")

    async def close(self) -> None:
        """Does nothing."""


class MarkedProcesses(LocalProcesses):
    """The processes of this machine, on a clock of their own."""

    readings = 0

    def look_at(self, roots: Sequence[int]) -> ProcessReading:
        """Returns the processes, LOOK_S after the last time."""
        MarkedProcesses.readings += 1
        return replace(super().look_at(roots), at_s=float(LOOK_S * self.readings))


def marked_stat(read: Callable[[str], bytes]) -> Callable[[str], bytes]:
    """Returns a reader of `/proc` that puts the marked CPU time into the file of the broker, the
    only child of this process."""

    def content(path: str) -> bytes:
        text = read(path)
        if not path.endswith("/stat"):
            return text
        head, _, tail = text.rpartition(b")")
        words = tail.split()
        if int(words[1]) != os.getpid():
            return text
        words[11:13] = str(TICKS * MarkedProcesses.readings).encode(), b"0"
        return head + b") " + b" ".join(words)

    return content


class DirectExports(Exports):
    """The metrics for Prometheus, which get their items in the thread of the run."""

    def __init__(self) -> None:
        super().__init__()
        self._tally = Tally()
        self._marked: Run | None = None

    def begin(self, run: Run) -> None:
        """A run begins."""
        self._marked = run

    def take(self, item: Item) -> None:
        """Adds an item to the sums."""
        assert self._marked is not None
        self._tally.take(self._marked, item)

    def scrape(self) -> None:
        """Asks for the figures in each format."""
        for accept in ("", CONTENT_TYPE, "application/openmetrics-text; version=2.0.0"):
            families = FAMILIES.validate_json(FAMILIES.dump_json(self._tally.families()))
            assert page(families, accept)


class DirectLive(Live):
    """A display that hands the figures to the endpoint."""

    def __init__(self, exports: DirectExports) -> None:
        self.exports = exports


def play_marked(folder: Path, patch: pytest.MonkeyPatch) -> Trace:
    """Plays the run, and everything that is made of a stored run."""
    trace = Trace(Path(one_run.__file__).parents[1], MARKS)
    scenario, out = folder / "marked.yaml", folder / "run"
    scenario.write_text(SCENARIO)
    MarkedProcesses.readings = 0
    exports = DirectExports()

    def agent() -> Slot:
        return MarkedAgent(trace, lambda stage: MarkedProcesses.readings > READINGS * (stage + 1))

    patch.setattr(one_run, "site_of", lambda *_: Here(agent))
    patch.setattr("pubstorm.fleet.programs.engine_path", lambda: Path("engine"))
    patch.setattr(choice, "PROCESSES_HERE", MarkedProcesses())
    patch.setattr(proc, "_content", marked_stat(proc._content))
    with trace.running():
        play(Invocation(str(scenario)), out, None, DirectLive(exports))
        exports.scrape()
        assert VerdictSoFar(out).evaluate() is not None
        shutil.copytree(out, folder / "again")
        compared = compare_stored([out], [folder / "again"], Question(), None)
        assert markdown(document_of(compared))
    return trace
