"""Plays one load of a calibration on one engine against the null sink, and adds up what the engine
says of the stage that is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pubstorm.calibrate.loads import Load
from pubstorm.control import Hello
from pubstorm.fleet import Frame
from pubstorm.snapshot import Snapshot
from pubstorm.solo import play_alone
from pubstorm.topology.adapters.embedded import EmbeddedBroker
from pubstorm.topology.broker import Place

CONNECT_STAGE = 0


@dataclass(frozen=True, slots=True)
class Measurement:
    """What an engine did in the measured stage of a load."""

    hello: Hello
    sent: int
    acked: int
    received: int
    cpu_s: float
    """CPU time in the stage."""
    connect_cpu_s: float
    """CPU time in the stage that connects."""
    connected: int
    """Most clients connected at once."""
    rss_bytes: int
    """Resident memory at the end of the stage."""

    def per_cpu_s(self, count: int) -> float:
        """How many for each second of CPU time."""
        return count / self.cpu_s if self.cpu_s else 0.0


class NullSink(EmbeddedBroker):
    """`pubstorm-engine --sink`: it answers, and throws every message away."""

    kind: ClassVar[str] = "sink"

    def __init__(self, folder: Path, engine: Path) -> None:
        super().__init__(Place(name="sink", folder=folder, binary=str(engine)))

    def configure(self, program: str) -> Sequence[str]:
        """It takes a free port and follows its stdin without being told."""
        return (program, "--sink")


async def measure(load: Load, engine: Path, folder: Path) -> Measurement:
    """Plays the load once."""
    snapshots: list[Snapshot] = []

    def keep(frame: Frame) -> None:
        snapshots.append(frame.snapshot)

    sink = NullSink(folder / "sink", engine)
    try:
        await sink.start()
        hello = await play_alone(load.plan(sink.port), engine, folder / "engine.log", keep)
    finally:
        await sink.stop()
    return _measurement(hello, load.stage, snapshots)


def _measurement(hello: Hello, stage: int, snapshots: list[Snapshot]) -> Measurement:
    inside = [snapshot for snapshot in snapshots if snapshot.stage == stage]
    connecting = [snapshot for snapshot in snapshots if snapshot.stage == CONNECT_STAGE]
    counters = [population.counters for each in inside for population in each.populations]
    gauges = (
        sum(population.gauges.connected for population in each.populations) for each in snapshots
    )
    return Measurement(
        hello=hello,
        sent=sum(each.sent_total for each in counters),
        acked=sum(each.acked_total for each in counters),
        received=sum(flow.counters.received_total for each in inside for flow in each.flows),
        cpu_s=sum(each.engine.cpu_ns for each in inside) / 1e9,
        connect_cpu_s=sum(each.engine.cpu_ns for each in connecting) / 1e9,
        connected=max(gauges, default=0),
        rss_bytes=inside[-1].engine.rss_bytes if inside else 0,
    )
