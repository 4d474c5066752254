"""The figures that `pubstorm calibrate` measured of this host's generator: stored as one entry for
each host and engine, and read by each run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from pubstorm.contract.value import Value
from pubstorm.errors import StoredRunError
from pubstorm.host.environment import cores, cpu_model, kernel
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
    """The ceilings of one engine process against a peer that discards everything. Rates are for a
    second of CPU time: those of an engine with a core for itself."""

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
