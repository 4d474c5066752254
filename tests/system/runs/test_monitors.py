"""Whole runs, and what was watched in them beside the clients."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.kit import made
from tests.kit.perf import is_recording
from tests.kit.runs import MosquittoMaker, Play, Run, RunMaker
from tests.kit.serving import until
from tests.system.runs.underway import (
    check_profile,
    end_stage,
    perf_works,
    problems,
    statistics,
    tracks_of,
    until_profiled,
    until_sampled,
    wait_for,
    watched,
)

pytestmark = pytest.mark.xdist_group("monitors")

OWN = "topology: {brokers: {broker: {kind: mosquitto, settings: {max_queued_messages: 0}}}}"
CONNECTED = "$SYS/clients/connected"
FIGURES = {
    "device": {"connected", "sent_per_s", "acked_per_s", "due_per_s", "latency_p99_us"},
    "backend": {"received_per_s", "missing", "latency_p50_us", "latency_max_us"},
    "agent-0": {"cpu", "busy", "run_delay", "rss_bytes", "lateness_p99_us"},
    "broker-0": {"cpu", "rss_bytes", "descriptors", CONNECTED},
    "host": {"cpu", "memory_used_bytes", "load1"},
}
POPULATIONS = {"device", "backend"}


@pytest.fixture(scope="module")
def played(shared_start: RunMaker) -> tuple[Run, dict[str, Any]]:
    """A run that ends once all are watched and the broker is profiled, and its result. The
    observer is one more client of the broker, and of no population."""
    run = shared_start(watched(f"{OWN}\nprofile: {{after: 100ms, for: 1h, frequency: 499}}"))
    run.wait_for("publish")
    until_sampled(run.directory, "broker-0", CONNECTED, 22)
    until_profiled(run.process.pid, broker_of(run))
    end_stage(run.directory)
    run.finish()
    return run, run.result()


def broker_of(run: Run) -> int:
    return next(pid for pid in run.children() if name_of(pid) == "mosquitto")


def test_load_broker_host_and_agents_lie_on_one_axis(played: tuple[Run, dict[str, Any]]) -> None:
    run, result = played
    assert result["monitor_problems"] == []
    tracks = tracks_of(run.directory)
    for source, metrics in FIGURES.items():
        for metric in metrics:
            at_s = list(tracks[made.source(source), metric].at_s)
            assert at_s == sorted(at_s), (source, metric)
            assert 0 <= at_s[0] <= at_s[-1]
            if source not in POPULATIONS:
                entry = statistics(result, source, metric)
                assert entry["whole"]["count"] == len(at_s)
                assert "publish" in entry["spans"]
                assert entry["load"]["count"] > 0
    assert {w["source"] for w in result["monitors"]} == {*FIGURES}
    rates = {w["metric"] for w in result["monitors"] if w["source"] in POPULATIONS}
    assert rates == {"sent_per_s", "acked_per_s", "received_per_s", "latency_p99_us"}
    assert statistics(result, "broker-0", "cpu")["group"] == "broker"
    assert max(tracks[made.source("broker-0"), CONNECTED].values) == 22
    assert max(tracks[made.source("device"), "connected"].values) == 20
    assert max(tracks[made.source("device"), "due_per_s"].values) > 0


def test_repeated_values_of_a_broker_are_marked(played: tuple[Run, dict[str, Any]]) -> None:
    """mosquitto reports each second at most, and a monitor reads four times in a second."""
    run, result = played
    for (source, metric), track in tracks_of(run.directory).items():
        if source.name == "broker-0" and metric.startswith("$SYS/"):
            news = len(track.at_s) - sum(track.held)
            assert news <= result["duration_s"] + 2, metric
            assert any(track.held), metric


def test_an_observer_is_declared_and_its_traffic_kept_apart(
    played: tuple[Run, dict[str, Any]],
) -> None:
    _, result = played
    (observer,) = result["observers"]
    assert (observer["name"], observer["problem"]) == ("broker-0", None)
    assert observer["target"] == result["targets"][0]
    assert observer["topics"] == ["$SYS/#"]
    assert observer["received_total"] > 0
    device, backend = (result["populations"][name] for name in ("device", "backend"))
    assert backend["received_total"] == device["sent_total"] > 0
    assert backend["foreign_total"] == 0


def test_the_broker_is_profiled_in_the_publish_stage(played: tuple[Run, dict[str, Any]]) -> None:
    run, result = played
    check_profile(result, run.directory, "broker-0")


def test_what_cannot_be_watched_or_profiled_is_reported_and_the_run_continues(
    run: Play, mosquitto: MosquittoMaker, unused_port: int, tmp_path: Path
) -> None:
    (tmp_path / "acl").write_text("topic readwrite up/#\n")
    (tmp_path / "bin").mkdir()
    perf = tmp_path / "bin" / "perf"
    perf.write_text("#!/bin/sh\necho 'perf_event_paranoid setting is 4' >&2\nexit 255\n")
    perf.chmod(0o755)
    broker = mosquitto(acl_file=tmp_path / "acl", max_queued_messages=0)
    sources: dict[str, object] = {
        "away": {"prometheus": {"url": f"http://127.0.0.1:{unused_port}/metrics"}},
        "gone": {"sys": {"url": f"mqtt://127.0.0.1:{unused_port}"}},
        "silent": {"process": {"port": unused_port}},
    }
    scenario = watched(f"target: {broker.url}\nprofile: {{after: 1ms, for: 1s}}", sources)
    code, result = run(
        scenario.replace("10min", "2s"),
        environment={"PATH": f"{tmp_path / 'bin'}:/usr/sbin:/usr/bin:/sbin:/bin"},
    )
    assert code == 0, result["verdict"]
    found = problems(result)
    assert found.keys() == {"broker-0", "away", "gone", "silent"}
    # An observer that published nothing may also answer late at the end.
    of_observers = {each["name"]: each["problem"] for each in result["observers"]}
    assert of_observers.keys() == {"broker-0", "gone"} and all(of_observers.values())
    assert result["profile"]["status"] == "missing"
    assert "kernel.perf_event_paranoid" in result["profile"]["text"]


def test_a_broker_that_dies_in_the_run_is_reported_once(start: RunMaker) -> None:
    run = start(watched(OWN))
    wait_for(run, "host", "cpu", lambda _: True)
    wait_for(run, "device", "connected", lambda _: True)
    pid = broker_of(run)
    signal_process(pid, signal.SIGKILL)
    run.wait_for("killed by signal 9")
    signal_process(run.process.pid, signal.SIGINT)
    run.finish()
    result = run.result()
    (event,) = [event["text"] for event in result["events"] if event["kind"] == "broker"]
    assert f"broker-0 (pid {pid})" in event
    assert not any("has ended" in problem["text"] for problem in result["monitor_problems"])
    assert statistics(result, "host", "cpu")["whole"]["count"] > 0
    assert tracks_of(run.directory)[made.source("device"), "connected"].values


def test_a_profile_does_not_outlive_a_run_that_is_killed(
    start: RunMaker, gone: Callable[[Sequence[int]], None]
) -> None:
    if not perf_works():
        pytest.skip("this host or user may not profile")
    run = start(watched(f"{OWN}\nprofile: {{after: 100ms, for: 1h}}"))
    run.wait_for("publish")
    until(lambda: is_recording(run.process.pid))
    children = run.children()
    run.process.kill()
    gone(children)


def name_of(pid: int) -> str:
    """The name of a process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def signal_process(pid: int, number: signal.Signals) -> None:
    signal.pidfd_send_signal(os.pidfd_open(pid), number)
