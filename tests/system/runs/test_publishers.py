"""Whole runs with ZeroMQ: real publishers under test, and simulated or real subscribers."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kit.runs import GONE_TIMEOUT_S, Run

RunMaker = Callable[..., Run]
GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "publisher.md"
SCENARIO = """
name: publishers
snapshot_interval: 200ms
drain: 500ms
populations:
  feed:
    clients: {feeds}
    publisher: {publisher}
    {login}
    publications:
      - {{topic: "{topic}", size: 32B, rate: {rate}, burst: {burst}}}
  subscriber:
    clients: {clients}
    at: feed
    {subscriber}
    {login}
    subscriptions: ["{prefix}"]
stages:
  - connect: {{}}
  - publish: {duration}
  - disconnect: {{}}
"""


def scenario(**parts: object) -> str:
    """Scenario text. Default: one publisher of pyzmq with ten subscribers."""
    usual: dict[str, object] = {
        "feeds": 1,
        "publisher": "pyzmq",
        "login": "",
        "topic": "",
        "rate": "1k/s",
        "burst": 10,
        "clients": 10,
        "subscriber": "",
        "prefix": "",
        "duration": "2s",
    }
    return SCENARIO.format(**{**usual, **parts})


def played(run: Run) -> dict[str, Any]:
    """The result of a run that came to its end, after a check that its publishers are gone."""
    code = run.finish()
    result = run.result()
    assert code in (0, 1, 3, 130), run.stderr
    for publisher in result["publishers"]:
        assert not psutil.pid_exists(publisher["pid"])
    return result


def assert_nothing_lost(result: dict[str, Any], share: float = 1) -> None:
    """Every subscriber has had every message, or that share of them."""
    sent = sum(publisher["sent_total"] for publisher in result["publishers"])
    subscriber = result["populations"]["subscriber"]
    assert sent > 0
    assert subscriber["received_total"] == subscriber["expected_total"] == sent * share
    assert subscriber["lost_total"] == subscriber["duplicate_total"] == 0


@pytest.mark.parametrize(
    ("kind", "subscriber"),
    [("libzmq", "simulated"), ("pyzmq", "simulated"), ("pyzmq", "libzmq")],
)
def test_all_that_a_publisher_sends_is_accounted_for(
    start: RunMaker, kind: str, subscriber: str
) -> None:
    result = played(start(scenario(publisher=kind, subscriber=f"subscriber: {subscriber}")))
    assert_nothing_lost(result, share=10)
    (publisher,) = result["publishers"]
    assert (publisher["name"], publisher["kind"], publisher["burst"]) == ("feed", kind, 10)
    assert publisher["sent_total"] + publisher["skipped_total"] == 2000
    assert publisher["ending"] == "bye"
    agents = [agent["agent"] for agent in result["fleet"]["agents"]]
    assert agents == ([0] if subscriber == "simulated" else [0, 2])
    read = {m["metric"] for m in result["monitors"] if m["source"] == "feed"}
    assert {"cpu", "rss_bytes", "thread_cpu_max", "busy"} <= read


def test_topics_go_to_those_whose_prefix_they_have(start: RunMaker) -> None:
    result = played(start(scenario(feeds=2, topic="a/{0..3}", prefix="a/1", burst=1)))
    names = [publisher["name"] for publisher in result["publishers"]]
    assert names == ["feed-0", "feed-1"]
    assert result["populations"]["subscriber"]["lost_total"] == 0
    counts = result["populations"]["subscriber"]
    assert counts["received_total"] == counts["expected_total"] > 0


@pytest.mark.slow("a queue has to fill up")
def test_what_a_slow_subscriber_loses_is_counted(start: RunMaker) -> None:
    slow = "shares: {slow: {part: 10%, read_rate: 10%}}"
    publisher = "{kind: pyzmq, high_water_mark: 10}"
    text = scenario(publisher=publisher, subscriber=slow, rate="20k/s", duration="3s")
    result = played(start(text))
    sent = result["publishers"][0]["sent_total"]
    lost = result["populations"]["subscriber/slow"]
    assert lost["expected_total"] == sent
    assert 0 < lost["lost_total"] == sent - lost["received_total"]
    assert lost["client_loss"]["count"] == 1
    # The loss of a client is that of its stage: messages that come behind the drain stay lost.
    stage = next(stage for stage in result["stages"] if stage["kind"] == "publish")
    in_time = stage["populations"]["subscriber/slow"]["received_total"]
    assert in_time <= lost["received_total"]
    assert lost["client_loss"]["p50"] == pytest.approx(1 - in_time / sent, abs=1e-6)


def test_a_publisher_that_is_killed_is_what_failed(start: RunMaker) -> None:
    run = start(scenario(duration="60s"))
    run.wait_for("p99")
    os.kill(pid_of(run, "pubstorm.fleet.zmq_agent"), signal.SIGKILL)
    result = played(run)
    assert result["ended_early"]
    (event,) = [event for event in result["events"] if event["kind"] == "publisher"]
    assert "publisher feed (pid " in event["text"]
    assert "killed by signal 9" in event["text"]
    assert result["populations"]["subscriber"]["received_total"] > 0


def test_no_publisher_outlives_pubstorm(start: RunMaker) -> None:
    run = start(scenario(duration="60s", feeds=2))
    run.wait_for("p99")
    processes = [psutil.Process(pid) for pid in run.children()]
    assert sum("pubstorm.fleet.zmq_agent" in process.cmdline() for process in processes) == 2
    run.process.kill()
    assert not psutil.wait_procs(processes, timeout=GONE_TIMEOUT_S)[1]


def test_an_interrupted_run_still_knows_the_expected_deliveries(start: RunMaker) -> None:
    run = start(scenario(duration="60s"))
    run.wait_for("p99")
    run.process.send_signal(signal.SIGINT)
    result = played(run)
    assert result["interrupted"]
    assert_nothing_lost(result, share=10)


@pytest.mark.parametrize("security", ["plain", "curve"])
def test_connections_are_guarded_on_both_sides(start: RunMaker, security: str) -> None:
    login = "username: user\n    password: secret" if security == "plain" else ""
    publisher = f"{{kind: pyzmq, security: {security}}}"
    text = scenario(publisher=publisher, login=login, subscriber="subscriber: libzmq", clients=3)
    run = start(text)
    result = played(run)
    subscriber = result["populations"]["subscriber"]
    assert subscriber["ready_max"] == 3
    assert subscriber["received_total"] == 3 * result["publishers"][0]["sent_total"]
    assert subscriber["lost_total"] == 0
    stored = [path.read_text(errors="replace") for path in run.directory.rglob("*.log")]
    assert not any("KEY" in text for text in stored)


def test_the_publisher_of_the_guide_works_as_it_stands(start: RunMaker, tmp_path: Path) -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.S | re.M)
    path = tmp_path / "my_publisher.py"
    path.write_text(program)
    command = f'{{kind: command, command: ["{sys.executable}", "-I", "{path}"]}}'
    result = played(start(scenario(publisher=command)))
    assert_nothing_lost(result, share=10)
    (publisher,) = result["publishers"]
    assert publisher["sent_total"] == 2000
    assert publisher["library"].startswith("my own")


def pid_of(run: Run, word: str) -> int:
    """The process of a run that has a word in its command line."""
    found = [pid for pid in run.children() if word in psutil.Process(pid).cmdline()]
    assert len(found) == 1
    return found[0]
