"""Whole runs with rates that change along a profile, with even and with Poisson arrivals."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Play = Callable[..., tuple[int, dict[str, Any]]]

SCENARIO = """\
topology: {brokers: {broker: {kind: embedded}}}
snapshot_interval: 1s
populations:
  device:
    clients: 40
    publications: [{topic: "d/{n}", rate: 20/s, qos: 1, arrivals: ARRIVALS}]
  backend: {clients: 1, subscriptions: [{topic: "d/#", qos: 1}]}
stages:
  - connect
  - publish: {for: 6s, rate_profile: {csv: day.csv}}
  - disconnect
"""
RAMP = "time,factor\n50,0\n53,2\n56,0\n"
MEAN = 40 * 20 * 6


@pytest.mark.slow("two runs in which the rate rises and falls for 6 s")
@pytest.mark.parametrize("arrivals", ["even", "poisson"])
def test_agents_follow_a_profile_from_a_file(run: Play, tmp_path: Path, arrivals: str) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO.replace("ARRIVALS", arrivals))
    (tmp_path / "day.csv").write_text(RAMP)
    counts = []
    for agents in (1, 3):
        code, result = run(path, "--set", f"fleet.agents={agents}")
        assert code == 0, result["verdict"]["evidence"]
        device, backend = (result["populations"][name] for name in ("device", "backend"))
        counts.append(device["sent_total"] + device["skipped_total"])
        assert device["sent_total"] == backend["expected_total"] == backend["received_total"]
        due = due_per_s(Path(result["run_directory"]))
        assert max(due) > 1.3 * MEAN / 6
        assert min(due[1:-1]) < max(due) / 2
    assert counts[0] == counts[1]
    if arrivals == "even":
        assert counts[0] == MEAN
    else:
        assert counts[0] != MEAN
        assert abs(counts[0] - MEAN) < 5 * MEAN**0.5


def due_per_s(directory: Path) -> list[float]:
    """Messages due a second over time, while some were due."""
    with (directory / "samples.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == "device"]
    found = [float(row["value"]) for row in rows if row["metric"] == "due_per_s"]
    return [value for value in found if value]
