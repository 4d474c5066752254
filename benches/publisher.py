"""Measures the publisher of libzmq: `python -m benches.publisher`, after `cargo build --release`.

The baseline is what libzmq's own `remote_thr` is: a loop around the send of a PUB socket. It and
`pubstorm-zmq` send in turn, as fast as they can, to the same number of raw readers. Throughput is
what reached the readers; what a publisher hands over beyond that is dropped by libzmq. What a
message costs the thread that sends it hardly depends on other work of the machine.
"""

import socket
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benches import machine, plans
from benches.bench import BUILT
from benches.plans import Json
from benches.programs import Child, EngineRun, ProgramError, Programs, play_stage

ROUNDS = 5
SECONDS = 2.0
PAYLOAD_BYTES = 32
READERS = (1, 30)
SHARE_MIN = 0.95
HIGH_WATER_MARK = 1000


@dataclass(frozen=True)
class Run:
    """Counts of one publisher over `SECONDS`."""

    sent: int
    """Messages handed to libzmq."""
    received: int
    """Messages that reached a reader, of all readers."""
    thread_ns: int
    """CPU time of the thread that sends, without that of libzmq's own."""


Publish = Callable[[Programs, int, int], Run]
"""Sends at a port to so many readers."""


def main() -> int:
    """Prints a line for each number of readers; returns the exit code."""
    programs = Programs(BUILT)
    if missing := [path.name for path in (programs.baseline, programs.zmq) if not path.is_file()]:
        print(f"error: not built: {', '.join(missing)} in {BUILT}", file=sys.stderr)
        print("hint: cargo build --release -p pubstorm-zmq -p pubstorm-baseline", file=sys.stderr)
        return 2
    print(machine.describe())
    other_work = machine.OtherWork()
    print(f"{ROUNDS} rounds of {SECONDS:g} s, {PAYLOAD_BYTES} bytes; median (least–most)\n")
    print("| readers | | baseline | pubstorm-zmq | ratio |\n| - | - | - | - | - |")
    met = True
    try:
        for readers in READERS:
            met = _measure(programs, readers) and met
    except ProgramError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(
        f"\ntarget: throughput at least {SHARE_MIN} of the baseline: {'met' if met else 'missed'}"
    )
    print(f"other work took {other_work.share():.0%} of the machine meanwhile")
    return 0


def _measure(programs: Programs, readers: int) -> bool:
    """Prints the lines of a number of readers; says whether the target is met."""
    pairs = [
        (_run(programs, readers, _baseline), _run(programs, readers, _zmq)) for _ in range(ROUNDS)
    ]
    figures: list[tuple[str, Callable[[Run], float]]] = [
        ("million msg/s received", lambda run: run.received / SECONDS / 1e6),
        ("million msg/s handed over", lambda run: run.sent / SECONDS / 1e6),
        ("CPU-ns of the sending thread, each", lambda run: run.thread_ns / run.sent),
    ]
    for name, of in figures:
        baseline, own = [of(pair[0]) for pair in pairs], [of(pair[1]) for pair in pairs]
        ratios = [b / a for a, b in zip(baseline, own, strict=True)]
        cells = " | ".join(_spread(values) for values in (baseline, own, ratios))
        print(f"| {readers} | {name} | {cells} |", flush=True)
    received = [own.received / baseline.received for baseline, own in pairs]
    return statistics.median(received) >= SHARE_MIN


def _run(programs: Programs, readers: int, publish: Publish) -> Run:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return publish(programs, port, readers)


def _baseline(programs: Programs, port: int, readers: int) -> Run:
    options = ["--port", str(port), "--connections", str(readers), "--bytes", str(PAYLOAD_BYTES)]
    with Child(programs.baseline, "publish", *options, "--seconds", str(SECONDS)) as child:
        child.read("ready")
        with Child(programs.baseline, "subscribe", *options) as reading:
            reading.read("ready")
            before_ns = _thread_ns(child)
            child.write({})
            sent: int = child.read("counts")["messages"]
            thread_ns = _thread_ns(child) - before_ns
            child.close_stdin()
            child.wait()
            return Run(sent, _received(reading), thread_ns)


def _zmq(programs: Programs, port: int, readers: int) -> Run:
    options = ["--port", str(port), "--connections", str(readers), "--bytes", str(PAYLOAD_BYTES)]
    run = EngineRun()
    with Child(programs.zmq, "--population", "0") as child:
        child.write(_plan(port))
        child.read("hello")
        with Child(programs.baseline, "subscribe", *options) as reading:
            reading.read("ready")
            before_ns = _thread_ns(child)
            play_stage(child, 0, run)
            thread_ns = _thread_ns(child) - before_ns
            child.close_stdin()
            while child.read("snapshot", "bye")["kind"] == "snapshot":
                pass
            child.wait()
            return Run(run.counters["sent_total"], _received(reading), thread_ns)


def _thread_ns(child: Child) -> int:
    """CPU time of a process's first thread, in nanoseconds (schedstat of proc(5))."""
    return int(Path(f"/proc/{child.pid}/task/{child.pid}/schedstat").read_text().split()[0])


def _received(reading: Child) -> int:
    counts = reading.read("counts")
    reading.wait()
    messages: int = counts["messages"]
    return messages


def _plan(port: int) -> Json:
    """A publisher with libzmq's default options, as fast as it can."""
    publication = plans.publication(None)
    publication |= {"topic": "", "payload": {"kind": "fixed", "bytes": PAYLOAD_BYTES}}
    zmtp: Json = {"kind": "zmtp", "player": "libzmq", "io_threads": 1, "security": "null"}
    zmtp["high_water_mark"] = HIGH_WATER_MARK
    own: Json = {"protocol": zmtp, "keep_alive_s": 0}
    population = plans.population(1, publications=[publication]) | own
    return plans.plan([population], [plans.publish(1, SECONDS)], port)


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


if __name__ == "__main__":
    sys.exit(main())
