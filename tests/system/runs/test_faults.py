"""Runs that go wrong: each ends with a clear verdict, keeps what it measured and leaves nothing."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

Play = Callable[..., tuple[int, dict[str, Any]]]
RunMaker = Callable[..., Any]
MosquittoMaker = Callable[..., Any]
SmallDisk = Callable[[int], Path]

LOAD = """
target: {target}
populations:
  device:
    clients: 50
    publications: [{{topic: "up/{{n}}", rate: 20/s, qos: 1}}]
  backend:
    clients: 1
    subscriptions: [{{topic: "up/#", qos: 1}}]
stages: [connect, publish: {time}]
drain: 2s
"""
OWN_BROKERS = """
monitors: {host: false}
topology:
  brokers:
    ours: {kind: embedded}
    theirs: {kind: mosquitto}
populations:
  device:
    clients: 50
    publications: [{topic: "up/{n}", rate: 20/s, qos: 1}]
stages: [connect, publish: 60s]
"""


def evidence(result: dict[str, Any]) -> str:
    return "\n".join(result["verdict"]["evidence"])


def verdict(result: dict[str, Any]) -> tuple[str, str]:
    return result["verdict"]["status"], result["verdict"]["limited_by"]


def test_no_broker_at_the_target(run: Play, unused_port: int) -> None:
    code, result = run(LOAD.format(target=f"mqtt://127.0.0.1:{unused_port}", time="10s"))
    assert code == 3
    assert verdict(result) == ("invalid", "target")
    assert " connect refused" in evidence(result)
    assert result["populations"]["device"]["sent_total"] == 0
    assert [stage["name"] for stage in result["stages"]] == ["connect"]


def test_a_name_that_does_not_resolve(start: RunMaker) -> None:
    run = start(LOAD.format(target="mqtt://no-such-host.invalid", time="10s"))
    assert run.finish() == 3
    assert "no-such-host.invalid" in run.stderr
    assert "hint: " in run.stderr


def test_a_broker_that_refuses_everybody(run: Play, mosquitto: MosquittoMaker) -> None:
    broker = mosquitto(allow_anonymous="false")
    code, result = run(LOAD.format(target=broker.url, time="10s"))
    assert code == 3
    assert verdict(result) == ("invalid", "target")
    assert " not authorized" in evidence(result)
    assert result["populations"]["device"]["connected_max"] == 0


@pytest.mark.slow("a broker is killed, started again, and everybody has to be back")
def test_a_broker_that_is_killed_and_comes_back(start: RunMaker, mosquitto: MosquittoMaker) -> None:
    broker = mosquitto()
    # Messages that the killed broker held are lost.
    run = start(LOAD.format(target=broker.url, time="8s"), "--set", "thresholds=[loss < 50%]")
    run.wait_for_stage("publish", 2)
    broker.kill()
    run.wait_for("connected 0/51")
    broker.start()
    assert run.finish() == 0
    result = run.result()
    device, backend = result["populations"]["device"], result["populations"]["backend"]
    assert verdict(result)[0] == "pass"
    assert "device, backend: 51 of 102 connections were lost" in evidence(result)
    assert device["connected_max"] == 50
    assert device["connected_total"] == 100
    assert device["disconnected_total"] == 50
    assert device["sent_total"] == 8 * 50 * 20
    assert backend["received_total"] + backend["lost_total"] == backend["expected_total"]
    assert backend["received_total"] > device["sent_total"] / 2


@pytest.mark.slow("clients try to reconnect for seconds")
def test_an_own_broker_that_is_killed_fails_the_run(start: RunMaker) -> None:
    run = start(OWN_BROKERS.replace("60s", "6s"))
    run.wait_for_stage("publish")
    plan = json.loads((run.directory / "plan.json").read_text())
    assert len(plan["targets"]) == 2
    os.kill(pid_of(run, "mosquitto"), signal.SIGKILL)
    assert run.finish() == 1
    result = run.result()
    assert verdict(result) == ("fail", "broker")
    assert "broker theirs-0 (pid " in evidence(result)
    assert [broker["died"] for broker in result["brokers"]] == [False, True]
    assert result["populations"]["device"]["acked_total"] > 0


def test_a_killed_engine_makes_the_run_invalid_and_keeps_the_rest(
    start: RunMaker, mosquitto: MosquittoMaker
) -> None:
    run = start(LOAD.format(target=mosquitto().url, time="60s"), "--set", "fleet.agents=2")
    run.wait_for_stage("publish", 3)
    victim = pid_of(run, "pubstorm-engine")
    os.kill(victim, signal.SIGKILL)
    assert run.finish() == 3
    result = run.result()
    assert verdict(result) == ("invalid", "generator")
    assert f"(pid {victim}) was killed by signal 9" in evidence(result)
    assert result["ended_early"]
    assert result["populations"]["device"]["sent_total"] > 0


@pytest.mark.slow("an agent is given up after 10 s without a snapshot")
def test_a_silent_engine_makes_the_run_invalid(start: RunMaker, mosquitto: MosquittoMaker) -> None:
    run = start(LOAD.format(target=mosquitto().url, time="60s"))
    run.wait_for_stage("publish", 3)
    os.kill(pid_of(run, "pubstorm-engine"), signal.SIGSTOP)
    assert run.finish() == 3
    result = run.result()
    assert verdict(result) == ("invalid", "generator")
    assert "sent no snapshot for 10 s" in evidence(result)


def test_nothing_outlives_a_killed_pubstorm_and_its_result_can_be_made(
    start: RunMaker, gone: Callable[[Sequence[int]], None]
) -> None:
    table = "table={p97: device.ack_latency.p97}"
    run = start(OWN_BROKERS, "--set", "fleet.agents=2", "--set", table)
    run.wait_for_stage("publish", 3)
    children = run.children()
    assert len(children) == 4
    report = [sys.executable, "-m", "pubstorm", "report", str(run.directory)]
    early = subprocess.run(report, capture_output=True, text=True, check=False)
    assert early.returncode == 2
    assert f"is active (pid {run.process.pid})" in early.stderr
    os.kill(run.process.pid, signal.SIGKILL)
    run.process.wait()
    gone(children)
    assert (run.directory / ".reserve").exists()
    made = subprocess.run(report, capture_output=True, text=True, check=True)
    assert "no result was stored: the controller was killed" in made.stdout
    result = run.result()
    assert verdict(result) == ("invalid", "unknown")
    assert result["interrupted"]
    assert [stage["name"] for stage in result["stages"]] == ["connect", "publish"]
    device = result["populations"]["device"]
    assert 1000 <= device["sent_total"] <= 60_000
    assert device["acked_total"] > 0
    assert device["lost_total"] == 0
    assert result["table"]["p97"]["value"] > 0
    assert [broker["kind"] for broker in result["brokers"]] == ["embedded", "mosquitto"]
    assert {"agent-0", "agent-1"} <= {each["source"] for each in result["monitors"]}
    files = {path.name for path in run.directory.iterdir()}
    assert {"report.html", "report.md", "junit.xml", "latencies.hlog"} <= files
    assert ".reserve" not in files


def test_nothing_outlives_a_pubstorm_killed_while_it_starts(
    start: RunMaker, gone: Callable[[Sequence[int]], None]
) -> None:
    run = start(OWN_BROKERS)
    run.wait_for("run scenario")
    children = run.children()
    os.kill(run.process.pid, signal.SIGKILL)
    gone(children)


def test_an_interrupted_run_keeps_its_result(
    start: RunMaker, gone: Callable[[Sequence[int]], None]
) -> None:
    run = start(OWN_BROKERS)
    run.wait_for_stage("publish", 3)
    children = run.children()
    run.process.send_signal(signal.SIGTERM)
    assert run.finish() == 130
    result = run.result()
    assert result["interrupted"]
    assert "interrupted by SIGTERM" in evidence(result)
    device = result["populations"]["device"]
    assert device["sent_total"] == device["acked_total"] > 0
    for flow in result["flows"]:
        found = [flow[f"{name}_total"] for name in ("received", "lost", "in_flight")]
        assert flow["expected_total"] == sum(found)
        assert flow["lost_total"] == 0
    gone(children)


def test_an_interrupt_before_the_first_stage_leaves_nothing(
    start: RunMaker, gone: Callable[[Sequence[int]], None], unused_port: int
) -> None:
    run = start(LOAD.format(target=f"mqtt://127.0.0.1:{unused_port}", time="60s"))
    run.wait_for("run scenario")
    children = run.children()
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 130
    gone(children)


def test_a_second_interrupt_ends_at_once(start: RunMaker, mosquitto: MosquittoMaker) -> None:
    broker = mosquitto()
    run = start(LOAD.format(target=broker.url, time="60s"))
    run.wait_for_stage("publish", 3)
    broker.signal(signal.SIGSTOP)
    run.process.send_signal(signal.SIGINT)
    run.wait_for("interrupted by SIGINT")
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 130
    assert run.result()["populations"]["device"]["sent_total"] > 0


def test_a_full_disk_ends_no_run(
    start: RunMaker, mosquitto: MosquittoMaker, small_disk: SmallDisk
) -> None:
    disk = small_disk(1280)
    (disk / "ballast").write_bytes(bytes(200 << 10))
    run = start(
        LOAD.format(target=mosquitto().url, time="6s"),
        "--set",
        "snapshot_interval=100ms",
        out=disk / "run",
        report=True,
    )
    assert run.finish() == 0, run.stdout
    assert "! there is no report.html: No space left on device" in run.stderr
    assert re.search(r"(snapshots.jsonl|samples.csv): No space left on device", run.stderr)
    assert "PASS" in run.stdout
    assert "6\u202f000" in run.stdout
    assert run.result()["verdict"]["status"] == "pass"


def test_a_full_disk_from_the_start_is_an_error(
    start: RunMaker, mosquitto: MosquittoMaker, small_disk: SmallDisk
) -> None:
    disk = small_disk(1280)
    with contextlib.suppress(OSError):
        (disk / "ballast").write_bytes(bytes(1300 << 10))
    load = LOAD.format(target=mosquitto().url, time="1s")
    run = start(load, "--quiet", out=disk / "run")
    assert run.finish() == 3
    assert "No space left on device" in run.stderr
    assert "error: " in run.stderr


def test_a_run_whose_folder_goes_away_has_no_result_and_ends_with_3(
    start: RunMaker, mosquitto: MosquittoMaker
) -> None:
    run = start(LOAD.format(target=mosquitto().url, time="2s"), "--quiet")
    while not (run.directory / "snapshots.jsonl").exists():
        assert run.process.poll() is None
        time.sleep(0.01)
    renamed = run.directory.rename(run.directory.with_name("renamed"))
    assert run.finish() == 3
    assert "! the result is not stored: the folder of the run was removed or renamed" in run.stderr
    assert f"error: found no result.json in {run.directory}" in run.stderr
    assert (renamed / "snapshots.jsonl").stat().st_size > 0


def test_a_late_generator_makes_the_run_invalid(run: Play, mosquitto: MosquittoMaker) -> None:
    load = LOAD.format(target=mosquitto().url, time="1s")
    code, result = run(load, "--set", "validity.lateness_p99=1us")
    assert code == 3
    assert "the generator was late: p99 " in evidence(result)
    # Beside other work on this host the engine has to wait for a processor.
    fleet = result["fleet"]
    is_starved = 2 * fleet["late_starved_total"] > fleet["late_total"] > 0
    assert verdict(result) == ("invalid", "host" if is_starved else "generator")
    assert ("host gave an agent no processor" in evidence(result)) is is_starved


@pytest.mark.slow("clients retry until their connect stage ends")
def test_too_few_descriptors_are_named_with_the_fix(run: Play, mosquitto: MosquittoMaker) -> None:
    load = LOAD.replace("clients: 50", "clients: 500").replace(
        "stages: [connect", "stages: [connect: {{timeout: 2s}}"
    )
    code, result = run(
        load.format(target=mosquitto().url, time="2s"),
        "--set",
        "fleet.agents=1",
        prefix=("sh", "-c", 'ulimit -n 300; exec "$@"', "sh"),
    )
    assert code == 3
    assert verdict(result) == ("invalid", "host")
    assert "the limit of open descriptors: raise it (ulimit -n)" in evidence(result)
    assert 0 < result["populations"]["device"]["connected_max"] < 300


def test_few_descriptors_are_met_with_more_engines(run: Play, mosquitto: MosquittoMaker) -> None:
    code, result = run(
        # Ten times the clients at a tenth of the rate: mosquitto queues 1000 messages at most.
        LOAD.format(target=mosquitto().url, time="2s")
        .replace("clients: 50", "clients: 500")
        .replace("20/s", "2/s"),
        prefix=("sh", "-c", 'ulimit -n 300; exec "$@"', "sh"),
    )
    assert code == 0, result["verdict"]
    assert len(result["fleet"]["agents"]) > 4
    assert result["populations"]["device"]["connected_max"] == 500


@pytest.mark.slow("clients retry until their connect stage ends")
def test_too_few_ports_are_named_with_the_fix(run: Play) -> None:
    prefix = ("unshare", "--net", "sh", "-c", FEW_PORTS, "sh")
    probe = subprocess.run([*prefix, "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("a network of its own needs root, unshare and ip")
    scenario = OWN_BROKERS.replace("clients: 50", "clients: 150").replace("60s", "2s")
    one_broker = scenario.replace("    theirs: {kind: mosquitto}\n", "")
    few = one_broker.replace("stages: [connect", "stages: [connect: {timeout: 2s}")
    code, result = run(few, prefix=prefix)
    assert code == 3
    assert verdict(result) == ("invalid", "host")
    assert "a lack of free source ports: add source addresses" in evidence(result)
    # Of the hundred ports the broker listens on two: for clients, and for who asks for its counts.
    assert result["populations"]["device"]["connected_max"] == 98


FEW_PORTS = """
ip link set lo up && echo 40000 40099 > /proc/sys/net/ipv4/ip_local_port_range && exec "$@"
"""


def test_a_source_address_of_another_machine_is_named(run: Play, mosquitto: MosquittoMaker) -> None:
    code, result = run(
        LOAD.format(target=mosquitto().url, time="2s"), "--set", "sources=203.0.113.7"
    )
    assert code == 3
    assert verdict(result) == ("invalid", "host")
    assert "a source address that this machine does not have" in evidence(result)


def test_a_broker_that_refuses_its_settings_is_an_error_with_its_log(start: RunMaker) -> None:
    run = start(OWN_BROKERS.replace("kind: mosquitto", "kind: mosquitto, settings: {nonsense: 1}"))
    assert run.finish() == 3
    assert "broker theirs-0" in run.stderr
    assert 'Unknown configuration variable "nonsense"' in run.stderr


def pid_of(run: Any, program: str) -> int:
    """The process id of one of a run's children."""
    for pid in run.children():
        if Path(f"/proc/{pid}/exe").resolve().name == program:
            return int(pid)
    raise AssertionError(f"the run has no {program}")
