"""Runs that the start page starts, without a browser."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kit.ports import free_port
from tests.kit.serving import Served, serving, until
from tests.system.web.test_run import moved

LOAD = {"kind": "pairs", "clients": "2", "rate": "10/s", "qos": "1", "time": "10min"}


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Served]:
    with serving("web", f"--listen=127.0.0.1:{free_port()}", cwd=tmp_path) as served:
        yield served


def asked(page: Served, path: str, body: object) -> Any:
    return json.loads(page.ask(path, body).text)


def state(page: Served) -> Any:
    return json.loads(page.ask("state").text)


def idle(page: Served) -> Any:
    """Waits until no run is played; the state of the page."""
    return until(lambda: (found := state(page))["active"] is None and found)


@pytest.mark.slow("two runs, one after the other")
def test_a_run_is_started_steered_and_repeated(page: Served, tmp_path: Path) -> None:
    assert asked(page, "start", LOAD) == {"accepted": True, "to": "/live"}
    moved(page)
    active = state(page)["active"]
    assert active["command"].startswith("pubstorm bench pairs --clients=2 --rate=10/s")
    second = asked(page, "start", LOAD)
    assert (second["accepted"], second["to"]) == (False, "/live")
    assert second["text"].startswith("found a run that is being played: pubstorm bench pairs")
    assert asked(page, "control", {"words": "end stage"})["accepted"]
    (row,) = idle(page)["runs"]
    assert (row["title"], row["report"], row["problem"]) == ("bench-pairs", True, "")
    result = json.loads((tmp_path / "runs" / row["name"] / "result.json").read_text())
    assert row["headline"] == result["verdict"]["headline"]
    assert "by_hand" in {event["kind"] for event in result["events"]}
    assert page.ask(f"runs/{row['name']}/report.html").status == 200
    # The live page reads the result in its own time.
    until(lambda: page.ask("report.html").status == 200)

    assert asked(page, "repeat", {"run": row["name"]})["accepted"]
    moved(page)
    assert asked(page, "stop", {})["accepted"]
    newest, first = idle(page)["runs"]
    assert (first["name"], newest["command"]) == (row["name"], row["command"])
    repeated = json.loads((tmp_path / "runs" / newest["name"] / "result.json").read_text())
    assert repeated["interrupted"]
    assert set(repeated["populations"]) == set(result["populations"])


@pytest.mark.slow("the end of a run with its page")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_run_outlives_its_page(number: signal.Signals, page: Served, tmp_path: Path) -> None:
    assert asked(page, "start", LOAD)["accepted"]
    moved(page)
    children = psutil.Process(page.process.pid).children(recursive=True)
    assert len(children) >= 3, "controller, engine and broker"
    os.kill(page.process.pid, number)
    assert page.process.wait(120) == (-number if number == signal.SIGKILL else 0)
    until(lambda: not any(each.is_running() for each in children))
    (folder,) = (tmp_path / "runs").iterdir()
    assert json.loads((folder / "result.json").read_text())["interrupted"]


@pytest.mark.slow("a run that cannot be played")
def test_a_run_without_a_result_has_its_reason(page: Served) -> None:
    target = f"mqtt://127.0.0.1:{free_port()}"
    form = {**LOAD, "target": target, "time": "2s"}
    found = asked(page, "start", form)
    end = idle(page)
    if end["failed"] is None and found["accepted"]:
        (row,) = end["runs"]
        assert row["status"] != "pass"
    else:
        text = end["failed"]["text"] if end["failed"] else found["text"]
        assert target.removeprefix("mqtt://") in text
