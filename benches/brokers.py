"""Measures what many brokers cost: `python -m benches.brokers [BROKERS]`, with mosquitto installed.

Starts one main mosquitto and many small ones with a bridge each, lets them idle, and stops them.
CPU is Pubstorm's own, without monitors. It is not part of `make bench`, since it takes 2 GB of
memory.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from benches import machine
from pubstorm.host.children import run_loop
from pubstorm.host.environment import raise_descriptor_limit
from pubstorm.plan import provisional_plan
from pubstorm.scenario import parse_scenario
from pubstorm.topology import Topology

BROKERS = 1000
IDLE_S = 20.0
SETTLE_S = 2.0
LOOKED_AT = 100
"""Small brokers whose memory is read."""
SCENARIO = """\
topology:
  brokers:
    cloud: mosquitto
    boxes: {{kind: mosquitto, count: {brokers}}}
  bridges:
    uplink:
      from: boxes
      to: cloud
      topics: [{{topic: up/#, direction: out, qos: 1, remote_prefix: "box/{{n}}/"}}]
populations: {{backend: {{clients: 1, at: cloud, subscriptions: ["box/#"]}}}}
stages: [connect]
"""


class Span:
    """Time and Pubstorm's own CPU time since it was made."""

    def __init__(self) -> None:
        self._from_s, self._cpu_s = time.monotonic(), time.process_time()

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s, {self.cpu_s:.2f} s of CPU"

    @property
    def seconds(self) -> float:
        """Time."""
        return time.monotonic() - self._from_s

    @property
    def cpu_s(self) -> float:
        """CPU time."""
        return time.process_time() - self._cpu_s


async def measure(brokers: int, folder: Path) -> None:
    """Starts, idles and stops, and prints what that took."""
    raise_descriptor_limit()
    scenario = parse_scenario(SCENARIO.format(brokers=brokers), "brokers.yaml")
    topology = Topology(scenario.topology, folder, lambda event: print(event.text))
    topology.keys.make(provisional_plan(scenario))
    descriptors, other_work, span = _entries("fd"), machine.OtherWork(), Span()
    try:
        await topology.start()
        print(f"{brokers} brokers and {topology.bridges.results()[0].up} bridges up: {span}")
        await asyncio.sleep(SETTLE_S)
        span = Span()
        await asyncio.sleep(IDLE_S)
        print(f"idle: {span.cpu_s / span.seconds:.2%} of a core")
        threads = _entries("task")
        print(f"{(_entries('fd') - descriptors) / brokers:.2f} descriptors each, {threads} threads")
        for group in ("cloud", "boxes"):
            pids = [topology.broker(name).pid for name in topology.names(group)[:LOOKED_AT]]
            private = sum(psutil.Process(pid).memory_full_info().uss for pid in pids)
            print(f"{group}: {private / len(pids) / 2**20:.2f} MiB of private memory each")
    finally:
        span = Span()
        await topology.stop()
    print(f"stopped: {span}")
    print(f"other work took {other_work.share():.0%} of the machine meanwhile, brokers included")


def _entries(folder: str) -> int:
    return sum(1 for _ in Path("/proc/self", folder).iterdir())


def main(arguments: Sequence[str]) -> None:
    """Measures in a folder that is gone afterwards."""
    print(machine.describe())
    with tempfile.TemporaryDirectory(prefix="pubstorm-bench-") as folder:
        run_loop(measure(int(arguments[0]) if arguments else BROKERS, Path(folder)))


if __name__ == "__main__":
    main(sys.argv[1:])
