"""Asks the engine for the load that a plan offers: `pubstorm-engine --explain` counts receivers by
the rules with which an agent counts expected deliveries."""

from __future__ import annotations

import contextlib
import subprocess
from functools import lru_cache

from pydantic import ValidationError

from pubstorm.contract.commands import Failure
from pubstorm.contract.offered_load import OfferedLoad
from pubstorm.contract.plan import Plan
from pubstorm.errors import BinaryError
from pubstorm.host.binaries import engine_path
from pubstorm.host.spawn_errors import CANNOT_START, start_failure

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
