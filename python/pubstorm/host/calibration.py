"""Figures of this host's generator: those that `pubstorm calibrate` has measured, with one entry
for each host and version of the engine, or those that Pubstorm comes with. Costs of a client, a
message and a connection follow from them, and the least duration of a run from its plan."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from pubstorm import __version__
from pubstorm.contract import Value
from pubstorm.contract.capabilities import Capabilities
from pubstorm.contract.plan import (
    ConnectAction,
    DisconnectAction,
    HoldAction,
    Plan,
    PublishAction,
)
from pubstorm.errors import StoredRunError
from pubstorm.host.binaries import offered_load
from pubstorm.host.environment import cores, cpu_model, kernel
from pubstorm.quantities import SECOND_NS
from pubstorm.result import Environment


class CalibrationFigure(Value):
    """A figure measured several times."""

    median: float
    """The middle one."""
    low: float
    """The lowest."""
    high: float
    """The highest."""


class Fingerprint(Value):
    """The machine and the engine that figures hold for."""

    cpu_model: str
    """Model of the processor."""
    cores: int
    """Processors that a process may use."""
    kernel: str
    """Operating system and kernel."""
    engine: str
    """Version of the engine."""

    @classmethod
    def here(cls, engine: str) -> Fingerprint:
        """That of this machine and an engine."""
        return cls(cpu_model=cpu_model(), cores=cores(), kernel=kernel(), engine=engine)

    @classmethod
    def of(cls, environment: Environment) -> Fingerprint:
        """That of the machine and engine of an environment."""
        return cls(
            cpu_model=environment.cpu_model,
            cores=environment.cores,
            kernel=environment.kernel,
            engine=environment.engine,
        )


class Calibration(Value):
    """The ceilings of one agent against a peer that discards everything. Rates are for a
    second of CPU time: those of an agent with a core for itself."""

    fingerprint: Fingerprint
    """Host and engine of the figures."""
    calibrated: str
    """Time of the measurement, ISO 8601."""
    rounds: int
    """Number of measurements of each figure."""
    payload_bytes: int
    """Size of the payloads, in bytes."""
    sent_qos0: CalibrationFigure
    """Messages sent at QoS 0, each in a write of its own."""
    sent_qos1: CalibrationFigure
    """Messages sent at QoS 1 and acknowledged."""
    received: CalibrationFigure
    """Messages received at QoS 0."""
    connected: CalibrationFigure
    """Connections made."""
    clients: int
    """Clients connected at once."""
    bytes_per_client: CalibrationFigure
    """Resident memory of an idle client, without the kernel's socket."""
    received_qos1: CalibrationFigure | None = None
    """Messages received at QoS 1 and acknowledged; None: made before this was measured."""
    pinged: CalibrationFigure | None = None
    """Keep-alives of idle clients: a PINGREQ and its answer; None as above."""
    kernel_bytes_per_end: CalibrationFigure | None = None
    """Memory of the kernel for one end of an idle connection; None as above, or if the kernel
    does not report it."""


class _Stored(Value):
    """The file."""

    format: Literal[1] = 1
    entries: tuple[Calibration, ...] = ()


def calibration_path() -> Path:
    """The file that calibrations are stored in."""
    folder = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(folder, "pubstorm", "calibration.json")


def store(calibration: Calibration) -> Path:
    """Stores a calibration in place of an earlier one of the same host and engine."""
    path = calibration_path()
    others = [e for e in _read(path).entries if e.fingerprint != calibration.fingerprint]
    stored = _Stored(entries=(*others, calibration))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_text(stored.model_dump_json(indent=2) + "\n")
        fresh.replace(path)
    except OSError as error:
        hint = "set XDG_STATE_HOME to a folder that can be written"
        raise StoredRunError(f"cannot write {path}: {error.strerror}", hint) from error
    return path


def find(fingerprint: Fingerprint) -> tuple[Calibration | None, str]:
    """The calibration for a host and engine, and a word where there are only others."""
    entries = _read(calibration_path()).entries
    for entry in entries:
        if entry.fingerprint == fingerprint:
            return entry, ""
    if not entries:
        return None, ""
    last = entries[-1]
    same_host = last.fingerprint.model_copy(update={"engine": fingerprint.engine}) == fingerprint
    whose = f"engine {last.fingerprint.engine}" if same_host else "another host or kernel"
    text = f"the calibration of {last.calibrated} is of {whose} and is not used"
    return None, f"{text}: run `pubstorm calibrate` again"


def _read(path: Path) -> _Stored:
    """The stored entries; none if the file cannot be read, since they can be measured again."""
    try:
        return _Stored.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return _Stored()


SHIPPED = "shipped: AMD EPYC, Linux 6.18, November 2026"
"""Source of the figures of this file; docs/benchmarks.md has them."""
RULE = "a rule, on the high side"
MICROSECONDS = 1e6


@dataclass(frozen=True, slots=True)
class Cost:
    """One figure with its source."""

    what: str
    value: float
    unit: str
    source: str


@dataclass(frozen=True, slots=True)
class Costs:
    """The figures from which preflight and sizing compute memory, CPU time and hosts. Times are CPU
    time of an agent, in microseconds; sizes are in bytes."""

    engine: Cost
    """Memory of an agent without clients."""
    further_engine: Cost
    """Memory of each further agent on a host, which shares the program with the first."""
    client: Cost
    """Memory of an idle client in its agent."""
    end: Cost
    """Memory of the kernel for the client's end of its connection: socket, file, inode, and entry
    of epoll, without caches that the kernel can reclaim."""
    tls_client: Cost
    """Memory that TLS adds to a client."""
    quic_client: Cost
    """Memory that QUIC adds to a client, which then has no socket of its own."""
    buffer: Cost
    """Memory for a message on its way."""
    pair: Cost
    """Memory of the ledger for one stream at one receiver."""
    sent: tuple[Cost, Cost]
    """Time for a message sent, at QoS 0 and 1."""
    received: tuple[Cost, Cost]
    """Time for a message received, at QoS 0 and 1."""
    ping: Cost
    """Time for a keep-alive."""
    connect: Cost
    """Time for a connection."""
    handshake: Cost
    """Time that TLS adds to a connection."""
    quic_handshake: Cost
    """Time that QUIC adds to a connection."""
    quic_packet: Cost
    """Time that QUIC adds to a packet of MQTT and its acknowledgement."""
    word: str
    """A remark for the user; empty if there is none."""

    @staticmethod
    def session(can: Capabilities) -> Cost:
        """Returns the memory that a protocol adds to a client."""
        return Cost(f"{can.title} of a client", can.session_bytes, "B", SHIPPED)

    def engines_bytes(self, engines: int) -> float:
        """Returns the memory of the agents of one host, without clients."""
        return self.engine.value + (engines - 1) * self.further_engine.value

    @classmethod
    def here(cls) -> Costs:
        """The costs on this host."""
        return cls.of(*find(Fingerprint.here(__version__)))

    @classmethod
    def of(cls, calibration: Calibration | None, word: str = "") -> Costs:
        """The costs of a calibration, with shipped figures for those that the calibration has not
        measured; `word` says why there is none."""
        source = SHIPPED
        if calibration is None:
            word = word or "run `pubstorm calibrate` on a host of that kind for its own figures"
        else:
            source = f"calibrated {calibration.calibrated[:10]} on this host"
            if calibration.received_qos1 is None:
                word = "the calibration is of an earlier Pubstorm: run `pubstorm calibrate` again"

        def cost(what: str, value: float, unit: str, name: str) -> Cost:
            figure: CalibrationFigure | None = getattr(calibration, name, None)
            if figure is None or not figure.median:
                return Cost(what, value, unit, SHIPPED)
            measured = MICROSECONDS / figure.median if unit == "µs" else figure.median
            return Cost(what, measured, unit, source)

        return cls(
            engine=Cost("agent without clients", 8 * 2**20, "B", SHIPPED),
            further_engine=Cost("further agent on a host", 2 * 2**20, "B", SHIPPED),
            client=cost("idle client, agent", 170, "B", "bytes_per_client"),
            end=cost("idle client, kernel", 4_100, "B", "kernel_bytes_per_end"),
            tls_client=Cost("TLS of a client", 22_000, "B", SHIPPED),
            quic_client=Cost("QUIC of a client", 20_000, "B", SHIPPED),
            buffer=Cost("message on its way", 4_096, "B", RULE),
            pair=Cost("stream at a receiver", 112, "B", RULE),
            sent=(
                cost("message sent, QoS 0", 7.2, "µs", "sent_qos0"),
                cost("message sent, QoS 1", 8.3, "µs", "sent_qos1"),
            ),
            received=(
                cost("message received, QoS 0", 5.2, "µs", "received"),
                cost("message received, QoS 1", 8.3, "µs", "received_qos1"),
            ),
            ping=cost("keep-alive", 11, "µs", "pinged"),
            connect=cost("connection", 31, "µs", "connected"),
            handshake=Cost("handshake of TLS", 380, "µs", SHIPPED),
            quic_handshake=Cost("handshake of QUIC", 1_180, "µs", SHIPPED),
            quic_packet=Cost("packet over QUIC", 9, "µs", SHIPPED),
            word=word,
        )


def least_seconds(plan: Plan, connects_per_s: float = inf) -> float:
    """Seconds that the stages take at least, without the start of brokers and the drains; agents
    connect `connects_per_s` clients a second at most."""
    found, before = 0.0, 0
    for stage, load in zip(plan.stages, offered_load(plan).stages, strict=True):
        clients = sum(load.phases[0].clients)
        match stage.action:
            case ConnectAction(rate_per_s=rate_per_s):
                found += (clients - before) / min(connects_per_s, rate_per_s or inf)
            case DisconnectAction(rate_per_s=rate_per_s):
                found += (before - clients) / (rate_per_s or inf)
            case PublishAction(duration_ns=duration_ns) | HoldAction(duration_ns=duration_ns):
                found += duration_ns / SECOND_NS
        before = sum(load.phases[-1].clients)
    return found
