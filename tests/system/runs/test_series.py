"""Series of real runs on real brokers: brokers of a step and of a whole series, and a resume after
the series was killed. What a series means is in `tests/pure/experiment/test_played_series.py`."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.kit import program
from tests.kit.runs import RunMaker
from tests.kit.serving import until
from tests.system.runs.underway import end_stage, snapshots

LOAD = """\
topology: {brokers: {broker: {kind: mosquitto}}}
populations:
  device:
    clients: 4
    publications: [{topic: "a/{n}", rate: 20/s, qos: 1}]
  backend: {clients: 1, subscriptions: ["a/#"]}
stages: [connect, {publish: 200ms}]
thresholds: [device.connected == 4]
"""
Gone = Callable[[Sequence[int]], None]


def stored(directory: Path) -> dict[str, Any]:
    series: dict[str, Any] = json.loads((directory / "series.json").read_text())
    return series


def results(directory: Path) -> list[dict[str, Any]]:
    """The results of the steps that have one, in order."""
    files = sorted(directory.glob("steps/*/result.json"))
    return [json.loads(file.read_text()) for file in files]


def outcomes(series: dict[str, Any]) -> list[str | None]:
    return [step["status"] for step in series["steps"]]


def publishes(step: Path, after_ns: int) -> bool:
    """Returns True if a step publishes at some time after an instant."""
    return any(each.stage == 1 and each.from_ns > after_ns for each in snapshots(step))


def test_steps_can_share_a_broker_that_is_gone_after_the_series(
    start: RunMaker, gone: Gone
) -> None:
    run = start(f"{LOAD}sweep: {{pause: 0s, vary: {{seed: [1, 2]}}, broker: same}}\n")
    assert run.finish() == 0
    pids = {result["brokers"][0]["pid"] for result in results(run.directory)}
    assert len(pids) == 1
    gone([*pids])
    assert (run.directory / "topology" / "broker-0" / "mosquitto.conf").exists()
    assert outcomes(stored(run.directory)) == ["pass", "pass"]


def test_a_series_that_was_killed_in_a_step_is_resumed(start: RunMaker, gone: Gone) -> None:
    """The last step cannot begin: it leaves the log of its broker."""
    broken = "topology.brokers.broker.settings: {no_such: 5}"
    steps = f"[{{seed: 1}}, {{stages.1.publish: 10min}}, {{{broken}}}]"
    run = start(f"{LOAD}sweep: {{pause: 0s, steps: {steps}}}\n")
    until(lambda: [*run.directory.glob("steps/02-*/snapshots.jsonl")])
    children = run.children()
    run.process.send_signal(signal.SIGKILL)
    run.process.wait()
    gone(children)
    series = stored(run.directory)
    assert (outcomes(series), series["complete"]) == (["pass", None, None], False)
    first = results(run.directory)[0]

    words, resumed_ns = ("run", "--quiet", "--resume", str(run.directory)), time.monotonic_ns()
    with program.popen(words, stderr=subprocess.PIPE, text=True) as resumed:
        (step,) = run.directory.glob("steps/02-*")
        until(lambda: publishes(step, resumed_ns))
        end_stage(step)
        _, errors = resumed.communicate(timeout=120)
    assert resumed.returncode == 3, errors
    series = stored(run.directory)
    assert (outcomes(series), series["complete"]) == (["pass", "pass", None], True)
    assert (run.directory / series["steps"][2]["folder"] / "topology/broker-0/broker.log").exists()
    before, after = results(run.directory)
    assert before == first
    assert [result["command"] for result in (before, after)] == [
        step["command"] for step in series["steps"][:2]
    ]
    pids = [result["brokers"][0]["pid"] for result in (before, after)]
    assert pids[0] != pids[1]
    gone(pids)
