"""The programs of the benches as child processes: the sink, the baseline, the engine and the proxy.

Each is started, spoken to, waited for and measured here; what the numbers mean is not known here.
None outlives the bench: all of them end with their stdin, and a watchdog ends one that hangs.
"""

import contextlib
import json
import os
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Self

from benches.plans import Json

PATIENCE_S = 120.0
STAGE_DELAY_NS = 50_000_000


class ProgramError(Exception):
    """A program failed, hung or said something unexpected: there is nothing to measure."""


@dataclass(frozen=True)
class Programs:
    """Folder of the built programs."""

    directory: Path

    @property
    def baseline(self) -> Path:
        """The baseline, which is the sink too."""
        return self.directory / "pubstorm-baseline"

    @property
    def engine(self) -> Path:
        """The engine."""
        return self.directory / "pubstorm-engine"

    @property
    def broker(self) -> Path:
        """The embedded broker."""
        return self.directory / "pubstorm-broker"

    @property
    def proxy(self) -> Path:
        """The proxy between brokers."""
        return self.directory / "pubstorm-proxy"

    @property
    def zmq(self) -> Path:
        """Publishers of libzmq."""
        return self.directory / "pubstorm-zmq"

    def missing(self) -> list[str]:
        """Names of the programs that are not built."""
        return [
            path.name for path in (self.baseline, self.engine, self.broker) if not path.is_file()
        ]


def own_core() -> set[int]:
    """The core of what is measured: the baseline or the engine."""
    return {min(os.sched_getaffinity(0))}


def peer_core() -> set[int]:
    """The core of its peer: another one, where there is one. Where the kernel chooses, it sometimes
    puts both on one core, and what a message costs is another figure."""
    return {max(os.sched_getaffinity(0))}


@contextlib.contextmanager
def _on(cores: Collection[int] | None) -> Iterator[None]:
    """Processes that start in the block run on these cores only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Child:
    """A process that takes lines on stdin and gives JSON, a value a line, on stdout."""

    def __init__(self, *command: str | Path, cores: Collection[int] | None = None) -> None:
        self.name = Path(command[0]).name
        with _on(cores):
            self._process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        self._watchdog = threading.Timer(PATIENCE_S, self._process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._watchdog.cancel()
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait()
        for pipe in (self._stdin, self._stdout):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def write(self, value: Json) -> None:
        """Sends a value as one line."""
        try:
            self._stdin.write(json.dumps(value) + "\n")
            self._stdin.flush()
        except BrokenPipeError as error:
            raise ProgramError(f"{self.name} ended early") from error

    def read(self, *kinds: str) -> Json:
        """The next line, which has to be of one of these kinds."""
        line = self._stdout.readline()
        value: Json = json.loads(line) if line else {"kind": "end of output"}
        if value.get("kind") not in kinds:
            raise ProgramError(f"{self.name}: expected {' or '.join(kinds)}, found {value}")
        return value

    def wait(self) -> int:
        """Waits for its end; returns the CPU time of all of its life, in nanoseconds."""
        _, status, usage = os.wait4(self.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        if self._process.returncode != 0:
            raise ProgramError(f"{self.name} ended with {self._process.returncode}")
        return round((usage.ru_utime + usage.ru_stime) * 1e9)

    def close_stdin(self) -> None:
        """Closes stdin of the process: no more input follows."""
        self._stdin.close()

    @property
    def _stdin(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _stdout(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout


@dataclass
class Sink:
    """The peer: where it listens and, once it has ended, what it counted."""

    port: int
    tls: str | None = None
    """TLS mode of the sink, as the baseline names it; None: no TLS."""
    pem: Path = Path()
    """File of its certificate."""
    counts: Json = field(default_factory=dict)


@contextlib.contextmanager
def sink(programs: Programs, *, tls: str | None = None) -> Iterator[Sink]:
    """A sink on a free port; its counts are known after the block."""
    with tempfile.TemporaryDirectory() as folder:
        pem = Path(folder) / "sink.pem"
        options = ["--tls", tls, "--pem", str(pem)] if tls else []
        yield from _serve(programs, options, tls, pem)


def _serve(programs: Programs, options: list[str], tls: str | None, pem: Path) -> Iterator[Sink]:
    with Child(programs.baseline, "sink", "--port", "0", *options, cores=peer_core()) as child:
        peer = Sink(port=child.read("ready")["port"], tls=tls, pem=pem)
        yield peer
        child.close_stdin()
        peer.counts = child.read("counts")
        child.wait()


@dataclass
class Feed:
    """A publisher of ZeroMQ without libzmq, which sends when `send` is called."""

    child: Child
    port: int
    subscribers: int
    messages: int
    """To each subscriber."""

    def options(self) -> list[str]:
        """Returns the options of the programs that read from this publisher."""
        numbers = {"port": self.port, "connections": self.subscribers, "messages": self.messages}
        return [f"--{name}={number}" for name, number in numbers.items()]

    def send(self) -> None:
        """Lets it send, and waits until it has."""
        self.child.write({})
        self.child.read("counts")

    def close_command(self) -> Json:
        """Lets the publisher send; returns the command by which the controller closes the stage."""
        self.send()
        sent = {"population": 0, "client": 0, "total": self.messages}
        return {"command": "close", "sent": [sent]}


@contextlib.contextmanager
def feed(programs: Programs, subscribers: int, messages: int) -> Iterator[Feed]:
    """A publisher on a free port, for so many subscribers and messages to each."""
    numbers = ["--port=0", f"--connections={subscribers}", f"--messages={messages}"]
    with Child(programs.baseline, "feed", *numbers, cores=peer_core()) as child:
        yield Feed(child, child.read("ready")["port"], subscribers, messages)
        child.wait()


def run_baseline(programs: Programs, port: int, mode: str, **options: float | str) -> Json:
    """Runs a mode of the baseline to its end; its counts, with the `cpu_ns` of what it is about."""
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    with Child(programs.baseline, mode, "--port", str(port), *arguments, cores=own_core()) as child:
        counts = child.read("counts")
        child.wait()
    return counts


@dataclass
class EngineRun:
    """Figures of the engine about a run, summed over its snapshots."""

    cpu_ns: Counter[int] = field(default_factory=Counter)
    """By stage; -1 before the first."""
    rss_bytes: dict[int, int] = field(default_factory=dict)
    """By stage, in its last snapshot."""
    anonymous_bytes: dict[int, int] = field(default_factory=dict)
    """By stage, at its end: resident memory that is no file's."""
    connected: int = 0
    """In the last snapshot of the last stage before the end."""
    counters: Counter[str] = field(default_factory=Counter)
    """Over all populations."""
    flows: Counter[str] = field(default_factory=Counter)
    """Over all flows."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Over all populations."""
    lateness: Counter[int] = field(default_factory=Counter)
    """Buckets of the histogram."""
    kernel_cpu_ns: int = 0
    """CPU of the process in all its life, by the kernel's account."""

    def add(self, snapshot: Json) -> None:
        """Adds a snapshot."""
        stage = -1 if snapshot["stage"] is None else snapshot["stage"]
        engine = snapshot["engine"]
        self.cpu_ns[stage] += engine["cpu_ns"]
        self.rss_bytes[stage] = engine["rss_bytes"]
        self.lateness.update(dict(engine["lateness"]["buckets"]))
        for population in snapshot["populations"]:
            self.counters.update(population["counters"])
            self.outcomes.update(population["outcomes"])
        for flow in snapshot["flows"]:
            self.flows.update(flow["counters"])

    def lateness_us(self, share: float) -> float:
        """The lateness that this share of the messages does not exceed, in microseconds."""
        rank, seen = share * self.lateness.total(), 0
        for bucket in sorted(self.lateness):
            seen += self.lateness[bucket]
            if seen >= rank:
                return _bucket_end_ns(bucket) / 1000
        return 0.0


def run_engine(
    programs: Programs, plan: Json, *, close: Callable[[], Json] | None = None
) -> EngineRun:
    """Plays a plan, stage by stage, each as soon as the one before has settled. If another
    program publishes, `close` returns the command that closes the publish stage."""
    run = EngineRun()
    with Child(programs.engine, cores=own_core()) as child:
        child.write(plan)
        child.read("hello")
        for index, stage in enumerate(plan["stages"]):
            publishes = stage["action"]["kind"] == "publish"
            snapshot = play_stage(child, index, run, close if publishes else None)
            run.connected = sum(p["gauges"]["connected"] for p in snapshot["populations"])
            run.anonymous_bytes[index] = anonymous_bytes(child.pid)
        child.write({"command": "stop"})
        while (last := child.read("snapshot", "bye"))["kind"] == "snapshot":
            run.add(last)
        run.kernel_cpu_ns = child.wait()
    return run


def run_engines(programs: Programs, plan: Json, agents: int) -> list[EngineRun]:
    """Plays a plan on so many agents, stage by stage, each as soon as all have settled."""
    runs = [EngineRun() for _ in range(agents)]
    with contextlib.ExitStack() as stack:
        children = [
            stack.enter_context(
                Child(programs.engine, "--shard", f"{index}/{agents}", cores=own_core())
            )
            for index in range(agents)
        ]
        for child in children:
            child.write(plan)
        for child in children:
            child.read("hello")
        for index in range(len(plan["stages"])):
            at_ns = time.monotonic_ns() + STAGE_DELAY_NS
            for child in children:
                child.write({"command": "stage", "index": index, "at_ns": at_ns})
            for child, run in zip(children, runs, strict=True):
                settle(child, index, run)
        for child, run in zip(children, runs, strict=True):
            child.write({"command": "stop"})
            while (last := child.read("snapshot", "bye"))["kind"] == "snapshot":
                run.add(last)
            run.kernel_cpu_ns = child.wait()
    return runs


def play_stage(
    child: Child, index: int, run: EngineRun, close: Callable[[], Json] | None = None
) -> Json:
    """Has an agent play a stage until it has settled; sends it the command of `close` meanwhile.
    Returns the last snapshot of the agent."""
    at_ns = time.monotonic_ns() + STAGE_DELAY_NS
    child.write({"command": "stage", "index": index, "at_ns": at_ns})
    if close:
        time.sleep(2 * STAGE_DELAY_NS / 1e9)  # the stage has begun
        child.write(close())
    return settle(child, index, run)


def settle(child: Child, index: int, run: EngineRun) -> Json:
    """Reads what an agent says until it has settled in a stage; returns its last snapshot."""
    snapshot: Json = {"stage": None, "settled": False}
    while not (snapshot["stage"] == index and snapshot["settled"]):
        snapshot = child.read("snapshot")
        run.add(snapshot)
    return snapshot


def _bucket_end_ns(bucket: int) -> int:
    """Longest duration that counts in a bucket of `crates/plan/src/record/histogram.rs`."""
    if bucket < 256:
        return bucket
    shift = (bucket >> 7) - 1
    return ((bucket - (shift << 7) + 1) << shift) - 1


def anonymous_bytes(pid: int) -> int:
    """Resident memory of a process that is no file's."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise ProgramError("this kernel does not say RssAnon in /proc/PID/status")
