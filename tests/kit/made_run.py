"""A run of two populations, and intervals of it, for the tests of this folder."""

from __future__ import annotations

from pubstorm.contract.histogram import Histogram
from pubstorm.contract.snapshot import Snapshot
from pubstorm.exports import Run
from tests.kit import made
from tests.kit.made import SECOND_NS, START_NS

SCENARIO = """\
target: mqtt://127.0.0.1
populations:
  device: {clients: 10, publications: [{topic: "t/{n}", rate: 1/s, qos: 1}]}
  backend: {clients: 1, subscriptions: ["t/#"]}
stages: [connect, publish: 10s]
"""
UNIX_NS = 1_795_262_400 * SECOND_NS
LATENCIES_NS = [*range(1_000_000, 101_000_000, 1_000_000)]
"""1 ms, 2 ms and so on to 100 ms."""


def a_run(name: str = "20261123-s") -> Run:
    """A run that started at UNIX_NS."""
    return Run(name, "s", made.compiled(SCENARIO), START_NS, UNIX_NS)


def interval(second: int, stage: int = 1, agent: int = 0) -> Snapshot:
    """The snapshot of a second: 100 messages were sent, acknowledged and delivered."""
    latencies = Histogram.of(LATENCIES_NS)
    device = made.population(
        connected=10, sent_total=100, acked_total=100, bytes_sent_total=5000, acks=latencies
    )
    flow = made.flow(0, 1, latencies, expected_total=100, received_total=100)
    return made.snapshot(
        device,
        made.population(connected=1),
        from_ns=START_NS + second * SECOND_NS,
        stage=stage,
        agent=agent,
        flows=(flow,),
        engine=made.load(cpu_ns=SECOND_NS // 4, rss_bytes=7_000_000),
    )
