"""Searches of real runs on real brokers: an answer that is known, trials that count for nothing, a
series of searches, and a search that is resumed after it was killed or interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

LOAD = """\
topology: {brokers: {broker: {kind: embedded}}}
populations:
  device:
    clients: 2
    publications: [{topic: "a/{n}", rate: 10/s, qos: 1}]
  backend: {clients: 1, subscriptions: ["a/#"]}
stages: [connect, {publish: 200ms}]
thresholds: [device.connected <= 11, lost == 0]
validity: {lateness_p99: 1min, busy: 100%}
fleet: {agents: 1}
"""
CLIENTS = "populations.device.clients"
SEARCH = f"search: {{vary: {CLIENTS}, from: 4, to: 20, precision: 20%"
Gone = Callable[[Sequence[int]], None]


def stored(directory: Path) -> dict[str, Any]:
    search: dict[str, Any] = json.loads((directory / "search.json").read_text())
    return search


def resume(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pubstorm", "run", "--quiet", "--resume", str(directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_search_finds_the_value_at_which_a_threshold_breaks(start: Any) -> None:
    run = start(f"{LOAD}{SEARCH}, repeat: 2, figure: device.connected}}\n", report=True)
    assert run.finish() == 0
    search = stored(run.directory)
    answer, trials = search["answer"], search["trials"]
    assert search["complete"]
    assert answer["best"]["bound"] == "exact"
    assert answer["best"]["repeats"] == 2
    assert answer["best"]["value"] == pytest.approx(11, abs=1)
    assert answer["confirmed"]
    assert answer["most"]["value"] == 20
    assert answer["most"]["bound"] == "at_least"
    assert [trial["written"] for trial in trials[:4]] == ["4", "8", "16", "20"]
    for trial in trials:
        assert trial["status"] == ("pass" if trial["value"] <= 11 else "fail")
        folder = run.directory / trial["folder"]
        assert (folder / "result.json").exists()
        assert not (folder / "report.html").exists()
    assert "trial 1: 4 (growing)\n" in run.stderr
    assert answer["text"] in run.stdout


def test_a_broker_can_serve_all_trials(start: Any, gone: Gone) -> None:
    run = start(f"{LOAD}{SEARCH}, repeat: 1, broker: same}}\n")
    assert run.finish() == 0
    files = sorted(run.directory.glob("trials/*/result.json"))
    pids = {json.loads(file.read_text())["brokers"][0]["pid"] for file in files}
    assert len(pids) == 1
    gone([*pids])


def test_where_no_value_holds_it_ends_with_1(start: Any) -> None:
    text = LOAD.replace("device.connected <= 11", "device.connected < 1")
    run = start(f"{text}{SEARCH}, repeat: 1}}\n")
    assert run.finish() == 1
    answer = stored(run.directory)["answer"]
    assert answer["best"] is None
    assert answer["text"].startswith("no value passed; 1 fails")


def test_where_nothing_can_be_counted_it_ends_with_3(start: Any) -> None:
    broken = LOAD.replace("kind: embedded", "kind: mosquitto, settings: {no_such: 5}")
    run = start(f"{broken}{SEARCH}, repeat: 1, retries: 1}}\n")
    assert run.finish() == 3
    trials = stored(run.directory)["trials"]
    assert [(trial["written"], trial["attempt"]) for trial in trials[:2]] == [("4", 1), ("4", 2)]
    assert not any(trial["counted"] for trial in trials)
    assert "broker-0" in trials[0]["why"]


@pytest.mark.slow("a search has several runs")
def test_a_search_that_was_killed_goes_on_with_the_trials_it_has(start: Any, gone: Gone) -> None:
    run = start(f"{LOAD.replace('200ms', '1s')}{SEARCH}, repeat: 1}}\n")
    run.wait_for("  publish ", after="trial 3: ")
    children = run.children()
    run.process.send_signal(signal.SIGKILL)
    run.process.wait()
    gone(children)
    killed = stored(run.directory)
    assert [trial["written"] for trial in killed["trials"]] == ["4", "8"]
    assert not killed["complete"]

    resumed = resume(run.directory)
    assert resumed.returncode == 0, resumed.stderr
    search = stored(run.directory)
    assert search["trials"][:2] == killed["trials"]
    assert search["started"] == killed["started"]
    assert search["answer"]["best"]["value"] == 11
    assert (run.directory / "trials" / "003-16.broken-1").exists()
    again = resume(run.directory)
    assert (again.returncode, again.stdout) == (0, resumed.stdout)


def test_an_interrupt_keeps_what_was_measured(start: Any) -> None:
    run = start(f"{LOAD}{SEARCH}, pause: 1h}}\n")
    run.wait_for("  passes")
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 130
    search = stored(run.directory)
    assert search["interrupted"]
    assert [trial["written"] for trial in search["trials"]] == ["4"]
    assert f"pubstorm run --resume {run.directory}" in run.stdout


def test_a_folder_with_another_search_is_not_resumed(start: Any) -> None:
    run = start(f"{LOAD}{SEARCH}, pause: 1h}}\n")
    run.wait_for("  passes")
    run.process.send_signal(signal.SIGINT)
    run.finish()
    file = run.directory / "scenario.yaml"
    file.write_text(file.read_text().replace("from: 4", "from: 5"))
    resumed = resume(run.directory)
    assert resumed.returncode == 2
    assert "are not those of its scenario" in resumed.stderr


def test_each_step_of_a_series_can_be_a_search(start: Any) -> None:
    columns = "{step: step, best: search.best, n: search.trials, sent: device.sent, v: verdict}"
    lines = (
        f"{SEARCH}, repeat: 1}}",
        f"table: {columns}",
        "sweep:",
        "  pause: 0s",
        "  steps:",
        "    - {step: low, thresholds: [device.connected <= 5]}",
        "    - {step: none, thresholds: [device.connected == 0]}",
    )
    run = start(LOAD + "\n".join(lines) + "\n", report=True)
    assert run.finish() == 1
    series = json.loads((run.directory / "series.json").read_text())
    low, none = series["steps"]
    assert (low["status"], none["status"]) == ("pass", "fail")
    assert low["answer"]["best"]["value"] == 5
    assert low["cells"][0]["word"] == "low"
    assert low["cells"][1]["estimate"]["low"] == 5
    assert low["cells"][3]["value"] > 0
    assert (none["cells"][1]["value"], none["cells"][1]["word"]) == (None, "")
    assert stored(run.directory / low["folder"])["answer"] == low["answer"]
    search = stored(run.directory / low["folder"])
    assert search["columns"] == ["sent", "v"]
    assert all(len(trial["cells"]) == 2 for trial in search["trials"])
    assert (run.directory / low["folder"] / "report.html").exists()
    again = [sys.executable, "-m", "pubstorm", "report", str(run.directory / low["folder"])]
    assert (
        search["answer"]["text"] in subprocess.run(again, stdout=-1, text=True, check=True).stdout
    )
    before = [path.stat().st_mtime_ns for path in run.directory.glob("steps/*/trials/*")]
    assert resume(run.directory).returncode == 1
    assert [p.stat().st_mtime_ns for p in run.directory.glob("steps/*/trials/*")] == before
