"""Runs under way whose broker is watched: their scenario, waits for what they record, and the end
of a stage by command, so that no test depends on the length of a stage."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from pubstorm.contract.snapshot import SNAPSHOTS_FILE, Snapshot
from pubstorm.play.control_socket import ask
from pubstorm.result.journal import journal_lines, snapshots_in
from pubstorm.result.machinery import ENOUGH_SHARE
from pubstorm.result.samples import SAMPLES_FILE, Tracks, read_samples
from tests.kit import program
from tests.kit.perf import is_recording
from tests.kit.runs import POLL_S, RUN_TIMEOUT_S, Run
from tests.kit.serving import until

LOAD = """
populations:
  device:
    clients: 20
    publications: [{topic: "up/{n}", rate: 25/s, qos: 1}]
  backend:
    clients: 1
    subscriptions: [{topic: "up/#", qos: 1}]
stages: [connect, publish: 10min, disconnect]
snapshot_interval: 500ms
"""
PROFILED_CPU_S = 0.05
"""CPU time of a broker of which a profile has samples."""


def watched(where: str, sources: dict[str, object] | None = None, interval: str = "250ms") -> str:
    """A scenario whose monitors read so often."""
    monitors = {"interval": interval, "sources": sources or {}}
    return f"{where}\n{LOAD}monitors: {json.dumps(monitors)}\n"


def change(directory: Path, *words: str) -> None:
    """Steers a run."""
    line = ("change", str(directory), *words)
    program.run(line, check=True, capture_output=True, timeout=120)


def end_stage(directory: Path) -> None:
    """Ends the stage that is played. A message that is due at that instant counts as skipped."""
    ask(directory, "end stage")


def repair(run: Run, fault: str, repaired: str) -> None:
    """Repairs a fault that begins, and waits for the words of its repair."""
    run.wait_for(f"! {fault}")
    ask(run.directory, f"repair {fault}")
    run.wait_for(f"! {fault}: {repaired}")


def wait_for(
    run: Run, source: str, metric: str, holds: Callable[[float], bool], after_s: float = 0
) -> float:
    """Waits for a sample after an instant whose value fulfils a condition. Returns its instant."""
    deadline_s = time.monotonic() + RUN_TIMEOUT_S
    while True:
        found = readings(run.directory, source, metric)
        for at_s, value in found:
            if at_s > after_s and holds(value):
                return at_s
        assert run.process.poll() is None, (run.stderr, found)
        assert time.monotonic() < deadline_s, (source, metric, found)
        time.sleep(POLL_S)


def snapshots(directory: Path) -> list[Snapshot]:
    """Returns the snapshots that a run has written so far, in order."""
    if not (directory / SNAPSHOTS_FILE).exists():
        return []
    return list(snapshots_in(journal_lines(directory, SNAPSHOTS_FILE)))


def counted(directory: Path, population: str, counter: str) -> int:
    """Returns a counter of a population so far."""
    found, place = snapshots(directory), _place(directory, population)
    return sum(getattr(each.populations[place].counters, counter) for each in found)


def outcomes(directory: Path, population: str) -> Counter[str]:
    """Returns the problems of a population so far, by reason."""
    found = Counter[str]()
    for each in snapshots(directory):
        found.update(each.populations[_place(directory, population)].outcomes)
    return found


def ready(directory: Path, population: str) -> int:
    """Returns the clients of a population that are ready, in the last snapshot of each agent."""
    latest = {each.agent: each for each in snapshots(directory)}
    place = _place(directory, population)
    return sum(each.populations[place].gauges.ready for each in latest.values())


def _place(directory: Path, population: str) -> int:
    """Returns the index of a population of a run that has begun."""
    plan = json.loads((directory / "plan.json").read_text())
    return [each["name"] for each in plan["populations"]].index(population)


def until_seen(run: Run, condition: Callable[[], bool]) -> None:
    """Waits until a condition is met by what a run has written. Fails at once if the run ends."""

    def is_seen() -> bool:
        is_over = run.process.poll() is not None
        found = (run.directory / "plan.json").exists() and condition()
        assert found or not is_over, run.stderr
        return found

    until(is_seen)


def tracks_of(directory: Path) -> Tracks:
    return read_samples(directory)


def until_sampled(directory: Path, source: str, metric: str, least: float) -> None:
    """Waits until a monitor of a run has read a value of at least this."""
    until(lambda: max(values(directory, source, metric), default=least - 1) >= least)


def until_sampled_after(directory: Path, source: str, metric: str) -> None:
    """Waits until a monitor has read a metric twice more, so once at least as a whole."""
    before = len(values(directory, source, metric))
    until(lambda: len(values(directory, source, metric)) > before + 1)


def until_covered(directory: Path, source: str, metric: str, interval_s: float) -> None:
    """Waits until readings of a monitor cover so much of the time up to the last one that a figure
    over it is decided: on a busy host, the first ones may be missing."""

    def covers() -> bool:
        found = readings(directory, source, metric)
        return found != [] and len(found) * interval_s >= ENOUGH_SHARE * found[-1][0]

    until(covers)


def values(directory: Path, source: str, metric: str) -> list[float]:
    return [value for _, value in readings(directory, source, metric)]


def readings(directory: Path, source: str, metric: str) -> list[tuple[float, float]]:
    """Instants and values of a metric in the samples of a run, in order."""
    if not (directory / SAMPLES_FILE).exists():
        return []
    return [
        reading
        for (each, name), track in tracks_of(directory).items()
        if (each.name, name) == (source, metric)
        for reading in zip(track.at_s, track.values, strict=True)
    ]


@functools.cache
def perf_works() -> bool:
    """True if this host and user may profile; without perf, the test is skipped."""
    if shutil.which("perf") is None:
        pytest.skip("perf is not installed (apt-get install linux-perf)")
    command = ["perf", "record", "-o", "/dev/null", "true"]
    return not subprocess.run(command, capture_output=True, timeout=60, check=False).returncode


def until_profiled(parent: int, broker: int) -> None:
    """Waits until perf, started by a process, has watched a broker at work. Without perf, the
    profile is missing and nothing is waited for."""
    if shutil.which("perf") is None or not perf_works():
        return
    until(lambda: is_recording(parent))
    times = psutil.Process(broker).cpu_times
    before = times()
    until(lambda: sum(times()[:2]) - sum(before[:2]) >= PROFILED_CPU_S)


def statistics(result: dict[str, Any], source: str, metric: str) -> dict[str, Any]:
    """The entry of one watched figure."""
    found = [w for w in result["monitors"] if (w["source"], w["metric"]) == (source, metric)]
    assert len(found) == 1, (source, metric, result["monitor_problems"])
    return dict(found[0])


def whole(result: dict[str, Any], source: str, metric: str) -> dict[str, Any]:
    """The statistics of one monitored figure over the run."""
    return dict(statistics(result, source, metric)["whole"])


def problems(result: dict[str, Any]) -> dict[str, str]:
    return {problem["source"]: problem["text"] for problem in result["monitor_problems"]}


def check_profile(result: dict[str, Any], directory: Path, broker: str) -> None:
    """Checks that a mosquitto was profiled in the publish stage."""
    if not perf_works():
        pytest.skip("this host or user may not profile")
    profile = result["profile"]
    assert (profile["broker"], profile["stage"]) == (broker, "publish")
    assert profile["status"] == "recorded", profile["text"]
    assert any(symbol["command"] == "mosquitto" for symbol in profile["symbols"])
    assert (directory / profile["folded_file"]).read_text().startswith("mosquitto;")
