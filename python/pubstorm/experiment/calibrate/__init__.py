"""Measures what one engine of this host does against a peer that does nothing: several rounds, CPU
time instead of wall time, since other programs may run meanwhile."""

from __future__ import annotations

import asyncio
import resource
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median

from pubstorm.errors import FleetError
from pubstorm.experiment.calibrate.loads import (
    PAYLOAD_BYTES,
    CalibrationLoad,
    idle,
    pinging,
    receiving,
    sending,
)
from pubstorm.experiment.calibrate.measure import Measurement, measure
from pubstorm.host.calibration import Calibration, CalibrationFigure, Fingerprint
from pubstorm.host.environment import raise_descriptor_limit, read_environment
from pubstorm.quantities import bytes_text, count_text, counted
from pubstorm.scenario.descriptors import DESCRIPTORS_KEPT

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
