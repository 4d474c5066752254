"""Plays one load of a calibration on one engine against its peer, and adds up what the engine says
of the stage that is measured."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pubstorm.contract.commands import Hello
from pubstorm.contract.snapshot import Snapshot
from pubstorm.experiment.calibrate.loads import CalibrationLoad
from pubstorm.fleet import SnapshotReceived
from pubstorm.play.solo import play_alone
from pubstorm.topology.adapters.embedded import EmbeddedBroker
from pubstorm.topology.broker import Place

CONNECT_STAGE = 0


@dataclass(frozen=True, slots=True)
class Measurement:
    """Figures of an agent in the measured stage of a load."""

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
    packets_sent: int
    rss_bytes: int
    """Resident memory at the end of the stage."""
    slab_bytes: int
    """Largest growth of the kernel's own memory."""

    def per_cpu_s(self, count: int) -> float:
        """Returns a count for each second of CPU time."""
        return count / self.cpu_s if self.cpu_s else 0.0


class NullSink(EmbeddedBroker):
    """`pubstorm-engine --sink`: it answers, and throws every message away."""

    kind: ClassVar[str] = "sink"

    def __init__(self, folder: Path, engine: Path) -> None:
        super().__init__(Place(name="sink", folder=folder, binary=str(engine)))

    async def configure(self, program: str) -> Sequence[str]:
        """Returns no arguments: the program takes a free port and follows its stdin."""
        return (program, "--sink")


CACHES = frozenset({"dentry", "inode_cache", "proc_inode_cache", "ext4_inode_cache"})
"""Slabs of objects that the kernel keeps for files that were looked at, and can reclaim."""


async def measure(load: CalibrationLoad, engine: Path, folder: Path) -> Measurement:
    """Plays the load once."""
    snapshots: list[Snapshot] = []
    # When the last snapshot is read, the engine may be disconnecting already.
    slab = [slab_bytes()]

    def keep(received: SnapshotReceived) -> None:
        snapshots.append(received.snapshot)
        slab.append(slab_bytes())

    if load.peer == "sink":
        peer: NullSink | EmbeddedBroker = NullSink(folder / "sink", engine)
    else:
        peer = EmbeddedBroker(Place(name="broker", folder=folder / "broker"))
    try:
        await peer.start()
        hello = await play_alone(load.plan(peer.port), engine, folder / "engine.log", keep)
    finally:
        await peer.stop()
    return _measurement(hello, load.stage, snapshots, max(slab) - slab[0])


def slab_bytes() -> int:
    """Returns the kernel memory of objects in use, such as sockets; 0 if unknown, since only root
    may read it."""
    with suppress(OSError):
        return in_use(Path("/proc/slabinfo").read_text())
    return 0


def in_use(slabinfo: str) -> int:
    """Returns the bytes of objects in use without caches of files, which other programs fill. The
    directory entries of sockets are no such cache: each socket has one."""
    rows = (line.split() for line in slabinfo.splitlines()[2:])
    objects = {row[0]: (int(row[1]), int(row[3])) for row in rows}
    found = sum(count * size for name, (count, size) in objects.items() if name not in CACHES)
    sockets, _ = objects.get("sock_inode_cache", (0, 0))
    _, entry_bytes = objects.get("dentry", (0, 0))
    return found + sockets * entry_bytes


def _measurement(
    hello: Hello, stage: int, snapshots: list[Snapshot], slab_bytes: int
) -> Measurement:
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
        packets_sent=sum(each.packets_sent_total for each in counters),
        rss_bytes=inside[-1].engine.rss_bytes if inside else 0,
        slab_bytes=slab_bytes,
    )
