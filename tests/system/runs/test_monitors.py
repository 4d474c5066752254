"""Whole runs, and what was watched in them beside the clients."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pubstorm.result.samples import Tracks, read_samples

Play = Callable[..., tuple[int, dict[str, Any]]]
RunMaker = Callable[..., Any]
MosquittoMaker = Callable[..., Any]

SCENARIO = """
{where}
populations:
  device:
    clients: 20
    publications: [{{topic: "up/{{n}}", rate: 10/s, qos: 1}}]
  backend:
    clients: 1
    subscriptions: [{{topic: "up/#", qos: 1}}]
stages: [connect, publish: 3s, disconnect]
snapshot_interval: 500ms
monitors: {{interval: 250ms}}
"""
OWN = "topology: {brokers: {broker: {kind: mosquitto}}}"
FIGURES = {
    "device": {"connected", "sent_per_s", "acked_per_s", "due_per_s", "latency_p99_us"},
    "backend": {"received_per_s", "missing", "latency_p50_us", "latency_max_us"},
    "agent-0": {"cpu", "busy", "run_delay", "rss_bytes", "lateness_p99_us"},
    "broker-0": {"cpu", "rss_bytes", "descriptors", "$SYS/clients/connected"},
    "host": {"cpu", "memory_used_bytes", "load1"},
}


def statistics(result: dict[str, Any], source: str, metric: str) -> dict[str, Any]:
    """The entry of one watched figure."""
    found = [w for w in result["monitors"] if (w["source"], w["metric"]) == (source, metric)]
    assert len(found) == 1, (source, metric)
    return dict(found[0])


def problems(result: dict[str, Any]) -> dict[str, str]:
    return {problem["source"]: problem["text"] for problem in result["monitor_problems"]}


def tracks_of(run_directory: Path) -> Tracks:
    return read_samples(run_directory / "samples.csv")


def test_load_broker_host_and_agents_lie_on_one_axis(run: Play, tmp_path: Path) -> None:
    code, result = run(SCENARIO.format(where=OWN))
    assert code == 0, result["verdict"]
    assert result["monitor_problems"] == []
    tracks = tracks_of(tmp_path / "run-0")
    for source, metrics in FIGURES.items():
        for metric in metrics:
            at_s = list(tracks[source, metric].at_s)
            assert at_s == sorted(at_s), (source, metric)
            assert 0 <= at_s[0] <= at_s[-1] <= result["duration_s"] + 3
            if source not in ("device", "backend"):
                entry = statistics(result, source, metric)
                assert entry["whole"]["count"] == len(at_s)
                assert entry["spans"].keys() == {"connect", "publish", "disconnect"}
                assert entry["load"]["count"] > 0
    sources = {w["source"] for w in result["monitors"]}
    assert sources == {"broker-0", "host", "agent-0", "device", "backend"}
    rates = {w["metric"] for w in result["monitors"] if w["source"] in ("device", "backend")}
    assert rates == {"sent_per_s", "acked_per_s", "received_per_s"}
    assert statistics(result, "broker-0", "cpu")["group"] == "broker"
    # Repeated values of $SYS are marked, and the rate is growth between the others.
    for (source, metric), track in tracks.items():
        if source == "broker-0" and metric.startswith("$SYS/"):
            news = [at_s for n, at_s in enumerate(track.at_s) if not track.held[n]]
            assert all(after - at > 0.5 for at, after in pairwise(news)), metric
            assert len(news) < len(track.at_s), metric
    # The observer is one more client of the broker, and of no population.
    assert max(tracks["broker-0", "$SYS/clients/connected"].values) == 22
    assert max(tracks["device", "connected"].values) == 20
    assert max(tracks["device", "due_per_s"].values) == pytest.approx(200, rel=0.1)


def test_an_observer_is_declared_and_its_traffic_kept_apart(run: Play) -> None:
    code, result = run(SCENARIO.format(where=OWN))
    assert code == 0, result["verdict"]
    (observer,) = result["observers"]
    assert observer["name"] == "broker-0"
    assert observer["target"] == result["targets"][0]
    assert observer["topics"] == ["$SYS/#"]
    assert observer["received_total"] > 0
    assert observer["problem"] is None
    assert result["populations"]["backend"]["received_total"] == 20 * 10 * 3
    assert result["populations"]["backend"]["foreign_total"] == 0


def test_a_target_of_this_machine_is_watched_by_default(
    run: Play, mosquitto: MosquittoMaker
) -> None:
    broker = mosquitto()
    code, result = run(SCENARIO.format(where=f"target: {broker.url}"))
    assert code == 0, result["verdict"]
    assert statistics(result, "broker-0", "rss_bytes")["whole"]["min"] > 0
    assert statistics(result, "broker-0", "$SYS/messages/dropped")["whole"]["max"] == 0


def test_what_cannot_be_watched_is_reported_and_the_run_continues(
    run: Play, mosquitto: MosquittoMaker, unused_port: int, tmp_path: Path
) -> None:
    (tmp_path / "acl").write_text("topic readwrite up/#\n")
    broker = mosquitto(acl_file=tmp_path / "acl")
    sources = {
        "away": {"prometheus": {"url": f"http://127.0.0.1:{unused_port}/metrics"}},
        "gone": {"sys": {"url": f"mqtt://127.0.0.1:{unused_port}"}},
        "silent": {"process": {"port": unused_port}},
    }
    settings = f"monitors.sources={json.dumps(sources)}"
    code, result = run(SCENARIO.format(where=f"target: {broker.url}"), "--set", settings)
    assert code == 0, result["verdict"]
    found = problems(result)
    assert found.keys() == {"broker-0", "away", "gone", "silent"}
    assert "published no number under $SYS/#: allow the observer to read it" in found["broker-0"]
    assert "Connection refused" in found["away"]
    assert "cannot be reached by the observer" in found["gone"]
    assert "no process of this machine that listens" in found["silent"]
    of_observers = {each["name"]: each["problem"] for each in result["observers"]}
    assert of_observers == {"broker-0": found["broker-0"], "gone": found["gone"]}
    assert result["verdict"]["status"] == "pass"


def test_a_broker_that_dies_in_the_run_is_reported_once(start: RunMaker) -> None:
    played = start(SCENARIO.format(where=OWN), "--set", "stages=[connect, publish: 60s]")
    played.wait_for("publish")
    pid = next(pid for pid in played.children() if name_of(pid) == "mosquitto")
    signal_process(pid, signal.SIGKILL)
    played.wait_for("killed by signal 9")
    signal_process(played.process.pid, signal.SIGINT)
    played.finish()
    result = played.result()
    events = [event["text"] for event in result["events"] if event["kind"] == "broker"]
    assert events == [f"broker broker-0 (pid {pid}) was killed by signal 9"]
    assert not any("has ended" in problem["text"] for problem in result["monitor_problems"])
    assert statistics(result, "host", "cpu")["whole"]["count"] > 0
    assert tracks_of(played.directory)["device", "connected"].values


def test_the_broker_is_profiled_in_the_publish_stage(run: Play, tmp_path: Path) -> None:
    if shutil.which("perf") is None:
        pytest.skip("perf is not installed (apt-get install linux-perf)")
    where = f"{OWN}\nprofile: {{after: 100ms, for: 2s, frequency: 499}}"
    code, result = run(SCENARIO.format(where=where))
    assert code == 0, result["verdict"]
    profile = result["profile"]
    if "not allowed" in profile["text"]:
        pytest.skip(profile["text"])
    assert (profile["broker"], profile["stage"]) == ("broker-0", "publish")
    assert profile["status"] == "recorded", profile["text"]
    assert any(symbol["command"] == "mosquitto" for symbol in profile["symbols"])
    assert (tmp_path / "run-0" / profile["folded_file"]).read_text().startswith("mosquitto;")


def test_a_profile_does_not_outlive_a_run_that_is_killed(
    start: RunMaker, gone: Callable[[list[int]], None]
) -> None:
    if shutil.which("perf") is None:
        pytest.skip("perf is not installed (apt-get install linux-perf)")
    where = f"{OWN}\nprofile: {{after: 100ms, for: 60s}}"
    played = start(SCENARIO.format(where=where), "--set", "stages=[connect, publish: 60s]")
    played.wait_for("publish")
    while "perf" not in {name_of(pid) for pid in played.children()}:
        assert played.process.poll() is None, played.stderr
    children = played.children()
    played.process.kill()
    gone(children)


def test_a_profile_that_cannot_be_made_stops_nothing(run: Play, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    perf = tmp_path / "bin" / "perf"
    perf.write_text("#!/bin/sh\necho 'perf_event_paranoid setting is 4' >&2\nexit 255\n")
    perf.chmod(0o755)
    where = f"{OWN}\nprofile: {{for: 1s}}"
    path = f"{tmp_path / 'bin'}:/usr/sbin:/usr/bin:/sbin:/bin"
    code, result = run(SCENARIO.format(where=where), environment={"PATH": path})
    assert code == 0, result["verdict"]
    assert result["profile"]["status"] == "missing"
    assert "sysctl kernel.perf_event_paranoid" in result["profile"]["text"]


def name_of(pid: int) -> str:
    """The name of a process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def signal_process(pid: int, number: signal.Signals) -> None:
    signal.pidfd_send_signal(os.pidfd_open(pid), number)
