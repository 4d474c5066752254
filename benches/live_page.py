"""Measures what the live page costs: `python -m benches.live_page [ROUNDS]` plays one load without
a page, and with 0, 1 and 20 browsers, in turn. It prints the CPU time of controller and page, and
the load's own figures."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from pubstorm.cli.options import TOKEN_VARIABLE
from pubstorm.host.sockets import free_port

SETTLE_S, SPAN_S = 20.0, 40.0
"""Time before the measurement, in which the page is opened, and its length."""
ROUNDS = 3
CASES: tuple[int | None, ...] = (None, 0, 1, 20)
"""Browsers; None: no page."""
SHARE_MAX = 0.01
"""Largest share of one core with one browser."""
RUN = [sys.executable, "-m", "pubstorm", "run", "quickstart", "--quiet", "--no-report"]
TOKEN = "a-token-of-the-bench"
LENGTH = f"stages.1.publish={SETTLE_S + SPAN_S + 5:.0f}s"


@dataclass(frozen=True)
class Cost:
    """One run."""

    controller: float
    """Share of one core."""
    page: float
    rate_per_s: float
    latency_p50_us: float
    lateness_p50_us: float


def main() -> int:
    """Plays all cases; 1 if the target is missed."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    found: dict[int | None, list[Cost]] = {case: [] for case in CASES}
    for number in range(rounds):
        for case in CASES:
            cost = measured(case)
            found[case].append(cost)
            print(f"round {number + 1}, {name(case)}: {cost}", file=sys.stderr)
    print(f"{'':12} {'controller':>12} {'page':>8} {'sent/s':>8} {'p50':>9} {'late p50':>9}")
    for case, costs in found.items():
        cells = [
            median(getattr(cost, field) for cost in costs) for field in Cost.__dataclass_fields__
        ]
        controller, page, rate, latency, late = cells
        print(
            f"{name(case):12} {controller:>12.2%} {page:>8.2%} {rate:>8.0f} "
            f"{latency:>6.0f} µs {late:>6.0f} µs"
        )
    is_met = median(cost.page for cost in found[1]) <= SHARE_MAX
    print(f"target: {SHARE_MAX:.0%} of a core with one browser: {'met' if is_met else 'missed'}")
    return 0 if is_met else 1


def name(case: int | None) -> str:
    """A case in words."""
    return "no page" if case is None else f"{case} browser{'' if case == 1 else 's'}"


def measured(case: int | None) -> Cost:
    """Plays the load with some browsers."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        port = free_port()
        web = [] if case is None else [f"--web=127.0.0.1:{port}"]
        command = [*RUN, "--out", str(out), "--set", LENGTH, *web]
        environment = {**os.environ, TOKEN_VARIABLE: TOKEN}
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as run:
            while not (out / "events.jsonl").exists() and run.poll() is None:
                time.sleep(0.1)
            with reading(port, case or 0):
                time.sleep(SETTLE_S)
                before, began_s = cpu_s(run.pid), time.monotonic()
                time.sleep(SPAN_S)
                after, took_s = cpu_s(run.pid), time.monotonic() - began_s
            run.wait()
        result = json.loads((out / "result.json").read_text())
    device = result["populations"]["device"]
    return Cost(
        controller=(after[0] - before[0]) / took_s,
        page=(after[1] - before[1]) / took_s,
        rate_per_s=device["rates"]["sent_per_s"],
        latency_p50_us=device["ack_latency_us"]["intended"]["p50"],
        lateness_p50_us=result["fleet"]["lateness_us"]["p50"],
    )


def cpu_s(pid: int) -> tuple[float, float]:
    """CPU seconds of the controller, and of its page."""
    controller = psutil.Process(pid)
    pages = [each for each in controller.children() if "pubstorm.web" in each.cmdline()]
    own, page = controller.cpu_times(), [each.cpu_times() for each in pages]
    return own.user + own.system, sum(times.user + times.system for times in page)


@contextlib.contextmanager
def reading(port: int, browsers: int) -> Iterator[None]:
    """Reads the stream as so many browsers do, in threads."""
    streams = [socket.create_connection(("127.0.0.1", port)) for _ in range(browsers)]

    def read(stream: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while stream.recv(2**16):
                pass

    for stream in streams:
        lines = "GET /events HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Authorization: Bearer {TOKEN}"
        stream.sendall("\r\n".join((*lines, "", "")).encode())
        threading.Thread(target=read, args=[stream], daemon=True).start()
    try:
        yield
    finally:
        for stream in streams:
            stream.close()


if __name__ == "__main__":
    sys.exit(main())
