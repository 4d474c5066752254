"""Calibration of this host: the loads as scenarios, and what one agent does with them against a
peer that does nothing. The loads are steady, open-loop and moderate, with a write for each message,
so CPU time gives the limit of an agent. CPU time is measured in several rounds, since other
programs may run meanwhile."""

from __future__ import annotations

import asyncio
import resource
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import ClassVar, Literal

from pubstorm.contract.commands import Hello
from pubstorm.contract.plan import Plan
from pubstorm.contract.snapshot import Snapshot
from pubstorm.contract.target import Target
from pubstorm.errors import FleetError
from pubstorm.fleet import SnapshotReceived
from pubstorm.host.calibration import Calibration, CalibrationFigure, Fingerprint
from pubstorm.host.environment import raise_descriptor_limit, read_environment
from pubstorm.plan import compile_plan
from pubstorm.play.alone import play_alone
from pubstorm.quantities import bytes_text, count_text, counted
from pubstorm.scenario import parse_scenario
from pubstorm.scenario.sizes import DESCRIPTORS_KEPT
from pubstorm.topology.adapters.embedded import EmbeddedBroker
from pubstorm.topology.broker import Place

PAYLOAD_BYTES = 100
CLIENTS = 500
"""Clients that send, or receive."""
RATE_PER_S = 40_000
"""Messages sent, or received, in all."""


@dataclass(frozen=True, slots=True)
class CalibrationLoad:
    """One load, whose target is yet to be started."""

    text: str
    """The scenario."""
    stage: int
    """The stage that is measured."""
    peer: Literal["sink", "broker"] = "sink"
    """Peer of the agent: the null sink, or the embedded broker for a QoS that a broker grants."""

    def plan(self, port: int) -> Plan:
        """The plan against the peer at a port of the loopback address."""
        scenario = parse_scenario(self.text, "calibrate")
        target = Target(host="127.0.0.1", port=port)
        return compile_plan(scenario, (target,), run_tag=0)


def sending(qos: int, seconds: float) -> CalibrationLoad:
    """Clients that send at a rate."""
    publication = f"{{topic: 'c/{{n}}', rate: {RATE_PER_S // CLIENTS}/s, size: {PAYLOAD_BYTES}B"
    return _load(
        f"  c: {{clients: {CLIENTS}, publications: [{publication}, qos: {qos}}}]}}",
        "connect, publish: " + _milliseconds(seconds),
    )


def receiving(qos: int, seconds: float) -> CalibrationLoad:
    """One client whose messages go to all others. The sink hands on at QoS 0 only."""
    message = f"topic: c, rate: {RATE_PER_S // CLIENTS}/s, size: {PAYLOAD_BYTES}B, qos: {qos}"
    return _load(
        f"  c: {{clients: {CLIENTS}, subscriptions: [{{topic: c, qos: {qos}}}]}}\n"
        f"  from: {{clients: 1, publications: [{{{message}}}]}}",
        "connect, publish: " + _milliseconds(seconds),
        "broker" if qos else "sink",
    )


def idle(clients: int) -> CalibrationLoad:
    """Clients that connect and do nothing."""
    text = f"  c: {{clients: {clients}}}"
    return _load(text, "connect: {parallelism: 500}, hold: 1s")


def pinging(clients: int, seconds: float) -> CalibrationLoad:
    """Clients that do nothing but keep their connections alive, as often as they may; they come
    within a second, so that their keep-alives are spread over one."""
    text = f"  c: {{clients: {clients}, keep_alive: 1s}}"
    hold = _milliseconds(seconds + 1)
    return _load(text, f"connect: {{rate: {clients}/s}}, hold: {hold}")


def _load(
    populations: str, stages: str, peer: Literal["sink", "broker"] = "sink"
) -> CalibrationLoad:
    text = (
        "target: mqtt://127.0.0.1\n"
        f"populations:\n{populations}\nstages: [{stages}]\n"
        "snapshot_interval: 250ms\ndrain: 1s\n"
    )
    return CalibrationLoad(text, stage=1, peer=peer)


def _milliseconds(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"


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
    # Read before the load and at each snapshot: at the last one, clients may be disconnecting.
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


ROUNDS = 3
QUICK_SECONDS = 1.0
QUICK_CLIENTS = 1000
PINGED_CLIENTS = 5000
"""Clients whose keep-alives are measured, one a second from each."""


@dataclass(frozen=True, slots=True)
class CalibrateOptions:
    """Options of the command line."""

    seconds: float
    """Duration of each load."""
    clients: int | None = None
    """Clients to connect at once; None: as many as descriptors allow."""
    rounds: int = ROUNDS


def calibrate(engine: Path, options: CalibrateOptions, say: Callable[[str], None]) -> Calibration:
    """Measures this host; `say` gets a line before each load."""
    raise_descriptor_limit()
    with tempfile.TemporaryDirectory(prefix="pubstorm-") as folder:
        rounds = [
            asyncio.run(_round(engine, options, Path(folder), _numbered(say, number, options)))
            for number in range(1, options.rounds + 1)
        ]
    return _calibration(rounds)


def in_words(calibration: Calibration) -> Iterator[str]:
    """The calibration as a table."""
    rows = (
        ("sent at QoS 0", calibration.sent_qos0, "messages per CPU second"),
        ("sent at QoS 1", calibration.sent_qos1, "messages per CPU second"),
        ("received", calibration.received, "messages per CPU second"),
        ("received, QoS 1", calibration.received_qos1, "messages per CPU second"),
        ("kept alive", calibration.pinged, "keep-alives per CPU second"),
        ("connected", calibration.connected, "connections per CPU second"),
        ("idle client", calibration.bytes_per_client, "bytes in the agent"),
        ("one end of it", calibration.kernel_bytes_per_end, "bytes in the kernel"),
    )
    yield (
        f"one engine {calibration.fingerprint.engine} on {calibration.fingerprint.cpu_model}, "
        f"payloads of {bytes_text(calibration.payload_bytes)}, "
        f"{counted(calibration.rounds, 'round')}"
    )
    yield ""
    yield f"{'':16}{'median':>12}{'lowest':>12}{'highest':>12}"
    for what, figure, unit in rows:
        if figure is None:
            continue
        numbers = (figure.median, figure.low, figure.high)
        yield f"{what:16}{''.join(f'{count_text(n):>12}' for n in numbers)}  {unit}"
    yield f"{'clients':16}{count_text(calibration.clients):>12}{'':24}  connected at once"


@dataclass(frozen=True, slots=True)
class _Round:
    sent_qos0: Measurement
    sent_qos1: Measurement
    received: Measurement
    received_qos1: Measurement
    pinged: Measurement
    one_client: Measurement
    idle: Measurement


async def _round(
    engine: Path, options: CalibrateOptions, folder: Path, say: Callable[[str], None]
) -> _Round:
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    room = max(1, min(descriptors, 2**20) - DESCRIPTORS_KEPT)
    clients = min(room, options.clients or room)
    pinged = min(clients, PINGED_CLIENTS)

    async def play(what: str, load: CalibrationLoad) -> Measurement:
        say(what)
        return await measure(load, engine, folder)

    return _Round(
        sent_qos0=await play("sending at QoS 0", sending(0, options.seconds)),
        sent_qos1=await play("sending at QoS 1", sending(1, options.seconds)),
        received=await play("receiving at QoS 0", receiving(0, options.seconds)),
        received_qos1=await play("receiving at QoS 1", receiving(1, options.seconds)),
        pinged=await play(
            f"{counted(pinged, 'client')} kept alive", pinging(pinged, options.seconds)
        ),
        one_client=await play("one idle client", idle(1)),
        idle=await play(f"{counted(clients, 'idle client')}", idle(clients)),
    )


def _numbered(
    say: Callable[[str], None], number: int, options: CalibrateOptions
) -> Callable[[str], None]:
    return lambda what: say(f"round {number} of {options.rounds}: {what}")


def _calibration(rounds: Sequence[_Round]) -> Calibration:
    environment = read_environment(rounds[0].idle.hello.version, ())
    return Calibration(
        fingerprint=Fingerprint.of(environment),
        calibrated=datetime.now().astimezone().isoformat(timespec="seconds"),
        rounds=len(rounds),
        payload_bytes=PAYLOAD_BYTES,
        sent_qos0=_rate([r.sent_qos0.per_cpu_s(r.sent_qos0.sent) for r in rounds]),
        sent_qos1=_rate([r.sent_qos1.per_cpu_s(r.sent_qos1.acked) for r in rounds]),
        received=_rate([r.received.per_cpu_s(r.received.received) for r in rounds]),
        connected=_rate([r.idle.connected / r.idle.connect_cpu_s for r in rounds]),
        clients=min(r.idle.connected for r in rounds),
        bytes_per_client=_figure([_bytes_per_client(r) for r in rounds]),
        received_qos1=_rate([r.received_qos1.per_cpu_s(r.received_qos1.received) for r in rounds]),
        pinged=_rate([r.pinged.per_cpu_s(r.pinged.packets_sent) for r in rounds]),
        kernel_bytes_per_end=_kernel_bytes(rounds),
    )


def _kernel_bytes(rounds: Sequence[_Round]) -> CalibrationFigure | None:
    """Returns kernel memory for each end of a connection; both ends are on this host. None if
    unknown, or if other programs released as much meanwhile."""
    found = [r.idle.slab_bytes / (2 * r.idle.connected) for r in rounds]
    return _figure(found) if min(found) > 0 else None


def _bytes_per_client(found: _Round) -> float:
    """Returns the resident memory that each further client adds to an agent."""
    more = found.idle.connected - found.one_client.connected
    return max(0.0, (found.idle.rss_bytes - found.one_client.rss_bytes) / max(1, more))


def _rate(values: Sequence[float]) -> CalibrationFigure:
    if not all(values):
        raise FleetError("a load of the calibration came to nothing", "look for what else is busy")
    return _figure(values)


def _figure(values: Sequence[float]) -> CalibrationFigure:
    return CalibrationFigure(
        median=round(median(values), 1), low=round(min(values), 1), high=round(max(values), 1)
    )
