"""Links of clients in whole runs at mosquitto: times that contain the link, rates that are the
link's, and a verdict that names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.runs import Play

pytestmark = pytest.mark.xdist_group("links")

DELAY_US = 50_000
RATE_BYTES_PER_S = 125_000
DELAYED = """
topology:
  brokers:
    plain: {kind: mosquitto}
    secure: {kind: mosquitto, tls: server}
populations:
  device:
    clients: 4
    at: plain
    link: {delay: 50ms}
    subscriptions: [{topic: "own/{n}", qos: 1}]
    publications: [{topic: "own/{n}", rate: 10/s, qos: 1}]
  lossy:
    clients: 4
    at: plain
    link: {delay: 10ms, jitter: 5ms, loss: 10%, changes: [{at: 1s, loss: 20%}]}
    publications: [{topic: "lossy/{n}", rate: 10/s, qos: 1}]
  near:
    clients: 1
    at: plain
    subscriptions: ["lossy/#"]
  # These connect over 3.5 s: a busy host does not hold up all of them.
  caller:
    clients: 20
    at: plain
    link: {delay: 50ms}
  safe_caller:
    clients: 20
    at: secure
    tls: {min_version: "1.3"}
    link: {delay: 50ms}
  safe:
    clients: 4
    at: secure
    tls: {min_version: "1.3"}
    link: {delay: 50ms}
    subscriptions: [{topic: "safe/{n}", qos: 1}]
    publications: [{topic: "safe/{n}", rate: 10/s, qos: 1}]
stages:
  - connect: {populations: [device, lossy, near, safe]}
  - publish:
      for: 4s
      changes:
        - {at: 0s, population: caller, add: 20, over: 3500ms}
        - {at: 0s, population: safe_caller, add: 20, over: 3500ms}
  - disconnect
drain: 30s
thresholds: [lost == 0, never_ready == 0]
"""
FULL = """
topology:
  brokers:
    broker: {kind: mosquitto}
populations:
  device:
    clients: 2
    link: {delay: 20ms, rate: 1Mbit/s}
    publications: [{topic: "up/{n}", rate: 200/s, size: 1kB}]
  observer: {clients: 1, subscriptions: ["up/#"]}
stages: [connect, publish: 4s, disconnect]
drain: 5s
thresholds: [observer.latency.p99 < 500ms]
"""


@pytest.fixture(scope="module")
def delayed(shared_run: Play, shared_folder: Path) -> dict[str, Any]:
    """Links that delay."""
    result: dict[str, Any] = shared_run(DELAYED, out=shared_folder / "delayed")[1]
    return result


@pytest.fixture(scope="module")
def full(shared_run: Play, shared_folder: Path) -> dict[str, Any]:
    """Links that take less than their clients send."""
    result: dict[str, Any] = shared_run(FULL, out=shared_folder / "full")[1]
    return result


@pytest.mark.parametrize(("name", "round_trips"), [("caller", 2), ("safe_caller", 3)])
def test_a_client_connects_after_the_round_trips_of_its_handshakes(
    delayed: dict[str, Any], name: str, round_trips: int
) -> None:
    least_us = delayed["populations"][name]["connect_time_us"]["min"]
    assert round_trips * 2 * DELAY_US <= least_us < (round_trips + 0.9) * 2 * DELAY_US


@pytest.mark.parametrize("name", ["device", "safe"])
def test_a_message_and_its_acknowledgement_take_the_delay_twice(
    delayed: dict[str, Any], name: str
) -> None:
    population = delayed["populations"][name]
    for latency in (population["latency_us"], population["ack_latency_us"]):
        assert 2 * DELAY_US <= latency["actual"]["min"] < 3 * DELAY_US
        assert latency["actual"]["p50"] >= 2 * DELAY_US
    assert population["link_time_us"]["min"] >= DELAY_US


def test_losses_are_retransmissions_and_nothing_is_missing(delayed: dict[str, Any]) -> None:
    lossy = delayed["populations"]["lossy"]
    assert lossy["link_retransmissions_total"] > 0
    assert lossy["link_time_us"]["max"] >= 200_000
    assert delayed["populations"]["near"]["lost_total"] == 0
    assert delayed["verdict"]["status"] == "pass", delayed["verdict"]


def test_the_throughput_is_the_rate_of_the_links(full: dict[str, Any]) -> None:
    device, observer = (full["populations"][name] for name in ("device", "observer"))
    received = observer["rates"]["bytes_received_per_s"]
    assert 0.7 * 2 * RATE_BYTES_PER_S <= received <= 1.05 * 2 * RATE_BYTES_PER_S
    assert observer["lost_total"] == 0
    assert device["link_full_total"] > 0


def test_the_verdict_names_the_link_and_its_population(full: dict[str, Any]) -> None:
    verdict = full["verdict"]
    assert (verdict["status"], verdict["limited_by"]) == ("fail", "link")
    assert "limited by the link of population device" in verdict["headline"]
