"""Brokers that a run breaks on purpose: real ones, killed and frozen under load."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from typing import Any

import pytest

Play = Callable[..., tuple[int, dict[str, Any]]]

pytestmark = pytest.mark.skipif(
    not (shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")),
    reason="mosquitto is not installed (apt-get install mosquitto)",
)

CLIENTS = 20
LOAD = """\
topology:
  brokers:
    cloud: {{kind: mosquitto, settings: {{persistence: true}}}}
    boxes: {{kind: mosquitto, count: 2}}
populations:
  device:
    clients: 20
    at: cloud
    session: persistent
    reconnect: {{after: 200ms, up_to: 400ms}}
    publications: [{{topic: "up/{{n}}", rate: 20/s, qos: {qos}}}]
  backend:
    clients: 1
    at: cloud
    session: persistent
    reconnect: {{after: 200ms, up_to: 400ms}}
    subscriptions: [{{topic: "up/#", qos: {qos}}}]
stages:
  - connect
  - {verb}: {{for: {time}, name: load, faults: [{faults}]}}
snapshot_interval: 250ms
drain: 2s
monitors: {{host: false}}
"""


def load(faults: str, qos: int = 1, time: str = "9s", verb: str = "publish") -> str:
    return LOAD.format(faults=faults, qos=qos, time=time, verb=verb)


def phase(result: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(phase for phase in result["phases"] if phase["name"] == name)
    return found


TWICE = """\
  device-2:
    clients: 20
    at: cloud
    session: persistent
    reconnect: {after: 200ms, up_to: 400ms}
    publications: [{topic: "down/{n}", rate: 20/s, qos: 2}]
  backend-2:
    clients: 1
    at: cloud
    session: persistent
    reconnect: {after: 200ms, up_to: 400ms}
    subscriptions: [{topic: "down/#", qos: 2}]
stages:
"""


@pytest.mark.slow("a broker is killed, started again, and everybody has to be back")
def test_a_broker_that_is_killed_comes_back_with_what_it_kept(run: Play) -> None:
    """The same load at QoS 1 and at QoS 2."""
    clients = 2 * (CLIENTS + 1)
    code, result = run(
        load("{at: 2s, kill: cloud, for: 1500ms}")
        .replace("stages:\n", TWICE)
        .replace("rate: 20/s", "rate: 10/s"),
        "--set",
        'thresholds=["clients_back.all@kill cloud < 1min", "drained@kill cloud < 1min", '
        '"loss < 50%"]',
    )
    (fault,) = result["faults"]
    assert fault["victims"] == ["cloud-0"]
    assert fault["repaired_at_s"] >= fault["at_s"] + 1.5
    assert fault["clients"]["before"] == clients
    assert fault["clients"]["lowest"] == 0
    assert fault["clients"]["first_s"] <= fault["clients"]["most_s"] <= fault["clients"]["all_s"]
    assert fault["bridges"] is None
    assert fault["backlog_peak"] > 0
    assert fault["drained_s"] is not None
    assert f"{clients} of {clients} clients were lost" in fault["evidence"][0]
    assert (code, result["verdict"]["status"]) == (0, "pass"), result["verdict"]
    assert result["verdict"]["limited_by"] == "none"
    stage = next(stage for stage in result["stages"] if stage["name"] == "load")
    flows = [(flow["source"], flow["to"], flow["qos"]) for flow in stage["flows"]]
    assert flows == [("device", "backend", [1]), ("device-2", "backend-2", [2])]
    for flow in stage["flows"]:
        sent = result["populations"][flow["source"]]["sent_total"]
        assert flow["expected_total"] == sent > 0
    for qos in (1, 2):
        assert any(f"deliveries at QoS {qos}" in fact for fact in result["verdict"]["evidence"])
    assert phase(result, "kill cloud")["status"] in {"held", "collapsed"}
    kinds = [event["kind"] for event in result["events"]]
    assert kinds.count("fault") == 2
    assert "broker" not in kinds
    (cloud,) = (broker for broker in result["brokers"] if broker["group"] == "cloud")
    assert not cloud["died"]


def test_a_broker_that_is_frozen_makes_messages_wait(run: Play) -> None:
    _, result = run(load("{at: 1s, freeze: cloud, for: 2s}", time="5s"))
    (fault,) = result["faults"]
    assert fault["clients"] is None
    assert fault["backlog_peak"] >= CLIENTS * 20
    assert fault["drained_s"] is not None
    assert result["populations"]["backend"]["lost_total"] == 0
    assert result["verdict"]["status"] == "pass", result["verdict"]
    assert result["verdict"]["limited_by"] == "none"


@pytest.mark.slow("clients try to reconnect for seconds")
def test_a_broker_that_stays_dead_fails_what_depends_on_it(run: Play) -> None:
    code, result = run(load("{at: 2s, kill: cloud, for: ever}", time="6s"))
    (fault,) = result["faults"]
    assert fault["repaired_at_s"] is None
    assert fault["clients"] == {
        "before": CLIENTS + 1,
        "lowest": 0,
        "first_s": None,
        "most_s": None,
        "all_s": None,
    }
    assert phase(result, "kill cloud")["status"] == "collapsed"
    assert (code, result["verdict"]["status"]) == (1, "fail")
    assert not result["ended_early"]
    assert [stage["name"] for stage in result["stages"]] == ["connect", "load"]


def test_unused_brokers_can_be_broken_in_a_hold_stage(run: Play) -> None:
    faults = "{at: 500ms, kill: boxes, for: 500ms}, {at: 2s, freeze: boxes, count: 1, for: 500ms}"
    code, result = run(load(faults, time="4s", verb="hold"))
    killed, frozen = result["faults"]
    assert killed["victims"] == ["boxes-0", "boxes-1"]
    assert len(frozen["victims"]) == 1
    assert killed["clients"] is frozen["clients"] is None
    assert killed["backlog_peak"] is None
    assert result["phases"] == []
    assert code == 0, result["verdict"]
    watched = next(w for w in result["monitors"] if w["source"].startswith("boxes"))
    assert "kill boxes" in watched["spans"]


def test_an_interrupt_leaves_no_broken_broker_behind(start: Callable[..., Any]) -> None:
    faults = "{at: 1s, freeze: cloud, for: ever}, {at: 1s, kill: boxes, for: 20s}"
    run = start(load(faults, time="60s"))
    run.wait_for("! freeze cloud")
    run.wait_for("! kill boxes")
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 130
    result = run.result()
    assert {fault["repaired_at_s"] for fault in result["faults"]} == {None}
    assert not any(broker["died"] for broker in result["brokers"])


def test_brokers_that_steps_share_are_repaired_for_the_next_step(
    start: Callable[..., Any], gone: Callable[..., None]
) -> None:
    text = load("{at: 500ms, kill: cloud, for: ever}", time="3s", verb="hold")
    run = start(text + "sweep: {vary: {seed: [1, 2]}, broker: same}\n")
    run.finish()
    series = json.loads((run.directory / "series.json").read_text())
    results = [
        json.loads((run.directory / step["folder"] / "result.json").read_text())
        for step in series["steps"]
    ]
    assert len(results) == 2
    for result in results:
        (fault,) = result["faults"]
        assert (fault["clients"]["before"], fault["clients"]["lowest"]) == (CLIENTS + 1, 0)
        gone([broker["pid"] for broker in result["brokers"]])
