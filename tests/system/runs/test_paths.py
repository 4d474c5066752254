"""Runs over paths that are slow, far or lossy, with a quiet mosquitto at their end. The evidence
names the path; a busy host of the tests may be named by the verdict."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.ports import free_port
from tests.kit.relay import relaying
from tests.kit.runs import MosquittoMaker, RunMaker

pytestmark = pytest.mark.xdist_group("paths")

SCENARIO = """
target: mqtt://{address}
populations:
  device:
    clients: 50
    publications: [{{topic: "t/{{n}}", rate: 20/s, qos: 1, size: 200B}}]
  backend: {{clients: 1, subscriptions: [{{topic: "t/#", qos: 1}}]}}
stages:
  - connect
  - publish: {time}
drain: 1s
monitors: {{interval: 500ms}}
thresholds: [latency.p99 < 50ms]
"""

Facts = Callable[..., list[str]]


@pytest.fixture
def facts(start: RunMaker) -> Facts:
    """Plays the load at an address; the evidence about the path."""

    def play(address: str, time: str = "6s") -> list[str]:
        run = start(SCENARIO.format(address=address, time=time))
        assert run.finish() != 0
        result: dict[str, Any] = run.result()
        return [fact for fact in result["verdict"]["evidence"] if "broker-0" in fact]

    return play


def about(words: str, found: list[str]) -> bool:
    return any(re.search(words, fact) for fact in found)


def test_a_relay_of_150_kb_a_second_is_the_path(mosquitto: MosquittoMaker, facts: Facts) -> None:
    broker, port = mosquitto(), free_port()
    with relaying(port, broker.port, rate=150_000):
        found = facts(f"127.0.0.1:{port}")
    assert about("broker-0 is a proxy: it passes .* had not read", found), found


def test_a_relay_of_50_ms_is_the_path(mosquitto: MosquittoMaker, facts: Facts) -> None:
    broker, port = mosquitto(), free_port()
    with relaying(port, broker.port, delay_s=0.05):
        found = facts(f"127.0.0.1:{port}", "3s")
    assert about("behind broker-0, a proxy, answered after .*: the path between", found), found
