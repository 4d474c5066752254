"""Series of real runs on real brokers: fresh and shared ones, steps that fail or cannot start,
early ends by `stop_when`, and a resume after the series was killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

START = "topology: {brokers: {broker: {kind: mosquitto}}}\n"
LOAD = """\
populations:
  device:
    clients: 4
    publications: [{topic: "a/{n}", rate: 20/s, qos: 1}]
  backend: {clients: 1, subscriptions: ["a/#"]}
stages: [connect, {publish: 500ms}]
thresholds: [device.connected == 4]
"""
CLIENTS = "populations.device.clients"
NO_THRESHOLD = ("--set", "thresholds=[device.connect_failed == 0]")
Gone = Callable[[Sequence[int]], None]


def scenario(sweep: str, start: str = START) -> str:
    return f"{start}{LOAD}sweep: {{pause: 0s, {sweep}}}\n"


def stored(directory: Path) -> dict[str, Any]:
    series: dict[str, Any] = json.loads((directory / "series.json").read_text())
    return series


def results(directory: Path) -> list[dict[str, Any]]:
    """The results of the steps that have one, in order."""
    files = sorted(directory.glob("steps/*/result.json"))
    return [json.loads(file.read_text()) for file in files]


def outcomes(series: dict[str, Any]) -> list[str | None]:
    return [step["status"] for step in series["steps"]]


def resume(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pubstorm", "run", "--quiet", "--resume", str(directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_each_step_has_a_run_directory_and_a_broker_of_its_own(start: Any, gone: Gone) -> None:
    run = start(scenario("vary: {seed: [1, 2]}, repeat: 2"))
    assert run.finish() == 0
    series = stored(run.directory)
    assert [step["folder"] for step in series["steps"]] == [
        "steps/01-seed-1-1",
        "steps/02-seed-1-2",
        "steps/03-seed-2-1",
        "steps/04-seed-2-2",
    ]
    assert series["complete"]
    assert outcomes(series) == ["pass"] * 4
    pids = [result["brokers"][0]["pid"] for result in results(run.directory)]
    assert len(set(pids)) == 4
    gone(pids)
    assert [result["command"] for result in results(run.directory)] == [
        step["command"] for step in series["steps"]
    ]
    assert "step 3 of 4: seed 2 (1 of 2)\n" in run.stderr
    assert "passed up to seed 2, the last step played" in run.stdout
    assert "seed 1: 2 repeats" in run.stdout


def test_steps_can_share_a_broker_that_is_gone_after_the_series(start: Any, gone: Gone) -> None:
    run = start(scenario("vary: {seed: [1, 2]}, broker: same"))
    assert run.finish() == 0
    brokers = [result["brokers"][0] for result in results(run.directory)]
    assert brokers[0]["pid"] == brokers[1]["pid"]
    gone([brokers[0]["pid"]])
    assert (run.directory / "topology" / "broker-0" / "mosquitto.conf").exists()
    assert outcomes(stored(run.directory)) == ["pass", "pass"]


def test_a_failing_step_and_an_impossible_one_keep_their_evidence(start: Any) -> None:
    path = "topology.brokers.broker.settings"
    steps = f"steps: [{{{CLIENTS}: 5}}, {{{path}: {{listener_allow: 5}}}}, {{seed: 2}}]"
    run = start(scenario(steps))
    assert run.finish() == 3
    series = stored(run.directory)
    failed, impossible, passed = series["steps"]
    assert [failed["status"], impossible["status"], passed["status"]] == ["fail", None, "pass"]
    assert failed["evidence"][0] == "device.connected == 4: found 5"
    assert "broker-0" in impossible["problem"]
    assert (run.directory / impossible["folder"] / "topology" / "broker-0" / "broker.log").exists()
    assert series["complete"]
    assert "1 of 3 steps passed, 1 failed, 1 without a measurement" in series["text"]
    assert "no measurement" in run.stdout


@pytest.mark.parametrize("condition", ["failed", "device.connected > 4"])
def test_a_series_stops_where_its_keys_say(start: Any, condition: str) -> None:
    steps = f"vary: {{{CLIENTS}: [4, 6, 4]}}, stop_when: [invalid, '{condition}']"
    run = start(scenario(steps))
    assert run.finish() == 1
    series = stored(run.directory)
    assert series["stopped"] == condition
    assert series["complete"]
    assert outcomes(series) == ["pass", "fail", None]
    assert f"stopped early: {condition}" in run.stdout


def test_a_step_that_comes_to_no_measurement_counts_as_invalid(start: Any) -> None:
    settings = "topology.brokers.broker.settings"
    run = start(scenario(f"vary: {{{settings}: [{{no_such: 5}}, {{}}]}}, stop_when: [invalid]"))
    assert run.finish() == 3
    series = stored(run.directory)
    assert series["stopped"] == "invalid"
    assert outcomes(series) == [None, None]
    assert "came to no measurement: broker broker-0" in series["text"]


def test_a_step_that_does_not_fit_into_memory_is_not_run_and_no_failure(start: Any) -> None:
    run = start(scenario(f"vary: {{{CLIENTS}: [4, 1000M]}}, stop_when: [invalid]"), *NO_THRESHOLD)
    assert run.finish() == 0
    series = stored(run.directory)
    assert outcomes(series) == ["pass", None]
    [_, large] = series["steps"]
    assert large["unfit"].startswith("it needs about ")
    assert series["complete"]
    assert series["stopped"] is None
    assert series["text"].endswith(f"clients 1000M not run: {large['unfit']}")
    assert not (run.directory / large["folder"]).exists()
    assert f"not run: {large['unfit']}" in run.stderr


@pytest.mark.slow("a series is played twice")
def test_a_series_that_was_killed_in_a_step_is_resumed(start: Any, gone: Gone) -> None:
    text = scenario("vary: {seed: [1, 2, 3]}").replace("500ms", "2s")
    run = start(text)
    run.wait_for("  publish ", after="step 2 of 3")
    children = run.children()
    run.process.send_signal(signal.SIGKILL)
    run.process.wait()
    gone(children)
    series = stored(run.directory)
    assert outcomes(series) == ["pass", None, None]
    assert not series["complete"]
    first = (run.directory / "steps" / "01-seed-1" / "result.json").read_bytes()

    resumed = resume(run.directory)
    assert resumed.returncode == 0, resumed.stderr
    assert outcomes(stored(run.directory)) == ["pass", "pass", "pass"]
    assert stored(run.directory)["started"] == series["started"]
    assert (run.directory / "steps" / "01-seed-1" / "result.json").read_bytes() == first
    names = sorted(path.name for path in (run.directory / "steps").iterdir())
    assert names == ["01-seed-1", "02-seed-2", "02-seed-2.broken-1", "03-seed-3"]
    assert not (run.directory / "steps" / "02-seed-2.broken-1" / "result.json").exists()

    again = resume(run.directory)
    assert (again.returncode, again.stdout) == (0, resumed.stdout)


@pytest.mark.slow("a series is played twice")
def test_an_interrupt_ends_the_step_and_the_series_which_goes_on_later(start: Any) -> None:
    run = start(scenario("vary: {seed: [1, 2]}").replace("500ms", "3s"))
    run.wait_for("  publish ")
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 130
    series = stored(run.directory)
    assert series["interrupted"]
    assert not series["complete"]
    assert series["steps"][1]["status"] is None
    assert f"pubstorm run --resume {run.directory}" in run.stdout

    resumed = resume(run.directory)
    assert resumed.returncode == 0, resumed.stderr
    assert outcomes(stored(run.directory)) == ["pass", "pass"]
    assert (run.directory / "steps" / "01-seed-1.broken-1" / "result.json").exists()


def test_an_interrupt_in_the_pause_ends_the_series(start: Any) -> None:
    run = start(scenario("vary: {seed: [1, 2]}").replace("pause: 0s", "pause: 1h"))
    run.wait_for("pause of 1h")
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 130
    assert outcomes(stored(run.directory)) == ["pass", None]


def test_two_brokers_are_compared_in_one_series(start: Any, mosquitto: Any) -> None:
    one, other = mosquitto(), mosquitto()
    text = scenario(f"vary: {{target: ['{one.url}', '{other.url}']}}", f"target: {one.url}\n")
    run = start(text)
    assert run.finish() == 0
    assert [result["targets"] for result in results(run.directory)] == [
        [one.url.removeprefix("mqtt://")],
        [other.url.removeprefix("mqtt://")],
    ]
    assert stored(run.directory)["text"] == "2 of 2 steps passed"


def test_a_folder_with_another_scenario_is_not_resumed(start: Any) -> None:
    run = start(scenario("vary: {seed: [1]}"))
    assert run.finish() == 0
    path = run.directory / "scenario.yaml"
    path.write_text(path.read_text().replace("seed: [1]", "seed: [1, 2]"))
    resumed = resume(run.directory)
    assert resumed.returncode == 2
    assert "are not those of its scenario.yaml" in resumed.stderr


def test_the_command_of_a_step_plays_it_alone(start: Any, tmp_path: Path) -> None:
    run = start(scenario("vary: {populations.device.clients: [4, 5]}, repeat: 1"))
    assert run.finish() == 1
    settings = ("--set", "sweep=null", "--set", "populations.device.clients=5")
    assert " ".join(settings) in stored(run.directory)["steps"][1]["command"]
    alone = start(tmp_path / "scenario.yaml", *settings)
    assert alone.finish() == 1
    assert alone.result()["populations"]["device"]["clients"] == 5


def test_a_series_with_variants_ends_them_one_by_one_and_fills_its_tables(start: Any) -> None:
    embedded = "topology: {brokers: {broker: {kind: embedded}}}\n"
    sweep = (
        f"vary: {{{CLIENTS}: [4, 6, 5]}}, stop_when: [failed], variants: {{strict: , "
        'easy: {"thresholds.0": device.connected >= 3}}'
    )
    columns = (
        "Clients: clients, strict: {variant: strict, metric: device.connected}, "
        "easy: {variant: easy, metric: device.connected}"
    )
    run = start(f"{scenario(sweep, embedded)}tables: {{Who came: {{{columns}}}}}\n")
    assert run.finish() == 1
    series = stored(run.directory)
    assert [(step["label"], step["status"]) for step in series["steps"]] == [
        ("clients 4, strict", "pass"),
        ("clients 4, easy", "pass"),
        ("clients 6, strict", "fail"),
        ("clients 6, easy", "pass"),
        ("clients 5, strict", None),
        ("clients 5, easy", "pass"),
    ]
    assert series["complete"]
    assert series["stopped"] == "strict: failed"
    assert [line.partition(";")[0] for line in series["text"].splitlines()] == [
        "strict: 1 of 2 steps passed, 1 failed",
        "easy: 3 of 3 steps passed",
    ]
    (table,) = series["tables"]
    assert [[cell["value"] for cell in row] for row in table["rows"]] == [
        [4, 4, 4],
        [6, 6, 6],
        [5, None, 5],
    ]
    resumed = resume(run.directory)
    assert resumed.returncode == 1
    assert stored(run.directory)["tables"] == series["tables"]
