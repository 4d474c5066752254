"""Runs, series and runs of other processes on the live page, without a browser."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kit import program
from tests.kit.ports import free_port
from tests.kit.serving import Served, serving, until
from tests.system.runs.underway import end_stage

SCENARIO = """
topology: {brokers: {main: {kind: embedded}}}
populations:
  device:
    clients: 5
    publications: [{topic: "up/{n}", rate: 10/s, qos: 1}]
stages: [connect, publish: 10min]
validity: {lateness_p99: 1min, busy: 100%}
"""


def scenario(folder: Path, more: str = "") -> str:
    (folder / "scenario.yaml").write_text(SCENARIO + more)
    return "scenario.yaml"


def page(served: Served) -> psutil.Process:
    """The process of the page."""
    children = psutil.Process(served.process.pid).children()
    return next(each for each in children if "pubstorm.web" in each.cmdline())


def moved(served: Served) -> Any:
    """Waits until the page shows a load; the content of the event."""
    for _, kind, content in served.events():
        if kind == "news" and is_under_load(content):
            return content
    raise AssertionError("the stream ended")


def is_under_load(content: Any) -> bool:
    """True if an event shows values of a run that is in its publish stage."""
    now = content["now"]
    publishes = now["state"] == "running" and now["stage"]["name"] == "publish"
    return publishes and bool(content["values"])


def measured_s(run: Path) -> float:
    """The time of a run that its snapshots cover, in seconds after its start."""
    started_ns = json.loads((run / "start.json").read_text())["started_ns"]
    whole, _, _ = (run / "snapshots.jsonl").read_text().rpartition("\n")
    return float(json.loads(whole.splitlines()[-1])["to_ns"] - started_ns) / 1e9


@pytest.mark.slow("a run in two terminals")
def test_a_run_is_viewed_and_steered_from_elsewhere(tmp_path: Path) -> None:
    run = ["run", scenario(tmp_path), "--out", "run", f"--web=127.0.0.1:{free_port()}"]
    with serving(*run, cwd=tmp_path) as served:
        moved(served)
        view = ["view", "run", f"--listen=127.0.0.1:{free_port()}"]
        with serving(*view, cwd=tmp_path) as viewed:
            content = moved(viewed)
            assert content["now"]["offer"] is None
            refused = viewed.ask("control", {"words": "stop"})
            assert json.loads(refused.text)["text"] == "this page has no controls"
        broken: tuple[object, ...] = ({"words": "x" * 9000}, {"words": 5}, [], {"words": "a\nstop"})
        for body in broken:
            answer = json.loads(served.ask("control", body).text)
            assert not answer["accepted"]
        foreign = {"Origin": "http://evil.example"}
        assert served.ask("control", {"words": "stop"}, foreign).status == 403
        assert served.process.poll() is None
        stopped = json.loads(served.ask("control", {"words": "stop"}).text)
        assert stopped == {"accepted": True, "text": "the run ends"}
        assert served.process.wait(120) == 130


@pytest.mark.slow("a run that loses its page")
def test_a_run_without_its_page_continues(tmp_path: Path) -> None:
    more = "sweep: {steps: [{step: long}, {step: short, stages.1.publish: 1s}]}\n"
    run = ["run", scenario(tmp_path, more), "--out", "run", "--progress", "1s"]
    with serving(*run, f"--web=127.0.0.1:{free_port()}", cwd=tmp_path) as served:
        moved(served)
        page(served).kill()
        end_stage(tmp_path / "run/steps/01-long")
        _, errors = served.process.communicate(timeout=120)
    assert (tmp_path / "run/series.json").exists(), errors
    assert "! the live page ended, the run continues: it gave no reason" in errors


@pytest.mark.slow("a page that outlives nothing")
def test_no_page_outlives_its_run(tmp_path: Path) -> None:
    run = ["run", scenario(tmp_path), "--out", "run", f"--web=127.0.0.1:{free_port()}"]
    with serving(*run, cwd=tmp_path) as served:
        moved(served)
        left = page(served)
        os.kill(served.process.pid, signal.SIGKILL)
        assert left.wait(60) is not None or not left.is_running()


@pytest.mark.slow("a series of two runs")
def test_the_page_follows_a_series(tmp_path: Path) -> None:
    more = "sweep: {vary: {populations.device.clients: [5, 7]}}\n"
    run = ["run", scenario(tmp_path, more), "--out", "series"]
    with serving(*run, f"--web=127.0.0.1:{free_port()}", cwd=tmp_path) as served:
        clients, folders, steps = set(), set(), set()
        states, ended, folder = [], set(), ""
        for _, kind, content in served.events():
            if kind == "whole":
                folder = Path(content["run"]["folder"]).name if content["run"] else ""
            if not folder:
                continue
            folders.add(folder)
            now = content["now"]
            states.append(now["state"])
            clients |= {each["cells"][0].rpartition(" / ")[2] for each in now["populations"]}
            if not is_under_load(content):
                continue
            steps.add(now["step"])
            # A busy host shows a run late, so each lasts until the page has shown it. The page has
            # the name of the next step before it shows that step's run.
            if folder not in ended:
                ended.add(folder)
                assert json.loads(served.ask("control", {"words": "end stage"}).text)["accepted"]
        assert served.process.wait(120) in {0, 1, 3}
    assert clients == {"5", "7"}
    assert len(folders) == 2
    assert states[-1] == "over", "the page shows the end of the last run"
    assert len(steps) >= 2


@pytest.mark.slow("a controller is killed")
def test_a_run_whose_controller_was_killed_is_shown_as_far_as_it_came(tmp_path: Path) -> None:
    run = ["run", scenario(tmp_path), "--out", "run", f"--web=127.0.0.1:{free_port()}"]
    with serving(*run, cwd=tmp_path) as served:
        moved(served)
        assert json.loads(served.ask("control", {"words": "rate 2 device"}).text)["accepted"]
        events = (event for _, _, each in served.events() for event in each["events"])
        change = next(event for event in events if event["text"] == "2 × device")
        # A phase in which nothing was measured is none.
        until(lambda: measured_s(tmp_path / "run") > change["at"])
        os.kill(served.process.pid, signal.SIGKILL)
        served.process.wait()
    with serving("view", "run", f"--listen=127.0.0.1:{free_port()}", cwd=tmp_path) as viewed:
        content = next(each for _, _, each in viewed.events() if each["values"])
        assert content["now"]["state"] == "gone"
        assert "pubstorm report" in content["now"]["sentence"]
    program.run(("report", "run"), cwd=tmp_path, capture_output=True, check=True, timeout=120)
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert "2 × device" in [event["text"] for event in result["events"]]
    assert [phase["name"] for phase in result["phases"]] == ["publish", "2 × device"]
