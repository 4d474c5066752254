"""Runs whose numbers are known beforehand: sent = acknowledged = received, and what is lost is what
the broker says it dropped."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

from pubstorm import cli
from pubstorm.contract.histogram import MAX_NS
from tests.kit.runs import MosquittoMaker, Play
from tests.kit.serving import until

pytestmark = pytest.mark.xdist_group("deliveries")

REPOSITORY = Path(__file__).parents[3]
MADE = {"report.md", "report.html", "junit.xml", "latencies.hlog"}
"""Files that are made of the data of a run."""


@pytest.fixture(scope="module")
def shared(shared_run: Play) -> tuple[dict[str, Any], Path]:
    """The result and folder of a run of three agents that stores data only."""
    code, result = shared_run(ECHO)
    assert code == 0, result["verdict"]
    return result, Path(result["run_directory"])


def test_agents_share_the_load_exactly(shared: tuple[dict[str, Any], Path]) -> None:
    result, _ = shared
    assert result["headroom"] is None, "the host is not calibrated"
    assert [agent["clients"] for agent in result["fleet"]["agents"]] == [18, 18, 16]
    assert result["populations"]["device"]["sent_total"] == 50 * 20
    assert result["populations"]["backend"]["received_total"] == 2 * 50 * 20
    assert result["populations"]["backend"]["lost_total"] == 0


def test_a_stored_result_obeys_its_schema(shared: tuple[dict[str, Any], Path]) -> None:
    result, folder = shared
    kept = {"scenario.yaml", "plan.json", "environment.json", "snapshots.jsonl", "logs"}
    assert kept <= {path.name for path in folder.iterdir()}
    for name, texts in (
        ("result", [(folder / "result.json").read_text()]),
        ("snapshot", (folder / "snapshots.jsonl").read_text().splitlines()),
    ):
        schema = json.loads((REPOSITORY / "contract" / f"{name}.schema.json").read_text())
        validator = jsonschema.Draft202012Validator(schema)
        for text in texts:
            validator.validate(json.loads(text))
    assert len(texts) == sum(agent["snapshots"] for agent in result["fleet"]["agents"])
    began_s, ended_s = (datetime.fromisoformat(result[key]).timestamp() for key in ENDS)
    assert began_s <= result["started_unix_ns"] / 1e9 <= ended_s + 1


def test_a_report_is_made_of_the_data_of_a_run(
    shared: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    result, stored = shared
    assert not MADE & {path.name for path in stored.iterdir()}
    folder = Path(shutil.copytree(stored, tmp_path / "run"))
    assert cli.main(["report", str(folder)]) == 0
    assert {path.name for path in folder.iterdir()} >= MADE
    flow, device = result["flows"][0], result["populations"]["device"]
    assert logged(folder / "latencies.hlog") == {
        "delivery:device->backend:intended": flow["latency_us"]["intended"]["count"],
        "delivery:device->backend:actual": flow["latency_us"]["actual"]["count"],
        "ack:device:intended": device["ack_latency_us"]["intended"]["count"],
        "ack:device:actual": device["ack_latency_us"]["actual"]["count"],
        "connect:device": 50,
        "connect:backend": 2,
    }


def logged(path: Path) -> dict[str, int]:
    """The latencies in a log by their tags, counted by HdrHistogram's own reader."""
    reader = HistogramLogReader(str(path), HdrHistogram(1, MAX_NS, 2))
    found = Counter[str]()
    while (histogram := reader.get_next_interval_histogram()) is not None:
        found[histogram.get_tag()] += histogram.get_total_count()
    reader.close()
    return dict(found)


ENDS = ("started", "ended")
ECHO = """
topology: {brokers: {main: {kind: embedded}}}
fleet: {agents: 3}
populations:
  device:
    clients: 50
    publications: [{topic: "up/{n}", rate: 20/s, qos: 1}]
  backend:
    clients: 2
    subscriptions: [{topic: "up/#", qos: 1}]
stages: [connect, publish: 1s, disconnect]
"""
GRID = [(broker, qos) for broker in ("embedded", "mosquitto") for qos in (0, 1, 2)]
BOTH = """
topology:
  brokers:
    one: {kind: embedded}
    other: {kind: mosquitto, settings: {max_queued_messages: 0}}
populations:"""
PAIR = """
  device-{name}:
    clients: 25
    at: {at}
    publications: [{{topic: "up/{name}/{{n}}", rate: 20/s, qos: {qos}}}]
  backend-{name}:
    clients: 2
    at: {at}
    subscriptions: [{{topic: "up/{name}/#", qos: {qos}}}]"""


@pytest.fixture(scope="module")
def grid(shared_run: Play) -> tuple[int, dict[str, Any]]:
    """Devices and backends of each QoS at each broker, in one run."""
    at = {"embedded": "one", "mosquitto": "other"}
    pairs = [PAIR.format(name=f"{kind}-{qos}", at=at[kind], qos=qos) for kind, qos in GRID]
    return shared_run("".join((BOTH, *pairs, "\nstages: [connect, publish: 1s, disconnect]\n")))


@pytest.mark.parametrize(("broker", "qos"), GRID)
def test_what_is_sent_is_acknowledged_and_received(
    broker: str, qos: int, grid: tuple[int, dict[str, Any]]
) -> None:
    code, result = grid
    device, backend = (
        result["populations"][f"{name}-{broker}-{qos}"] for name in ("device", "backend")
    )
    assert code == 0, result["verdict"]
    assert device["sent_total"] == 25 * 20
    assert device["acked_total"] == (device["sent_total"] if qos else 0)
    assert backend["expected_total"] == backend["received_total"] == 2 * device["sent_total"]
    for name in ("lost", "duplicate", "reordered", "stale", "foreign"):
        assert backend[f"{name}_total"] == 0, name
    for clock in ("intended", "actual"):
        assert backend["latency_us"][clock]["count"] == backend["received_total"]
        assert device["ack_latency_us"][clock]["count"] == device["acked_total"]


@pytest.mark.slow("a subscriber reads its queue slowly, and the drain waits for what was dropped")
def test_what_a_slow_subscriber_loses_is_what_the_broker_dropped(
    run: Play, mosquitto: MosquittoMaker
) -> None:
    # The subscriber has 2.5 s of messages before it, which outlast a stall of the broker.
    broker = mosquitto(max_queued_messages=10, max_inflight_messages=100)
    code, result = run(
        f"""
target: {broker.url}
populations:
  device:
    clients: 20
    publications: [{{topic: "up/{{n}}", rate: 25/s, qos: 1}}]
  slow:
    clients: 1
    read_rate: 40/s
    subscriptions: [{{topic: "up/#", qos: 1}}]
stages: [connect, publish: 2s]
monitors: {{host: false}}
"""
    )
    slow = result["populations"]["slow"]
    assert code == 0, result["verdict"]
    assert slow["received_total"] + slow["lost_total"] == slow["expected_total"] == 20 * 25 * 2
    assert slow["lost_total"] > 0
    until(lambda: broker.sys_topic("publish/messages/dropped") == slow["lost_total"])
    assert result["verdict"]["limited_by"] == "scenario"
