"""Many small brokers and their bridges under faults, in one run: killed, delayed, cut, and without
their main broker. All are watched as one source, come back, and deliver what they kept."""

from __future__ import annotations

import pytest

from pubstorm.host.children import find
from tests.kit import starved
from tests.kit.runs import Run, RunMaker
from tests.system.runs.underway import end_stage, readings, repair, wait_for

pytestmark = [
    pytest.mark.xdist_group("bridge_faults"),
    pytest.mark.skipif(find("mosquitto") is None, reason="mosquitto is not installed"),
]

BOXES = 9
STAYS = "session: persistent, reconnect: {after: 100ms, up_to: 200ms}"
SCENARIO = f"""\
topology:
  brokers:
    cloud: {{kind: mosquitto, settings: {{persistence: true, autosave_interval: 1}}}}
    boxes: {{kind: mosquitto, count: {BOXES}, settings: {{max_queued_messages: 0}}}}
  bridges:
    up:
      from: boxes
      to: cloud
      topics:
        - {{topic: "1/#", direction: out, qos: 1, remote_prefix: "box/{{n}}/"}}
        - {{topic: "2/#", direction: out, qos: 2, remote_prefix: "box/{{n}}/"}}
      keep_alive: 5s
      reconnect: {{after: 1s, up_to: 1s}}
populations:
  reader-1: {{clients: 1, at: cloud, subscriptions: [{{topic: "box/+/1/#", qos: 1}}], {STAYS}}}
  reader-2: {{clients: 1, at: cloud, subscriptions: [{{topic: "box/+/2/#", qos: 2}}], {STAYS}}}
  sender-1:
    {{clients: 9, at: boxes, publications: [{{topic: "1/{{n}}", rate: 2/s, qos: 1}}], {STAYS}}}
  sender-2:
    {{clients: 9, at: boxes, publications: [{{topic: "2/{{n}}", rate: 2/s, qos: 2}}], {STAYS}}}
stages:
  - connect
  - hold: {{name: idle, for: 10min, faults: [{{at: 500ms, kill: boxes, count: 3, for: 5min}}]}}
  - publish:
      name: load
      for: 10min
      faults:
        - {{at: 500ms, delay: up, by: 300ms, for: 1s}}
        - {{at: 2s, cut: up, count: 2, for: 500ms}}
  - publish: {{name: without, for: 10min, faults: [{{at: 2s, kill: cloud, for: 500ms}}]}}
drain: 10s
snapshot_interval: 200ms
monitors: {{host: false, interval: 200ms}}
# The main broker is killed with what it has not stored. Messages that wait as a stage ends are
# skipped.
thresholds: [loss < 50%, skipped < 50, up.connected.last == 9]
"""


def back(run: Run, source: str, metric: str, after_s: float = 0) -> float:
    """Waits until a source has lost some behind an instant, and has all again; the instant."""
    lost_s = wait_for(run, source, metric, lambda value: value < BOXES, after_s)
    return wait_for(run, source, metric, lambda value: value == BOXES, lost_s)


def counted(run: Run, count: int, after_s: float = 0) -> float:
    """Waits until the small brokers, the bridges and the clients of each sender are N in number,
    each at an instant of its own. Returns the last one."""
    figures = {"boxes": "processes"} | dict.fromkeys(("up", "sender-1", "sender-2"), "connected")
    return max(
        wait_for(run, source, metric, lambda value: value == count, after_s)
        for source, metric in figures.items()
    )


def carried(run: Run, after_s: float) -> float:
    """Waits until both readers receive, a second after an instant; the instant."""
    return max(
        wait_for(run, reader, "received_per_s", lambda rate: rate > 0, after_s + 1)
        for reader in ("reader-1", "reader-2")
    )


@pytest.fixture(scope="module")
def played(shared_start: RunMaker) -> Run:
    """The run, each of whose stages ends once everybody is back."""
    run = shared_start(SCENARIO)
    lost_s = counted(run, BOXES - 3, counted(run, BOXES))
    down_s = counted(run, BOXES - 3, lost_s + 0.5)
    repair(run, "kill 3 boxes", "3 brokers are up again")
    idle_s = counted(run, BOXES, down_s)
    end_stage(run.directory)
    cut_s = carried(run, back(run, "up", "connected", idle_s))
    end_stage(run.directory)
    all_s = carried(run, back(run, "up", "connected", cut_s))
    wait_for(run, "cloud-0", "cpu", lambda _: True, all_s)
    run.wait_for("kill cloud: 1 broker is up again")
    end_stage(run.directory)
    run.finish()
    # On a busy host, a phase may count as collapsed.
    assert not starved.missed(run.result()), run.stdout
    return run


def test_bridges_and_brokers_are_counted_out_and_back(played: Run) -> None:
    killed, delayed, cut, dead = played.result()["faults"]
    everybody = 2 * BOXES + 2
    assert [len(fault["victims"]) for fault in (killed, delayed, cut, dead)] == [3, BOXES, 2, 1]
    assert (killed["clients"]["before"], killed["clients"]["lowest"]) == (everybody, everybody - 6)
    assert (dead["clients"]["before"], dead["clients"]["lowest"]) == (everybody, everybody - 2)
    assert cut["clients"] is delayed["clients"] is delayed["bridges"] is None
    assert killed["backlog_peak"] is None
    for fault, left in ((killed, BOXES - 3), (cut, BOXES - 2), (dead, 0)):
        bridges = fault["bridges"]
        assert (bridges["before"], bridges["lowest"]) == (BOXES, left)
        assert 0 <= bridges["first_s"] <= bridges["most_s"] <= bridges["all_s"]
        assert fault["repaired_at_s"] >= fault["at_s"] + 0.5
    # tests/pure/measure/test_faults.py has the time in which a backlog drains.
    assert all(fault["backlog_peak"] > 0 for fault in (delayed, cut, dead))


def test_bridges_deliver_what_they_kept(played: Run) -> None:
    """All, unless the main broker is killed with what it has not stored. At QoS 2 none comes twice.
    A bridge keeps less than its window of 20 messages: mosquitto 2.0 loses some of what it queues
    beyond, if an attempt to connect is refused."""
    result = played.result()
    stages = {stage["name"]: stage["flows"] for stage in result["stages"]}
    for qos, flows in enumerate(zip(stages["load"], stages["without"], strict=True), 1):
        for flow in flows:
            assert (flow["source"], flow["to"]) == (f"sender-{qos}", f"reader-{qos}")
            assert flow["qos"] == [qos]
            assert flow["expected_total"] == flow["received_total"] + flow["lost_total"] > 0
        assert flows[0]["lost_total"] == 0, flows[0]
        assert qos == 1 or flows[0]["duplicate_total"] == 0, flows[0]
        sent_total = result["populations"][f"sender-{qos}"]["sent_total"]
        assert sum(flow["expected_total"] for flow in flows) == sent_total
    phases = {phase["name"]: phase for phase in result["phases"]}
    assert [*phases] == ["load", "delay up", "cut 2 up", "without", "kill cloud"]
    assert phases["delay up"]["latency_us"]["max"] >= 300_000


def test_many_brokers_are_one_source_and_followed_where_they_come_back(played: Run) -> None:
    result = played.result()
    sources = {each["source"] for each in result["monitors"]}
    assert {"boxes", "cloud-0", "up"} <= sources
    assert not any(source.startswith("boxes-") for source in sources)
    processes = [value for _, value in readings(played.directory, "boxes", "processes")]
    assert (min(processes), processes[-1]) == (BOXES - 3, BOXES)
    watched = next(each for each in result["monitors"] if each["source"] == "boxes")
    assert "kill 3 boxes" in watched["spans"]
    cloud = next(fault for fault in result["faults"] if fault["name"] == "kill cloud")
    cpu = readings(played.directory, "cloud-0", "cpu")
    assert all(share >= 0 for _, share in cpu)
    assert any(at_s < cloud["at_s"] for at_s, _ in cpu)
    assert any(at_s > cloud["repaired_at_s"] for at_s, _ in cpu)
    assert not any(each["source"] == "boxes" for each in result["monitor_problems"])
