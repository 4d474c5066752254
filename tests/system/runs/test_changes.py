"""Populations that change in a running test: as planned, and as its user says meanwhile; and a
fleet that differs by shares, and comes in steps."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kit.runs import Run, RunMaker

pytestmark = pytest.mark.xdist_group("changes")

SCENARIO = """
topology: {brokers: {main: {kind: KIND}}}
fleet: {agents: 2}
snapshot_interval: 200ms
drain: 1s
defaults: "off"
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
  late:
    clients: 10
    first: 100
    subscriptions: [down]
    publications: [{topic: "up/{n}", rate: 10/s, qos: 1}, {topic: down, rate: 1/s}]
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
        - {at: 500ms, population: late, add: 10}
        - {at: 1s, population: device, remove: 50%}
        - {at: 1500ms, population: late, remove: 10}
        - {at: 2s, population: device, add: 50%}
        - {at: 3s, population: device, rate: 2, name: faster}
  - hold:
      name: night
      for: 4s
      client_profiles:
        # All clients stay longer than a stall of the host.
        late: {points: [{at: 0s, clients: 0}, {at: 400ms, clients: 10}, {at: 3600ms, clients: 10},
                        {at: 3900ms, clients: 4}]}
"""
NAMES = ["+10 late", "-50% device", "-10 late", "+50% device", "faster"]
NIGHT = 5
"""Index of the hold stage in which clients follow a profile."""


def of_changes(result: dict[str, Any]) -> list[str]:
    return [event["text"] for event in result["events"] if event["kind"] == "change"]


def gauges_at_end(directory: Path, stage: int, gauge: str) -> list[int]:
    """Returns the sums over agents of a gauge in each one's last snapshot of a stage."""
    lines = (directory / "snapshots.jsonl").read_text().splitlines()
    latest = {each["agent"]: each for each in map(json.loads, lines) if each["stage"] == stage}
    populations = zip(*(each["populations"] for each in latest.values()), strict=True)
    return [sum(part["gauges"][gauge] for part in parts) for parts in populations]


def connecting_at_end(directory: Path, stage: int) -> list[int]:
    """Returns the clients of each population whose attempt to connect had no end in the last
    snapshots of a stage."""
    lines = (directory / "snapshots.jsonl").read_text().splitlines()
    until = [each for each in map(json.loads, lines) if (each["stage"] or 0) <= stage]
    counters = zip(*([p["counters"] for p in each["populations"]] for each in until), strict=True)
    ended = ("connected_total", "connect_failed_total")
    return [
        sum(each["connect_attempts_total"] - sum(each[name] for name in ended) for each in parts)
        for parts in counters
    ]


@pytest.fixture(scope="module")
def planned(shared_start: RunMaker) -> Run:
    run = shared_start(SCENARIO.replace("KIND", "mosquitto").replace("PUBLISH", CHANGES))
    run.finish()
    return run


@pytest.fixture(scope="module")
def result(planned: Run) -> dict[str, Any]:
    found = planned.result()
    assert all(each["passed"] for each in found["verdict"]["thresholds"])
    return found


@pytest.mark.slow("a fleet comes in steps, and changes for 4 s")
def test_a_fleet_comes_in_steps_lives_and_leaves(planned: Run, result: dict[str, Any]) -> None:
    _, rest, brief, sure, _ = gauges_at_end(planned.directory, 2, "connected")
    assert (rest, sure) == (35, 10)
    offline = gauges_at_end(planned.directory, 2, "offline")[2]
    assert brief + offline + connecting_at_end(planned.directory, 2)[2] == 5
    lives = result["populations"]["device/brief"]
    assert lives["left_total"] > 5 and lives["offline_max"] > 0
    assert lives["disconnected_total"] == lives["connect_failed_total"] == 0
    assert result["populations"]["device/rest"]["connected_max"] == 70


def test_every_share_is_a_population_and_the_fleet_is_their_sum(result: dict[str, Any]) -> None:
    populations, device = result["populations"], result["wholes"]["device"]
    shares = [f"device/{share}" for share in ("rest", "brief", "sure")]
    assert set(populations) == {"backend", "late", *shares}
    assert 90 <= device["connected_max"] <= 100
    assert device["acked_total"] == populations["device/sure"]["acked_total"] > 0
    assert device["sent_total"] == sum(populations[share]["sent_total"] for share in shares)
    load = next(stage for stage in result["stages"] if stage["kind"] == "publish")
    assert set(load["excluded"]) == {"late", *shares}
    assert load["wholes"]["device"]["sent_total"] == device["sent_total"]


def test_planned_changes_make_the_load_that_they_say(result: dict[str, Any]) -> None:
    """Active clients publish what is due in each second."""
    device, late = result["wholes"]["device"], result["populations"]["late"]
    assert of_changes(result) == [*NAMES, "late to 10", "late to 4"]
    assert [phase["name"] for phase in result["phases"]] == ["publish", *NAMES]
    assert [phase["clients"] for phase in result["phases"]] == [101, 111, 61, 51, 101, 101]
    assert late["sent_total"] + late["skipped_total"] == 10 * 10 + 10
    assert (late["connected_max"], late["disconnected_total"]) == (10, 0)
    # A client that leaves sends what is due, and may not wait for the acknowledgement.
    received = result["populations"]["backend"]["received_total"] - device["sent_total"]
    assert late["acked_total"] <= received <= late["sent_total"]
    sure, rest = (result["populations"][f"device/{name}"] for name in ("sure", "rest"))
    # 1 s of all, 1 s of half, 1 s of all, and 1 s of all at twice the rate: of 5/s, 22.5.
    assert sure["sent_total"] + sure["skipped_total"] == 20 * 22.5
    assert rest["sent_total"] + rest["skipped_total"] == 70 * 22.5


def test_clients_follow_a_profile_in_a_hold_stage_and_publish_nothing(
    planned: Run, result: dict[str, Any]
) -> None:
    night = result["stages"][NIGHT]
    assert (night["kind"], night["excluded"]) == ("hold", ["late"])
    assert night["populations"]["late"]["connected_total"] == 10
    assert night["populations"]["late"]["sent_total"] == 0
    assert gauges_at_end(planned.directory, NIGHT, "connected")[-1] == 4


def change(directory: Path, *words: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pubstorm", "change", str(directory), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def steered(shared_start: RunMaker) -> tuple[Run, dict[str, tuple[int, str]]]:
    """A run that is changed, paused, broken and ended by hand, and the answers."""
    run = shared_start(SCENARIO.replace("KIND", "embedded").replace("PUBLISH", "10min"))
    run.wait_for("publish")
    answers = {}

    def ask(*words: str) -> None:
        answers[" ".join(words)] = change(run.directory, *words)

    # The display shows a stage from when its clients are connected; its load begins soon after.
    while (first := change(run.directory, "remove 50% device"))[0] != 0:
        assert "no publish stage is on" in first[1]
    answers["remove 50% device"] = first
    run.wait_for("! -50% device")
    ask("add 5 device")
    ask("add 5 device/sure")
    run.wait_for("! +5 device/sure")
    ask("add", "4", "late", "over", "500ms")
    run.wait_for("! +4 late")
    ask("add 7 late")
    ask("migrate 5 device")
    ask("pause")
    run.wait_for("! pause device")
    ask("resume")
    run.wait_for("! 1 × device: resumed")
    ask("fault kill main for 500ms")
    run.wait_for("! kill main: 1 broker is up again")
    ask("fault", "kill", "moon")
    ask("repair kill main")
    ask("rate 200% device")
    ask("end stage")
    run.wait_for("! stage publish is ended by the user")
    run.finish()
    ask("rate 1 device")
    return run, answers


@pytest.mark.slow("several commands change one run")
def test_a_run_is_changed_paused_broken_and_ended_by_hand(
    steered: tuple[Run, dict[str, tuple[int, str]]],
) -> None:
    run, answers = steered
    result = run.result()
    texts = ["-50% device", "+5 device/sure", "+4 late", "pause device"]
    texts += ["1 × device: resumed", "2 × device"]
    assert set(texts) <= {*of_changes(result)}
    assert not result["interrupted"]
    assert result["verdict"]["headline"].endswith("; changed by hand.")
    by_hand = [event["text"] for event in result["events"] if event["kind"] == "by_hand"]
    asked = ("+5 device/sure", "-50% device", "+4 late", "2 × device")
    assert {f"the user made the change {name}" for name in asked} <= {*by_hand}
    assert {"the user paused device", "the user resumed device"} <= {*by_hand}
    assert by_hand[-1] == "stage publish is ended by the user"
    assert "the user began the fault kill main" in by_hand
    (fault,) = result["faults"]
    assert (fault["name"], fault["kind"], fault["victims"]) == ("kill main", "kill", ["main-0"])
    assert fault["repaired_at_s"] - fault["at_s"] >= 0.5
    assert result["populations"]["late"]["sent_total"] > 0
    assert [code for code, _ in answers.values()].count(0) == 8


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("add 5 device", "device"),
        ("add 7 late", "4 of 10"),
        ("migrate 5 device", "found migrate of device/.*, whose targets have TCP"),
        ("fault kill moon", "moon"),
        ("repair kill main", "kill main"),
        ("rate 1 device", "no run"),
    ],
)
def test_a_command_that_cannot_be_is_refused(
    steered: tuple[Run, dict[str, tuple[int, str]]], words: str, named: str
) -> None:
    code, text = steered[1][words]
    assert code == 2
    assert re.match(f"error: .*{named}", text)
