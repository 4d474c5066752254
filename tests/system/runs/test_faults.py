"""Runs that go wrong: each ends with a clear verdict, keeps what it measured and leaves nothing."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.kit import program
from tests.kit.runs import MosquittoMaker, Run, RunMaker, SmallDisk
from tests.kit.serving import until
from tests.system.runs.underway import end_stage

Play = Callable[..., tuple[int, dict[str, Any]]]
Gone = Callable[[Sequence[int]], None]

LOAD = """
target: {target}
populations:
  device:
    clients: 50
    publications: [{{topic: "up/{{n}}", rate: 20/s, qos: 1, retain: {retain}}}]
  backend:
    clients: 1
    subscriptions: [{{topic: "up/#", qos: 1}}]
stages: [connect, publish: {{for: {time}, faults: [{fault}]}}]
drain: 2s
"""
OWN_BROKERS = """
monitors: {host: false}
drain: 500ms
topology:
  brokers:
    ours: {kind: embedded}
    theirs: {kind: mosquitto}
populations:
  device:
    clients: 50
    publications: [{topic: "up/{n}", rate: 20/s, qos: 1}]
stages: [connect, publish: 10min]
"""


def load(target: str, time: str = "60s", retain: str = "false", fault: str = "") -> str:
    return LOAD.format(target=target, time=time, retain=retain, fault=fault)


def verdict(result: dict[str, Any]) -> tuple[str, str]:
    return result["verdict"]["status"], result["verdict"]["limited_by"]


def test_no_broker_at_the_target(run: Play, unused_port: int) -> None:
    # In virtual time, tests/pure/play/test_stages.py holds the stage in which such a run ends.
    stages = "stages=[{connect: {timeout: 1s}}, {publish: 1s}]"
    code, result = run(load(f"mqtt://127.0.0.1:{unused_port}"), "--set", stages)
    assert (code, *verdict(result)) == (3, "invalid", "target")
    device = result["populations"]["device"]
    assert device["outcomes"].keys() == {"connect_refused"}
    assert device["sent_total"] == 0


def test_a_name_that_does_not_resolve(start: RunMaker) -> None:
    run = start(load("mqtt://no-such-host.invalid"))
    assert run.finish() == 3
    assert "no-such-host.invalid" in run.stderr
    assert "hint: " in run.stderr


def test_an_own_broker_that_is_killed_fails_the_run(start: RunMaker) -> None:
    run = start(OWN_BROKERS)
    until(lambda: of_devices(run.directory, "acked") > 0)
    victim = pid_of(run, "mosquitto")
    os.kill(victim, signal.SIGKILL)
    run.wait_for(f"theirs-0 (pid {victim})")
    end_stage(run.directory)
    assert run.finish() == 1
    result = run.result()
    assert verdict(result) == ("fail", "broker")
    assert len(result["targets"]) == 2
    assert [broker["died"] for broker in result["brokers"]] == [False, True]
    (event,) = (event for event in result["events"] if event["kind"] == "broker")
    assert f"theirs-0 (pid {victim})" in event["text"]
    assert result["populations"]["device"]["acked_total"] > 0


def test_nothing_outlives_a_killed_pubstorm_and_its_result_can_be_made(
    start: RunMaker, gone: Gone
) -> None:
    table = "table={p97: device.ack_latency.p97}"
    agents = ("--set", "fleet.agents=2")
    run = start(OWN_BROKERS, *agents, "--set", table, prefix=program.NEW_PROCESS)
    until(lambda: of_devices(run.directory, "sent") >= 1000)
    children = run.children()
    assert len(children) == 4
    words = ["report", str(run.directory)]
    early = program.run(words, capture_output=True, text=True)
    assert early.returncode == 2
    assert f"(pid {run.process.pid})" in early.stderr
    os.kill(run.process.pid, signal.SIGKILL)
    run.process.wait()
    gone(children)
    assert (run.directory / ".reserve").exists()
    program.run(words, capture_output=True, text=True, check=True)
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


def test_an_interrupted_run_repairs_removes_and_keeps_its_result(
    start: RunMaker, gone: Gone, mosquitto: MosquittoMaker, tmp_path: Path
) -> None:
    fault = "{at: 200ms, name: crash, command: touch broken, for: 50s, repair: touch repaired}"
    run = start(load(mosquitto().url, retain="true", fault=fault))
    run.wait_for("! crash")
    run.wait_for_stage("publish", 2)
    children = run.children()
    run.process.send_signal(signal.SIGTERM)
    assert run.finish() == 130
    gone(children)
    result = run.result()
    assert result["interrupted"]
    kinds = [event["kind"] for event in result["events"]]
    assert (kinds.count("fault"), kinds.count("interrupt")) == (1, 1)
    device = result["populations"]["device"]
    assert device["sent_total"] == device["acked_total"] + device["abandoned_total"]
    assert device["acked_total"] > 0
    (flow,) = result["flows"]
    found = [flow[f"{name}_total"] for name in ("received", "lost", "in_flight")]
    assert flow["expected_total"] == sum(found)
    assert flow["lost_total"] == 0
    assert [fault["repaired_at_s"] for fault in result["faults"]] == [None]
    # Commands run in the folder of the scenario file.
    assert (tmp_path / "broken").exists()
    assert (tmp_path / "repaired").exists()
    assert [(r["when"], r["what"], r["total"]) for r in result["stale_state"]] == [
        ("after", "retained", 50)
    ]


def test_a_second_interrupt_ends_the_run_and_a_third_one_the_agents(
    start: RunMaker, mosquitto: MosquittoMaker
) -> None:
    broker = mosquitto()
    # The drain lasts until the second interrupt, since the broker answers nothing.
    run = start(load(broker.url), "--set", "drain=10min")
    run.wait_for_stage("publish", 1)
    broker.signal(signal.SIGSTOP)
    run.process.send_signal(signal.SIGINT)
    run.wait_for("is ended by the user")
    run.process.send_signal(signal.SIGINT)
    run.wait_for("interrupted by SIGINT")
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 130
    result = run.result()
    assert [event["kind"] for event in result["events"]][:2] == ["by_hand", "interrupt"]
    assert result["populations"]["device"]["sent_total"] > 0


def test_a_full_disk_ends_no_run(
    start: RunMaker, mosquitto: MosquittoMaker, small_disk: SmallDisk
) -> None:
    disk = small_disk(1280)
    (disk / "ballast").write_bytes(bytes(220 << 10))
    # With a limit, it drops messages for a reader that has no processor.
    run = start(
        load(mosquitto(max_queued_messages=0).url, "2s"),
        "--set",
        "snapshot_interval=50ms",
        out=disk / "run",
        report=True,
    )
    code, result = run.finish(), run.result()
    # On a busy host, a load of 2 s may collapse, and not by the broker.
    status, limited_by = verdict(result)
    assert code == {"pass": 0, "fail": 1, "invalid": 3}[status]
    assert limited_by in {"none", "host", "unknown"}, run.stdout
    assert all(each["passed"] for each in result["verdict"]["thresholds"]), run.stdout
    assert "report.html: No space left on device" in run.stderr
    assert re.search(r"(snapshots.jsonl|samples.csv): No space left on device", run.stderr)
    assert result["populations"]["device"]["sent_total"] == 2000


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_run_whose_folder_goes_away_has_no_result_and_ends_with_3(
    is_replaced: bool, start: RunMaker, mosquitto: MosquittoMaker
) -> None:
    run = start(load(mosquitto().url, "10min"), "--quiet")
    until(lambda: of_devices(run.directory, "sent") > 0)
    renamed = run.directory.rename(run.directory.with_name("renamed"))
    if is_replaced:
        run.directory.mkdir()
    end_stage(renamed)
    assert run.finish() == 3
    assert not is_replaced or list(run.directory.iterdir()) == []
    assert "error: " in run.stderr and str(run.directory) in run.stderr
    assert (renamed / "snapshots.jsonl").stat().st_size > 0


AGENT = "fleet.agents=1"
FEW_PORTS = """
ip link set lo up && echo 40000 40099 > /proc/sys/net/ipv4/ip_local_port_range && exec "$@"
"""


class Shortage(NamedTuple):
    """A shortage of this host, and what comes of it."""

    prefix: tuple[str, ...]
    """Words before the command."""
    settings: str
    reason: str
    connected: int | None
    """Clients that are connected all the same; None if it is some of them."""


@pytest.mark.parametrize(
    "shortage",
    [
        Shortage(("sh", "-c", 'ulimit -n 300; exec "$@"', "sh"), AGENT, "no_descriptors", None),
        # Of the hundred ports the broker listens on two: for clients, and for its counts.
        Shortage(("unshare", "--net", "sh", "-c", FEW_PORTS, "sh"), AGENT, "no_ports", 98),
        Shortage((), "sources=203.0.113.7", "bad_source", 0),
    ],
    ids=["descriptors", "ports", "source address"],
)
def test_what_this_host_is_short_of_is_named(
    shortage: Shortage, run: Play, mosquitto: MosquittoMaker
) -> None:
    prefix, settings, reason, connected = shortage
    if prefix and subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a network of its own needs root, unshare and ip")
    own = "topology: {brokers: {ours: {kind: embedded}}}"
    where = own if reason == "no_ports" else f"target: {mosquitto().url}"
    scenario = f"""
{where}
monitors: {{host: false}}
drain: 500ms
populations:
  device: {{clients: 400, publications: [{{topic: "up/{{n}}", rate: 1/s, qos: 1}}]}}
stages: [connect: {{timeout: 1s}}, publish: 100ms]
"""
    code, result = run(scenario, "--set", settings, prefix=prefix)
    assert (code, *verdict(result)) == (3, "invalid", "host")
    device = result["populations"]["device"]
    assert device["outcomes"].keys() == {reason}
    assert 0 < device["connected_max"] < 300 or device["connected_max"] == connected


def of_devices(directory: Path, counter: str) -> int:
    """Returns a sum over the snapshots of devices that a run under way has stored."""
    path = directory / "snapshots.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    devices = [json.loads(line)["populations"][0] for line in lines if line.endswith("\n")]
    return sum(int(device["counters"][f"{counter}_total"]) for device in devices)


def pid_of(run: Run, name: str) -> int:
    """The process id of one of a run's children."""
    for pid in run.children():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/exe").resolve().name == name:
                return pid
    raise AssertionError(f"the run has no {name}")
