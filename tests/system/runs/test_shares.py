"""A fleet that differs by shares: it comes in steps, some live briefly, and all of it changes at
once, as planned and as its user says meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit import program
from tests.kit.starved import passes

RunMaker = Callable[..., Any]

SCENARIO = """
topology: {brokers: {main: {kind: BROKER}}}
fleet: {agents: 2}
snapshot_interval: 200ms
drain: 1s
populations:
  backend:
    clients: 1
    subscriptions: [{topic: "up/#", qos: 1}]
    publications: [{topic: news, rate: 10/s}]
  device:
    clients: 100
    subscriptions: [news]
    publications: [{topic: "up/{n}", rate: 5/s}]
    shares:
      brief: {part: 10%, lifetime: {from: 100ms, to: 400ms, offline: 100ms}}
      sure: {part: 20%, qos: 1}
stages:
  - connect: {populations: [backend]}
  - connect: {populations: [device], clients: 50%, rate: 500/s}
  - hold: {name: half, for: 600ms}
  - connect: {populations: [device], rate: 500/s}
  - publish: PUBLISH
  - disconnect: {name: tear-down, populations: [device], rate: 200/s}
thresholds: [backend.lost == 0, backend.duplicate == 0, device.disconnected == 0]
"""
CHANGES = """
      for: 4s
      changes:
        - {at: 1s, population: device, remove: 50%}
        - {at: 2s, population: device, add: 50%}
        - {at: 3s, population: device, rate: 2}
"""


def snapshots(directory: Path) -> list[dict[str, Any]]:
    lines = (directory / "snapshots.jsonl").read_text().splitlines()
    return list(map(json.loads, lines))


def gauges_at_end(directory: Path, stage: int, gauge: str) -> list[int]:
    """The sums over agents of a gauge in each one's last snapshot of a stage."""
    latest = {each["agent"]: each for each in snapshots(directory) if each["stage"] == stage}
    populations = zip(*(each["populations"] for each in latest.values()), strict=True)
    return [sum(part["gauges"][gauge] for part in parts) for parts in populations]


@pytest.mark.slow("clients live and come again for seconds")
def test_a_fleet_comes_in_steps_lives_and_leaves(start: RunMaker) -> None:
    run = start(SCENARIO.replace("BROKER", "mosquitto").replace("PUBLISH", CHANGES))
    code, result = run.finish(), run.result()
    assert passes(code, result), run.stdout
    _, rest, brief, sure = gauges_at_end(run.directory, 2, "connected")
    assert (rest, sure) == (35, 10)
    assert brief + gauges_at_end(run.directory, 2, "offline")[2] == 5
    populations, device = result["populations"], result["wholes"]["device"]
    assert set(populations) == {"backend", "device/rest", "device/brief", "device/sure"}
    lives = populations["device/brief"]
    assert lives["left_total"] > 10 and lives["offline_max"] > 0
    assert lives["disconnected_total"] == lives["connect_failed_total"] == 0
    assert populations["device/rest"]["connected_max"] == 70
    assert populations["device/rest"]["left_total"] == 0
    assert 90 <= device["connected_max"] <= 100
    assert device["acked_total"] == populations["device/sure"]["acked_total"] > 0
    shares = [populations[f"device/{share}"] for share in ("rest", "brief", "sure")]
    assert device["sent_total"] == sum(share["sent_total"] for share in shares)
    assert populations["backend"]["received_total"] == device["sent_total"]
    load = next(stage for stage in result["stages"] if stage["kind"] == "publish")
    assert set(load["excluded"]) == {"device/rest", "device/brief", "device/sure"}
    assert load["wholes"]["device"]["sent_total"] == device["sent_total"]


def test_every_share_changes_in_one_phase(start: RunMaker) -> None:
    run = start(SCENARIO.replace("BROKER", "embedded").replace("PUBLISH", CHANGES))
    code, result = run.finish(), run.result()
    assert passes(code, result), run.stdout
    changes = ["-50% device", "+50% device", "2 × device"]
    events = [event["text"] for event in result["events"] if event["kind"] == "change"]
    assert events == changes
    assert [phase["name"] for phase in result["phases"]] == ["publish", *changes]
    assert [phase["clients"] for phase in result["phases"]] == [101, 51, 101, 101]


def test_a_fleet_is_changed_while_the_run_goes_on(start: RunMaker) -> None:
    run = start(SCENARIO.replace("BROKER", "embedded").replace("PUBLISH", "10min"))
    run.wait_for("publish")
    code, said = change(run.directory, "remove 50% device")
    while code != 0 and "no publish stage is on" in said:
        code, said = change(run.directory, "remove 50% device")
    assert (code, said.split(" at ")[0]) == (0, "-50% device")
    assert change(run.directory, "add 5 device") == (
        2,
        "error: population device has shares\n"
        "  hint: write a share in percent, or name one of its shares\n",
    )
    run.wait_for("! -50% device")
    code, said = change(run.directory, "add 5 device/sure")
    assert code == 0, said
    run.wait_for("! +5 device/sure")
    code, said = change(run.directory, "rate 0 device")
    assert code == 0, said
    run.wait_for("! 0 × device")
    run.process.send_signal(2)
    assert run.finish() == 130
    events = [event["text"] for event in run.result()["events"] if event["kind"] == "change"]
    assert events == ["-50% device", "+5 device/sure", "0 × device"]


def change(directory: Path, *words: str) -> tuple[int, str]:
    line = ("change", str(directory), *words)
    done = program.run(line, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr
