"""Populations that change in a running test: as planned, and as its user says meanwhile."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.kit import program
from tests.kit.starved import passes

RunMaker = Callable[..., Any]

SECOND_NS = 10**9
SCENARIO = """
topology: {brokers: {main: {kind: embedded}}}
fleet: {agents: 2}
populations:
  all:
    clients: 1
    subscriptions: [{topic: "up/#", qos: 1}]
  device:
    clients: 20
    publications: [{topic: "up/{n}", rate: 10/s, qos: 1}]
  late:
    clients: 10
    first: 20
    subscriptions: ["down"]
    publications: [{topic: "up/{n}", rate: 10/s, qos: 1}, {topic: down, rate: 1/s}]
stages:
  - connect: {populations: [all, device]}
  - publish: PUBLISH
thresholds: [all.lost == 0, all.duplicate == 0, device.skipped == 0, late.skipped == 0]
"""
CHANGES = """
      for: 4s
      changes:
        - {at: 1s, population: late, add: 10}
        - {at: 2s, population: late, remove: 10}
        - {at: 3s, population: device, rate: 2, name: faster}
"""


def sent_by_second(directory: Path, population: int) -> dict[int, int]:
    """Messages sent in each second of the publish stage, from the snapshots."""
    lines = (directory / "snapshots.jsonl").read_text().splitlines()
    snapshots = [each for each in map(json.loads, lines) if each["stage"] == 1]
    start_ns = min(each["from_ns"] for each in snapshots)
    sent = Counter[int]()
    for each in snapshots:
        middle_ns = (each["from_ns"] + each["to_ns"]) // 2 - start_ns
        counters = each["populations"][population]["counters"]
        sent[middle_ns // SECOND_NS] += counters["sent_total"]
    return sent


def change(directory: Path, *words: str) -> tuple[int, str]:
    line = ("change", str(directory), *words)
    done = program.run(line, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow("each change has a phase of seconds")
def test_planned_changes_make_the_load_that_they_say(start: RunMaker) -> None:
    # Snapshots of a tenth of a second: a load of one second is then seen as such.
    run = start(SCENARIO.replace("PUBLISH", CHANGES), "--set", "snapshot_interval=100ms")
    code, result = run.finish(), run.result()
    assert passes(code, result), run.stdout
    device, late = (sent_by_second(run.directory, index) for index in (1, 2))
    late_sent = sum(late.values())
    assert sum(device.values()) == 20 * 10 * 5
    assert late_sent == 10 * 10 + 10
    # What was due at the very edge of a second may count to its neighbour.
    assert late[0] + late[1] + late[2] == late_sent and late[1] >= late_sent // 2
    assert 1.5 * device[2] < device[3] < 2.5 * device[2]
    events = [event for event in result["events"] if event["kind"] == "change"]
    assert [event["text"] for event in events] == ["+10 late", "-10 late", "faster"]
    apart_s = [after["at_s"] - before["at_s"] for before, after in pairwise(events)]
    assert apart_s == pytest.approx([1, 1], abs=0.01)
    assert result["populations"]["all"]["received_total"] == 20 * 10 * 5 + 10 * 10
    assert result["populations"]["late"]["connected_max"] == 10
    evidence = result["verdict"]["evidence"]
    assert any("in stage publish were excluded from loss" in line for line in evidence)


def test_a_run_is_changed_while_it_goes_on(start: RunMaker) -> None:
    run = start(SCENARIO.replace("PUBLISH", "10min"), "--set", "snapshot_interval=200ms")
    run.wait_for("publish")
    # The display shows a stage from when its clients are connected; its load begins soon after.
    code, said = change(run.directory, "add", "4", "late", "over", "500ms")
    while code != 0 and "no publish stage is on" in said:
        code, said = change(run.directory, "add", "4", "late", "over", "500ms")
    assert (code, said.split(" at ")[0]) == (0, "+4 late")
    run.wait_for("! +4 late")
    run.wait_for("connected 25/31")
    assert change(run.directory, "add 7 late") == (
        2,
        "error: not so many clients: 4 of 10 clients of late are active\n",
    )
    assert change(run.directory, "remove 4 late")[0] == 0
    run.wait_for("connected 21/31")
    assert change(run.directory, "rate 0 device")[0] == 0
    run.wait_for("! 0 × device")
    run.process.send_signal(2)
    assert run.finish() == 130
    result = run.result()
    texts = [event["text"] for event in result["events"] if event["kind"] == "change"]
    assert texts == ["+4 late", "-4 late", "0 × device"]
    assert result["populations"]["late"]["sent_total"] > 0
    assert result["populations"]["all"]["lost_total"] == 0
    assert not (run.directory / "control.sock").exists()
    code, said = change(run.directory, "rate 1 device")
    assert (code, said.splitlines()[0]) == (2, f"error: no run is active in {run.directory}")


@pytest.mark.slow("several commands ask one run")
def test_a_run_is_paused_broken_and_ended_by_hand(start: RunMaker) -> None:
    run = start(SCENARIO.replace("PUBLISH", "10min"), "--set", "snapshot_interval=200ms")
    run.wait_for("publish")
    while (asked := change(run.directory, "pause"))[0] != 0:
        assert "no publish stage is on" in asked[1]
    run.wait_for("! 0 × device")
    assert change(run.directory, "resume")[0] == 0
    run.wait_for("! 1 × device")
    assert change(run.directory, "fault kill main for 500ms") == (0, "kill main begins\n")
    run.wait_for("! kill main: 1 broker is up again")
    assert change(run.directory, "fault", "kill", "moon") == (
        2,
        "error: found moon to kill, allowed: main\n"
        "  hint: faults hit brokers that the run starts, and bridges that its scenario breaks\n",
    )
    code, said = change(run.directory, "repair kill main")
    assert (code, said) == (
        2,
        "error: found no fault kill main to repair, allowed: none is in effect\n",
    )
    assert change(run.directory, "rate 200% device")[0] == 0
    assert change(run.directory, "end stage") == (0, "the stage ends\n")
    run.wait_for("! stage publish is ended by the user")
    run.finish()
    result = run.result()
    assert not result["interrupted"]
    (fault,) = result["faults"]
    assert (fault["name"], fault["kind"], fault["victims"]) == ("kill main", "kill", ["main-0"])
    assert fault["repaired_at_s"] - fault["at_s"] >= 0.5
