"""Paths of the Rust programs: named by the environment, packed into the wheel, or built in the
checkout. `PUBSTORM_PROGRAMS` names a folder of all four."""

from __future__ import annotations

import os
from pathlib import Path

from pubstorm.errors import BinaryError


def engine_path() -> Path:
    """The load engine, `pubstorm-engine`."""
    return _find("pubstorm-engine", "PUBSTORM_ENGINE")


def broker_path() -> Path:
    """The embedded broker, `pubstorm-broker`."""
    return _find("pubstorm-broker", "PUBSTORM_BROKER")


def proxy_path() -> Path:
    """The proxy between brokers, `pubstorm-proxy`."""
    return _find("pubstorm-proxy", "PUBSTORM_PROXY")


def zmq_path() -> Path:
    """Publishers and subscribers of libzmq, `pubstorm-zmq`."""
    return _find("pubstorm-zmq", "PUBSTORM_ZMQ")


def _find(name: str, variable: str) -> Path:
    named = os.environ.get(variable)
    if named:
        path = Path(named)
        if _runs(path):
            return path
        raise BinaryError(
            f"{variable} names '{named}', which is no program", f"unset {variable}, or correct it"
        )
    folder = os.environ.get("PUBSTORM_PROGRAMS")
    for place in (*([Path(folder)] if folder else []), PACKAGED, CHECKOUT):
        if _runs(place / name):
            return place / name
    raise BinaryError(
        f"{name} is not built", f"run: make build   (or set {variable} to the program)"
    )


def _runs(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


PACKAGED = Path(__file__).parents[1] / "bin"
CHECKOUT = Path(__file__).parents[3] / "target" / "release"
