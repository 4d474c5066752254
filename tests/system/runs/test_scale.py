"""The run with a million connections, at sizes that every machine takes: all are connected, none is
lost, and what a connection takes lies within physical bounds."""

from __future__ import annotations

import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from pubstorm.scenario.descriptors import processes_needed

Play = Callable[..., tuple[int, dict[str, Any]]]
GB = 10**9

pytestmark = [
    pytest.mark.xdist_group("heavy"),
    pytest.mark.skipif(
        not (shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")),
        reason="mosquitto is not installed (apt-get install mosquitto)",
    ),
]

MILLION = Path(__file__).parents[3] / "scenarios" / "million.yaml"


def of_size(clients: int, *, rate: str = "10000/s", publish: str = "5s") -> tuple[str, ...]:
    """The million's scenario with so many clients, in less time."""
    settings = (
        "sweep=null",
        f"populations.mobile.clients={clients // 2}",
        f"populations.device.clients={clients // 2}",
        "populations.device.publications.0.interval=30s",
        f"stages.2.publish={publish}",
        "stages.3.hold=2s",
        "monitors.interval=250ms",
        f"stages.0.connect.rate={rate}",
        f"stages.1.connect.rate={rate}",
    )
    return tuple(word for setting in settings for word in ("--set", setting))


def check_all_there(result: dict[str, Any], clients: int) -> None:
    for population in result["populations"].values():
        assert population["connected_max"] == clients // 2
        assert population["connect_failed_total"] == population["disconnected_total"] == 0
    mobile, device = (result["populations"][name] for name in ("mobile", "device"))
    assert mobile["subscribed_total"] == clients // 2
    assert device["sent_total"] > 0
    assert mobile["expected_total"] == mobile["received_total"] == device["sent_total"]
    assert mobile["lost_total"] == mobile["duplicate_total"] == 0
    assert [agent["ending"] for agent in result["fleet"]["agents"]] == ["bye"] * len(
        result["fleet"]["agents"]
    )


def check_programs(result: dict[str, Any]) -> None:
    """A client is no smaller and no larger than this, in mosquitto and in an engine."""
    brokers = [model for model in result["memory"] if model["subject"].startswith("broker")]
    assert brokers
    assert all(300 < (model["bytes_per_connection"] or 0) < 10_000 for model in brokers), brokers
    agents = result["fleet"]["agents"]
    # The program itself is a few megabytes.
    assert all(agent["rss_max_bytes"] < 30_000_000 + 1_000 * agent["clients"] for agent in agents)


def check_kernel(result: dict[str, Any]) -> None:
    """A connected pair of sockets is no smaller and no larger than this, on any kernel."""
    (kernel,) = (model for model in result["memory"] if model["subject"] == "host")
    assert 3_000 < (kernel["bytes_per_connection"] or 0) < 40_000, kernel


@pytest.mark.slow("20,000 clients connect to 50 brokers, which start one after another")
def test_half_a_hundred_brokers_and_engines(run: Play) -> None:
    prefix = ("prlimit", "--nofile=600:600")
    # As fast as the machine can, the monitors read memory too seldom for a line.
    code, result = run(MILLION, *of_size(20_000, rate="2500/s"), prefix=prefix)
    assert code == 0, result["verdict"]
    check_all_there(result, 20_000)
    check_programs(result)
    assert len(result["brokers"]) == len(result["fleet"]["agents"]) == 50
    assert processes_needed([10_000, 10_000], 600) == 50


@pytest.mark.slow("100,000 clients connect, 10,000 a second")
def test_a_hundred_thousand_connections(run: Play) -> None:
    if psutil.virtual_memory().available < 4 * GB:
        pytest.skip("100 000 connections need 4 GB of memory that is available")
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 5_000:
        pytest.skip("100 000 connections need 5000 open files for a process (ulimit -n)")
    code, result = run(MILLION, *of_size(100_000))
    assert code == 0, result["verdict"]
    check_all_there(result, 100_000)
    check_programs(result)
    check_kernel(result)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    needed = processes_needed([50_000, 50_000], hard)
    assert len(result["brokers"]) == needed
    assert len(result["fleet"]["agents"]) >= (needed or 0)


def test_an_interrupt_with_everybody_there_leaves_nothing(start: Callable[..., Any]) -> None:
    played = start(MILLION, *of_size(6_000, publish="10min"), prefix=("prlimit", "--nofile=600"))
    played.wait_for("publish")
    played.process.send_signal(signal.SIGINT)
    assert played.finish() == 130
    result = played.result()
    assert result["interrupted"]
    assert len(result["fleet"]["agents"]) == len(result["brokers"]) == 15
    assert {agent["ending"] for agent in result["fleet"]["agents"]} == {"bye"}
    assert [event["kind"] for event in result["events"]] == ["interrupt"]
