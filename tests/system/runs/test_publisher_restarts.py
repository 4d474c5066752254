"""One whole run in which faults stop publishers of ZeroMQ, of libzmq and of pyzmq, and start them
again: streams continue, and every message is sent or skipped, every delivery received or lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pubstorm.play.control_socket import ask
from tests.kit.runs import Run, RunMaker
from tests.system.runs.test_publishers import result_of
from tests.system.runs.underway import end_stage, ready, until_seen

pytestmark = [
    pytest.mark.xdist_group("publishers"),
    pytest.mark.slow("publishers stop four times and start again, two of them as Python programs"),
]

SCENARIO = """
name: restarts
snapshot_interval: 200ms
populations:
  native:
    clients: 1
    publisher: {kind: libzmq, high_water_mark: 0}
    publications: [{topic: "a/{0..2}", size: 32B, rate: 1k/s}]
  python:
    clients: 2
    publisher: {kind: pyzmq, high_water_mark: 0}
    publications: [{topic: "", size: 32B, rate: 500/s}]
  of-native:
    reconnect: {after: 20ms, up_to: 20ms}
    clients: 10
    at: native
    subscriptions: ["a/"]
  one-of-native:
    reconnect: {after: 20ms, up_to: 20ms}
    clients: 3
    at: native
    subscriptions: ["a/1"]
  real-of-native:
    reconnect: {after: 20ms, up_to: 20ms}
    clients: 3
    at: native
    subscriber: libzmq
    subscriptions: [""]
  of-python:
    reconnect: {after: 20ms, up_to: 20ms}
    clients: 10
    at: python
    subscriptions: [""]
stages:
  - connect
  - publish:
      name: load
      for: 6s
      faults:
        - {at: 1s, stop: native, for: 500ms}
        - {at: 1200ms, stop: python-1, for: 300ms}
        - {at: 4s, stop: native, for: 200ms, name: again}
  - hold: {name: pause, for: 10min, faults: [{at: 0s, stop: python, for: 5min}]}
  - connect: {name: back}
  - publish: {name: after, for: 2s}
  - disconnect
"""
CLIENTS = 26
SUBSCRIBERS = ["of-native", "one-of-native", "real-of-native", "of-python"]


@pytest.fixture(scope="module")
def run(shared_start: RunMaker) -> Run:
    return shared_start(SCENARIO)


@pytest.fixture(scope="module")
def result(run: Run) -> dict[str, Any]:
    """The hold stage lasts until the subscribers of `python` were without it, and are back."""

    def is_ready(clients: int) -> bool:
        return ready(run.directory, "of-python") == clients

    run.wait_for("! stop python\n")
    until_seen(run, lambda: is_ready(0))
    ask(run.directory, "repair stop python")
    until_seen(run, lambda: is_ready(10))
    end_stage(run.directory)
    return result_of(run)


@pytest.fixture(scope="module")
def sent(result: dict[str, Any]) -> dict[str, int]:
    """Messages of each publisher, summed over its processes."""
    return {each["name"]: each["sent_total"] for each in result["publishers"]}


def test_stopped_publishers_end_no_run(result: dict[str, Any]) -> None:
    assert not result["ended_early"]
    assert {event["kind"] for event in result["events"]} == {"fault", "by_hand"}
    assert [each["ending"] for each in result["publishers"]] == ["bye"] * 3


def test_every_scheduled_message_is_sent_or_skipped(
    result: dict[str, Any], sent: dict[str, int]
) -> None:
    due = {
        each["name"]: sent[each["name"]] + each["skipped_total"] for each in result["publishers"]
    }
    assert due == {"native": 8000, "python-0": 4000, "python-1": 4000}
    skipped = {each["name"]: each["skipped_total"] for each in result["publishers"]}
    assert skipped["native"] >= 700
    assert skipped["python-1"] >= 300


@pytest.mark.parametrize("name", SUBSCRIBERS)
def test_deliveries_are_received_or_lost_and_none_is_wrong(
    result: dict[str, Any], sent: dict[str, int], name: str
) -> None:
    found = result["populations"][name]
    # Values of the topic take turns, over all processes of the publisher.
    of_one = len(range(1, sent["native"], 3))
    expected = {
        "of-native": 10 * sent["native"],
        "one-of-native": 3 * of_one,
        "real-of-native": 3 * sent["native"],
        "of-python": 5 * (sent["python-0"] + sent["python-1"]),
    }
    assert found["expected_total"] == expected[name]
    assert found["received_total"] + found["lost_total"] == found["expected_total"]
    (flow,) = (flow for flow in result["flows"] if flow["to"] == name)
    wrong = ("duplicate_total", "reordered_total", "stale_total", "surplus_total")
    assert {counter: flow[counter] for counter in wrong} == dict.fromkeys(wrong, 0)


def test_the_result_says_when_subscribers_were_back(result: dict[str, Any]) -> None:
    faults = {fault["name"]: fault for fault in result["faults"]}
    victims = {name: fault["victims"] for name, fault in faults.items()}
    assert victims == {
        "stop native": ["native"],
        "stop python-1": ["python-1"],
        "again": ["native"],
        "stop python": ["python-0", "python-1"],
    }
    for fault in faults.values():
        assert fault["failed"] is None
        assert fault["repaired_at_s"] > fault["at_s"]
    (paused,) = (fault for fault in result["faults"] if fault["stage"] == "pause")
    assert (paused["clients"]["before"], paused["clients"]["lowest"]) == (CLIENTS, CLIENTS - 10)
    assert paused["clients"]["all_s"] is not None


def test_after_a_restart_everything_arrives(result: dict[str, Any]) -> None:
    (after,) = (stage for stage in result["stages"] if stage["name"] == "after")
    for name in SUBSCRIBERS:
        found = after["populations"][name]
        assert found["received_total"] == found["expected_total"] > 0
        assert found["lost_total"] == 0


def test_each_process_is_watched(result: dict[str, Any]) -> None:
    read = {(each["source"], each["metric"]) for each in result["monitors"]}
    names = ("native", "python-0", "python-1")
    assert {(name, metric) for name in names for metric in ("cpu", "rss_bytes")} <= read


@pytest.mark.usefixtures("result")
def test_processes_of_a_publisher_share_its_log(run: Run) -> None:
    logs = {path.name for path in Path(run.directory, "logs").glob("publisher-*.log")}
    assert logs == {f"publisher-{name}.log" for name in ("native", "python-0", "python-1")}
