"""A run that is under way, as its files and its control socket show it: tests wait for a state that
was sampled, and end stages by command."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from pathlib import Path

from pubstorm.play.control_socket import ask
from tests.kit.runs import POLL_S, RUN_TIMEOUT_S, Run


def readings(directory: Path, source: str, metric: str) -> list[tuple[float, float]]:
    """Instants and values of a metric in the samples of a run, in order."""
    path = directory / "samples.csv"
    if not path.exists():
        return []
    with path.open(newline="") as stream:
        rows = [row for row in csv.reader(stream) if row[1:3] == [source, metric] and len(row) > 4]
    return [(float(at_s), float(value)) for at_s, _, _, value, _ in rows]


def wait_for(
    run: Run, source: str, metric: str, holds: Callable[[float], bool], after_s: float = 0
) -> float:
    """Waits for a sample behind an instant whose value fulfils a condition; its instant."""
    deadline_s = time.monotonic() + RUN_TIMEOUT_S
    while True:
        found = readings(run.directory, source, metric)
        for at_s, value in found:
            if at_s > after_s and holds(value):
                return at_s
        assert run.process.poll() is None, (run.stderr, found)
        assert time.monotonic() < deadline_s, (source, metric, found)
        time.sleep(POLL_S)


def end_stage(run: Run) -> None:
    """Ends the stage that is played."""
    ask(run.directory, "end stage")
