"""Whole runs with ZeroMQ: real publishers under test, and simulated or real subscribers. One run
has publishers of each kind and security, one loses messages, and two end before their time."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.kit.runs import GONE_TIMEOUT_S, Run, RunMaker

pytestmark = pytest.mark.xdist_group("publishers")

GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "publisher.md"
LOGIN = {"username": "user", "password": "secret"}
REAL = {"subscriber": "libzmq", "clients": 3}
FEEDS: dict[str, dict[str, Any]] = {
    "native": {"publisher": {"kind": "libzmq", "high_water_mark": 0}},
    "python": {"publisher": {"kind": "pyzmq", "high_water_mark": 0}},
    "plain": {"publisher": {"kind": "pyzmq", "high_water_mark": 0, "security": "plain"}, **LOGIN},
    "curve": {"publisher": {"kind": "pyzmq", "high_water_mark": 0, "security": "curve"}},
    "guide": {"publisher": {"kind": "command", "high_water_mark": 0}},
    "topical": {"publisher": {"kind": "pyzmq", "high_water_mark": 0}, "clients": 2},
}
"""Publishers that drop nothing: one that had no processor sends all that is due at once."""
HASTY: dict[str, dict[str, Any]] = {
    "hasty": {"publisher": {"kind": "pyzmq", "high_water_mark": 10}}
}
SHORT = "500ms"
"""Drain of runs whose deliveries never balance."""
LOADS: dict[str, dict[str, Any]] = {
    "topical": {"topic": "a/{0..3}", "burst": 1},
    "hasty": {"size": "10kB"},
}
SUBSCRIBERS: dict[str, tuple[str, dict[str, Any]]] = {
    "of-native": ("native", {}),
    "of-python": ("python", {}),
    "real-of-python": ("python", REAL),
    "of-plain": ("plain", {**REAL, **LOGIN}),
    "of-curve": ("curve", REAL),
    "of-guide": ("guide", {}),
    "of-topical": ("topical", {"subscriptions": ["a/1"]}),
    "of-hasty": ("hasty", {"clients": 2, "shares": {"slow": {"part": "50%", "read_rate": "10%"}}}),
}
COMPLETE = [name for name, (at, _) in SUBSCRIBERS.items() if at not in LOADS]


def scenario(
    duration: str, feeds: dict[str, dict[str, Any]] | None = None, drain: str = "5s"
) -> str:
    """Returns a scenario with these publishers and their subscribers. Default: one of pyzmq."""
    feeds = feeds or {"python": FEEDS["python"]}
    populations: dict[str, Any] = {}
    for name, keys in feeds.items():
        load: dict[str, Any] = {
            "topic": "",
            "size": "32B",
            "rate": "1k/s",
            "burst": 10,
            **LOADS.get(name, {}),
        }
        populations[name] = {"clients": 1, **keys, "publications": [load]}
    for name, (at, keys) in SUBSCRIBERS.items():
        if at in feeds:
            populations[name] = {"clients": 10, "at": at, "subscriptions": [""], **keys}
    stages = [{"connect": {}}, {"publish": duration}, {"disconnect": {}}]
    common = {"snapshot_interval": "200ms", "drain": drain, "stages": stages}
    return yaml.safe_dump({"name": "publishers", **common, "populations": populations})


def result_of(run: Run) -> dict[str, Any]:
    """Returns the result of a run that came to its end; its publishers are gone."""
    run.finish()
    result = run.result()
    assert not any(psutil.pid_exists(publisher["pid"]) for publisher in result["publishers"])
    return result


@pytest.fixture(scope="module")
def run(shared_start: RunMaker, shared_folder: Path) -> Run:
    (program,) = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.S | re.M)
    path = shared_folder / "my_publisher.py"
    path.write_text(program)
    FEEDS["guide"]["publisher"]["command"] = [sys.executable, "-I", str(path)]
    return shared_start(scenario("2s", FEEDS))


@pytest.fixture(scope="module")
def result(run: Run) -> dict[str, Any]:
    return result_of(run)


@pytest.fixture(scope="module")
def of_hasty(shared_start: RunMaker) -> dict[str, Any]:
    """The result of a publisher with a short queue and a slow subscriber."""
    return result_of(shared_start(scenario("2s", HASTY, SHORT)))


def sent_by(result: dict[str, Any], feed: str) -> int:
    """Returns the messages of a publisher, as it has counted them itself."""
    (publisher,) = (each for each in result["publishers"] if each["name"] == feed)
    sent: int = publisher["sent_total"]
    return sent


@pytest.mark.slow("twelve processes publish and subscribe")
@pytest.mark.parametrize("name", COMPLETE)
def test_all_that_a_publisher_sends_is_accounted_for(result: dict[str, Any], name: str) -> None:
    feed, found = SUBSCRIBERS[name][0], result["populations"][name]
    assert found["ready_max"] == found["clients"]
    assert found["expected_total"] == found["clients"] * sent_by(result, feed) > 0
    assert found["received_total"] == found["expected_total"]
    assert found["lost_total"] == found["duplicate_total"] == 0


def test_each_publisher_reports_its_load_and_its_end(result: dict[str, Any]) -> None:
    """The publisher of the guide works as it stands."""
    publishers = {publisher["name"]: publisher for publisher in result["publishers"]}
    single = FEEDS.keys() - {"topical"}
    assert publishers.keys() == {*single, "topical-0", "topical-1"}
    for name in single:
        publisher = publishers[name]
        assert publisher["sent_total"] + publisher["skipped_total"] == 2000
        assert (publisher["burst"], publisher["ending"]) == (10, "bye")
    assert [publishers[name]["kind"] for name in ("native", "python")] == ["libzmq", "pyzmq"]
    assert publishers["guide"]["library"].startswith("my own")
    read = {each["metric"] for each in result["monitors"] if each["source"] == "python"}
    assert {"cpu", "rss_bytes", "thread_cpu_max", "busy"} <= read


def test_topics_go_to_those_whose_prefix_they_have(result: dict[str, Any]) -> None:
    found = result["populations"]["of-topical"]
    assert found["received_total"] == found["expected_total"] > 0
    assert found["lost_total"] == 0


def test_what_a_slow_subscriber_loses_is_counted(of_hasty: dict[str, Any]) -> None:
    sent, lost = sent_by(of_hasty, "hasty"), of_hasty["populations"]["of-hasty/slow"]
    assert lost["expected_total"] == sent
    assert 0 < lost["lost_total"] == sent - lost["received_total"]
    assert lost["client_loss"]["count"] == 1
    # The loss of a client is that of its stage: messages that come behind the drain stay lost.
    stage = next(stage for stage in of_hasty["stages"] if stage["kind"] == "publish")
    in_time = stage["populations"]["of-hasty/slow"]["received_total"]
    assert in_time <= lost["received_total"]
    assert lost["client_loss"]["p50"] == pytest.approx(1 - in_time / sent, abs=1e-6)


@pytest.mark.usefixtures("result")
def test_keys_are_in_no_log(run: Run) -> None:
    logs = [path.read_text(errors="replace") for path in run.directory.rglob("*.log")]
    assert logs and not any("KEY" in text for text in logs)


def test_a_publisher_that_is_killed_is_what_failed(start: RunMaker) -> None:
    run = start(scenario("10min", drain=SHORT))
    run.wait_for("p99")
    (killed,) = publishers_of(run)
    os.kill(killed, signal.SIGKILL)
    result = result_of(run)
    assert result["ended_early"]
    (event,) = [event for event in result["events"] if event["kind"] == "publisher"]
    assert f"publisher python (pid {killed})" in event["text"]
    assert result["populations"]["of-python"]["received_total"] > 0


def test_no_publisher_outlives_pubstorm(start: RunMaker) -> None:
    run = start(scenario("10min", drain=SHORT))
    run.wait_for("p99")
    processes = [psutil.Process(pid) for pid in run.children()]
    assert len(publishers_of(run)) == 1
    run.process.kill()
    assert not psutil.wait_procs(processes, timeout=GONE_TIMEOUT_S)[1]


def publishers_of(run: Run) -> list[int]:
    """Returns the processes of a run that publish with pyzmq."""
    word = "pubstorm.fleet.zmq_agent"
    return [pid for pid in run.children() if word in psutil.Process(pid).cmdline()]
