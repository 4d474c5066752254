"""Decisions of the Ray site without a cluster: hosts and messages."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install pubstorm[ray]")

import ray
from ray.exceptions import (
    ActorUnavailableError,
    AuthenticationError,
    OutOfMemoryError,
    RayError,
    WorkerCrashedError,
)

from pubstorm.errors import FleetError
from pubstorm.fleet.ray import cluster
from pubstorm.fleet.ray.choice import (
    RayHost,
    chosen,
    for_agents,
    is_worker_lost,
    joining_in_words,
    labelled,
    loss_in_words,
    spare,
)
from pubstorm.fleet.ray.site import machine_of

HOSTS = tuple(
    RayHost(node=f"n{i}", address=f"10.0.0.{i}", is_here=i == 4, cores=2, free=free)
    for i, free in ((1, 2), (2, 0), (3, 1), (4, 2))
)


def names(hosts: tuple[RayHost, ...]) -> list[str]:
    return [host.node for host in hosts]


def test_a_strict_fleet_has_each_agent_on_a_host_of_its_own() -> None:
    assert names(chosen(HOSTS, 2, "strict")) == ["n1", "n3"]
    assert names(chosen(HOSTS, 3, "strict")) == ["n1", "n3", "n4"]


def test_a_packed_one_fills_each_host_before_the_next() -> None:
    assert names(chosen(HOSTS, 4, "pack")) == ["n1", "n1", "n3", "n4"]


@pytest.mark.parametrize(("spread", "agents"), [("strict", 4), ("pack", 6)])
def test_without_room_every_host_is_named_with_what_it_has_free(spread: str, agents: int) -> None:
    with pytest.raises(FleetError) as caught:
        chosen(HOSTS, agents, spread)
    for host in HOSTS:
        assert f"{host.address} has {host.free} of 2" in caught.value.message
    assert "fleet.agents" in (caught.value.hint or "")


def test_a_lost_agent_goes_to_an_unused_host() -> None:
    assert names(spare(HOSTS, "n1", {"n3"}, "strict")) == ["n4"]
    assert names(spare(HOSTS, "n1", {"n3"}, "pack")) == ["n4", "n3"]
    assert names(spare(HOSTS, "n1", {"n3", "n4"}, "strict")) == []


@pytest.mark.parametrize(
    ("error", "words", "is_worker"),
    [
        (
            OutOfMemoryError(
                "Memory on the node (IP: 10.0.0.3, ID: abc) where the task ran was 15.20GB / "
                "16.00GB (0.95), which exceeds the memory usage threshold of 0.95."
            ),
            "ran out of memory: 15.20GB / 16.00GB used on 10.0.0.3",
            True,
        ),
        (ActorUnavailableError("The actor is temporarily unavailable", None), "reached", False),
        (WorkerCrashedError(), "Ray says: The worker died", True),
        (RayError("first\nsecond"), "Ray says: first", False),
    ],
)
def test_a_loss_is_reported_in_one_line(error: RayError, words: str, is_worker: bool) -> None:
    text = loss_in_words(error)
    assert words in text
    assert "\n" not in text
    assert is_worker_lost(error) == is_worker


@pytest.mark.parametrize(
    ("error", "words", "hint"),
    [
        (AuthenticationError("InvalidAuthToken"), "refused the token", "RAY_AUTH_TOKEN_PATH"),
        (
            RuntimeError(
                "Version mismatch: The cluster was started with:\n    Ray: 2.60.0\n"
                "    Python: 3.11.7\nThis process on node 10.0.0.1 was started with:\n"
                "    Ray: 2.60.0\n    Python: 3.12.1\n"
            ),
            "it has Ray 2.60.0 and Python 3.11.7, this host has Ray 2.60.0 and Python 3.12.1",
            "same versions of Ray and Python",
        ),
        (
            RuntimeError("No node info found matching attributes: '' when trying to resolve"),
            "this host is no part of it",
            "ray start --address 10.0.0.1:6379",
        ),
        (ConnectionError("no\nreason"), "no", "ray status"),
    ],
)
def test_a_cluster_that_cannot_be_joined_says_why(error: Exception, words: str, hint: str) -> None:
    text = joining_in_words("10.0.0.1:6379", error)
    assert "cannot join the Ray cluster 10.0.0.1:6379: " in text.message
    assert words in text.message
    assert "\n" not in text.message
    assert hint in (text.hint or "")


def test_the_architecture_of_a_program_is_in_its_head(tmp_path: Path) -> None:
    program = tmp_path / "program"
    for number, name in ((62, "x86_64"), (183, "aarch64"), (1, "")):
        program.write_bytes(b"\x7fELF" + bytes(14) + number.to_bytes(2, "little"))
        assert machine_of(program) == name
    program.write_text("#!/bin/sh\n")
    assert machine_of(program) == ""


def test_a_cluster_is_joined_once_the_one_before_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaving continues in its thread after its run has given it up."""
    events: list[str] = []
    leaving, may_leave = threading.Event(), threading.Event()

    def shutdown() -> None:
        leaving.set()
        may_leave.wait()
        events.append("left")

    monkeypatch.setattr(cluster, "_members", 1)
    monkeypatch.setattr(ray, "shutdown", shutdown)
    monkeypatch.setattr(ray, "init", lambda **_: events.append("joined"))
    departure = threading.Thread(target=cluster._depart)
    arrival = threading.Thread(target=cluster._join, args=("10.0.0.1:6379",))
    departure.start()
    leaving.wait()
    arrival.start()
    arrival.join(0.2)
    may_leave.set()
    departure.join()
    arrival.join()
    assert events == ["left", "joined"]


def test_parts_of_a_process_share_a_membership(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    monkeypatch.setattr(ray, "shutdown", lambda: events.append("left"))
    monkeypatch.setattr(ray, "init", lambda **_: events.append("joined"))
    for step in (cluster._join, cluster._join):
        step("10.0.0.1:6379")
    cluster._depart()
    assert events == ["joined"]
    cluster._depart()
    assert events == ["joined", "left"]


def test_hosts_are_meant_by_label_or_address_and_agents_avoid_those_of_servers() -> None:
    hosts = [
        RayHost(f"n{n}", f"10.0.0.{n}", is_here=n == 3, cores=2, free=2, label=label)
        for n, label in enumerate(["broker", "load", ""], 1)
    ]
    assert labelled(hosts, "load") == labelled(hosts, "10.0.0.2") == (hosts[1],)
    with pytest.raises(FleetError) as caught:
        labelled(hosts, "gpu")
    each = "10.0.0.1 has broker, 10.0.0.2 has load, 10.0.0.3 has none"
    assert caught.value.message.endswith(f"the label gpu: {each}")
    assert for_agents(hosts, "load", {"broker"}) == (hosts[1],)
    assert for_agents(hosts, None, {"broker"}) == (hosts[1], hosts[2])
    assert for_agents(hosts[:1], None, {"broker"}) == (hosts[0],)
