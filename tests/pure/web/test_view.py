"""`pubstorm view`: stored runs, active runs of other processes, and folders without a run."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import program
from tests.kit.example_run import Shape, write_run
from tests.kit.ports import free_port
from tests.kit.serving import Served, serving


def failure(*arguments: str) -> tuple[int, str]:
    """Exit code and errors of a command that does not serve."""
    done = program.run(arguments, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored")
    write_run(folder, Shape(duration_s=20))
    return folder


@pytest.fixture(scope="module")
def view(stored: Path) -> Iterator[Served]:
    with serving("view", str(stored), "--listen", f"127.0.0.1:{free_port()}") as served:
        yield served


def test_a_stored_run_has_its_verdict_and_its_lines(view: Served, stored: Path) -> None:
    events = view.events()
    kind, content = next((kind, content) for _, kind, content in events if content["values"])
    result = json.loads((stored / "result.json").read_text())
    assert kind == "whole"
    now = content["now"]
    assert (now["state"], now["sentence"]) == ("over", result["verdict"]["headline"])
    assert now["verdict"]["word"] == result["verdict"]["status"]
    assert len(now["thresholds"]) == len(result["verdict"]["thresholds"])
    assert len(now["figures"]) == 6
    assert [event["text"] for event in content["events"]] == [e["text"] for e in result["events"]]
    assert [stage["name"] for stage in content["stages"]] == [s["name"] for s in result["stages"]]
    shown = {chart["key"] for chart in content["charts"] if chart["lines"]}
    assert {"load", "latency", "clients", "cpu", "memory", "busy", "late"} <= shown
    assert now["offer"] is None


def test_the_page_of_a_stored_run_has_no_controls(view: Served) -> None:
    answer = view.ask("control", {"words": "stop"})
    assert json.loads(answer.text) == {"accepted": False, "text": "this page has no controls"}


def test_the_page_fetches_nothing_from_elsewhere(view: Served) -> None:
    page = view.ask()
    assert page.status == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for path in ("page.css", "theme.js", "chart.js", "controls.js", "live.js"):
        assert f'"/{path}"' in page.text
        found = view.ask(path)
        assert found.status == 200
        assert "://" not in found.text.replace("http://www.w3.org/2000/svg", "")


def test_the_report_is_served_once_there_is_one(view: Served, stored: Path) -> None:
    assert view.ask("report.html").status == 404
    (stored / "report.html").write_text("<!doctype html><title>report</title>")
    found = view.ask("report.html")
    assert (found.status, found.text) == (200, "<!doctype html><title>report</title>")
    assert view.ask("result.json").status == 404, "no other file of the folder is served"


@pytest.mark.parametrize("place", ["/etc/hostname", "/dev/zero", "loop"])
def test_a_report_that_is_a_link_is_not_served(view: Served, stored: Path, place: str) -> None:
    report = stored / "report.html"
    report.unlink(missing_ok=True)
    report.symlink_to(place)
    assert view.ask("report.html").status == 404
    report.unlink()


def test_an_interrupt_ends_the_view(stored: Path) -> None:
    with serving("view", str(stored), "--listen", f"127.0.0.1:{free_port()}") as served:
        assert next(served.events())
        os.kill(served.process.pid, signal.SIGINT)
        assert served.process.wait(60) == 0
        assert served.process.stderr is not None
        assert served.process.stderr.read() == ""


def test_the_newest_run_of_a_series_is_shown(stored: Path, tmp_path: Path) -> None:
    for number, name in enumerate(("01-a", "02-b")):
        run = tmp_path / "series" / "steps" / name
        shutil.copytree(stored, run)
        (run / "start.json").write_text('{"format": 2}')
        os.utime(run / "start.json", (number, number))
    with serving("view", str(tmp_path / "series"), f"--listen=127.0.0.1:{free_port()}") as served:
        events = served.events()
        _, _, content = next(each for each in events if each[2].get("run"))
    assert content["run"]["folder"].endswith("02-b")


def test_a_folder_without_a_run_is_an_error(tmp_path: Path) -> None:
    assert failure("view", str(tmp_path)) == (
        2,
        f"error: found no run in {tmp_path}\n  hint: name a folder that `pubstorm run` has made\n",
    )
    code, text = failure("view", str(tmp_path / "none"))
    assert (code, text.splitlines()[0]) == (2, f"error: found no folder {tmp_path / 'none'}")


def test_a_broken_result_is_said(stored: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(stored, run)
    (run / "result.json").write_text("{")
    with serving("view", str(run), f"--listen=127.0.0.1:{free_port()}") as served:
        events = served.events()
        _, _, content = next(each for each in events if each[2].get("events"))
    assert "result.json is broken: Invalid JSON" in content["events"][0]["text"]
    assert content["now"]["state"] == "gone"
