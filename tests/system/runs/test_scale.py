"""The run with a million connections, at sizes that every machine takes: all are connected, none is
lost, and memory for a connection lies within physical bounds."""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from pubstorm.scenario.sizes import processes_needed

Play = Callable[..., tuple[int, dict[str, Any]]]
GB = 10**9

pytestmark = pytest.mark.xdist_group("load")

MILLION = Path(__file__).parents[3] / "scenarios" / "million.yaml"


def of_size(clients: int, publish: str) -> tuple[str, ...]:
    """The million's scenario with another number of clients, in less time."""
    settings = (
        "sweep=null",
        f"populations.mobile.clients={clients // 2}",
        f"populations.device.clients={clients // 2}",
        "populations.device.publications.0.interval=30s",
        f"stages.2.publish={publish}",
        "stages.3.hold=2s",
        "stages.4.disconnect.rate=20000/s",
        "monitors.interval=250ms",
    )
    return tuple(word for setting in settings for word in ("--set", setting))


def check_all_there(result: dict[str, Any], clients: int) -> None:
    for population in result["populations"].values():
        assert population["connected_max"] == clients // 2
        assert population["connect_failed_total"] == population["disconnected_total"] == 0
    agents = result["fleet"]["agents"]
    assert [agent["ending"] for agent in agents] == ["bye"] * len(agents)


def check_memory(result: dict[str, Any], clients: int) -> None:
    """A client is no smaller and no larger than this, in mosquitto and in an engine. The readings
    are those of the last stage in which all clients are connected: no line over a ramp is needed.
    In the kernel, where other processes have memory too, a client is no smaller."""
    steady = {model["subject"]: model["steady"] for model in result["memory"]}
    brokers = [point for subject, point in steady.items() if subject.startswith("broker-")]
    assert len(brokers) == len(result["brokers"])
    assert sum(point["connections"] for point in brokers) == pytest.approx(clients)
    for point in brokers:
        assert point["bytes"] / point["connections"] > 300
        assert point["bytes"] < 30_000_000 + 10_000 * point["connections"]
    assert steady["host"]["bytes"] > 3_000 * clients
    # The program itself is a few megabytes.
    agents = result["fleet"]["agents"]
    assert all(agent["rss_max_bytes"] < 30_000_000 + 1_000 * agent["clients"] for agent in agents)


@pytest.mark.slow("100,000 clients connect")
def test_a_hundred_thousand_connections(run: Play) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if psutil.virtual_memory().available < 4 * GB:
        pytest.skip("100 000 connections need 4 GB of memory that is available")
    if hard < 5_000:
        pytest.skip("100 000 connections need 5000 open files for a process (ulimit -n)")
    code, result = run(MILLION, *of_size(100_000, publish="2s"))
    assert code == 0, result["verdict"]
    check_all_there(result, 100_000)
    check_memory(result, 100_000)
    mobile, device = (result["populations"][name] for name in ("mobile", "device"))
    assert mobile["subscribed_total"] == 50_000
    assert mobile["expected_total"] == mobile["received_total"] == device["sent_total"] > 0
    assert mobile["lost_total"] == mobile["duplicate_total"] == 0
    needed = processes_needed([50_000, 50_000], hard)
    assert len(result["brokers"]) == needed
    assert len(result["fleet"]["agents"]) >= (needed or 0)


def test_descriptors_ask_for_brokers_and_engines_and_an_interrupt_leaves_none(
    start: Callable[..., Any],
) -> None:
    played = start(MILLION, *of_size(6_000, publish="2min"), prefix=("prlimit", "--nofile=600"))
    played.wait_for_stage("publish", 1)
    played.process.send_signal(signal.SIGINT)
    assert played.finish() == 130
    result = played.result()
    assert result["interrupted"]
    check_all_there(result, 6_000)
    needed = processes_needed([3_000, 3_000], 600)
    assert len(result["fleet"]["agents"]) == len(result["brokers"]) == needed == 15
    assert [event["kind"] for event in result["events"]] == ["by_hand"]
