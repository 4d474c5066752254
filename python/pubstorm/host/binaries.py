"""The Rust programs: their paths, named by the environment, packed into the wheel, or built in the
checkout, and the answer of the engine about the load that a plan offers."""

from __future__ import annotations

import contextlib
import os
import subprocess
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from pubstorm.contract.commands import Failure
from pubstorm.contract.offered_load import OfferedLoad
from pubstorm.contract.plan import Plan
from pubstorm.errors import BinaryError
from pubstorm.host.children import CANNOT_START, start_failure


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


TIMEOUT_S = 300
"""Longest time for the largest plan."""
ANYWHERE = {"host": "127.0.0.1", "port": 0}
KNOWN_MAX = 64
"""Plans whose load is kept."""


def offered_load(plan: Plan) -> OfferedLoad:
    """The load of a plan, wherever its targets listen: a plan that is asked about before brokers
    have ports need not be asked about again. Raises BinaryError if the engine cannot be run or
    refuses the plan."""
    anywhere = (target.model_copy(update=ANYWHERE) for target in plan.targets)
    same = plan.model_copy(update={"run_tag": 0, "targets": tuple(anywhere)})
    return _explain(same.model_dump_json())


@lru_cache(maxsize=KNOWN_MAX)
def _explain(plan: str) -> OfferedLoad:
    path = engine_path()
    try:
        done = subprocess.run(
            [path, "--explain"],
            input=f"{plan}\n",
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            process_group=0,  # Control-C is for this process, which ends the engine
        )
    except subprocess.TimeoutExpired:
        raise BinaryError(f"{path} --explain: no answer within {TIMEOUT_S} s") from None
    except CANNOT_START as error:
        raise BinaryError(*start_failure(str(path), error)) from error
    if not done.returncode:
        return OfferedLoad.model_validate_json(done.stdout)
    with contextlib.suppress(ValidationError):
        failure = Failure.model_validate_json(done.stdout)
        raise BinaryError(f"{path.name}: {failure.message}", failure.hint)
    raise BinaryError(
        f"{path} --explain: exit code {done.returncode}: {done.stderr.strip()}",
        "build the programs of this version: make build",
    )
