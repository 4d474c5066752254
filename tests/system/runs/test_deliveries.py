"""Runs whose numbers are known beforehand: sent = acknowledged = received, and what is lost is what
the broker says it dropped."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

from pubstorm import cli
from pubstorm.contract.histogram import MAX_NS

Play = Callable[..., tuple[int, dict[str, Any]]]
MosquittoMaker = Callable[..., Any]
REPOSITORY = Path(__file__).parents[3]


@pytest.mark.slow("the quick start lasts 10 s")
def test_the_quickstart_passes_on_the_embedded_broker(run: Play) -> None:
    thresholds = "thresholds=[device.connected == 300, backend.lost == 0, device.lost == 0]"
    code, result = run(REPOSITORY / "scenarios" / "quickstart.yaml", "--set", thresholds)
    assert code == 0, result["verdict"]
    assert result["verdict"]["status"] == "pass"
    assert [broker["kind"] for broker in result["brokers"]] == ["embedded"]


def test_a_run_without_a_report_stores_data_of_which_one_can_be_made(
    run: Play, tmp_path: Path
) -> None:
    code, _ = run(ECHO.format(qos=0, topology=EMBEDDED).replace("3s", "300ms"))
    assert code == 0
    made = {"report.md", "report.html", "junit.xml", "latencies.hlog"}
    folder = tmp_path / "run-0"
    assert not made & {path.name for path in folder.iterdir()}
    assert cli.main(["report", str(folder)]) == 0
    assert made <= {path.name for path in folder.iterdir()}


def test_a_stored_result_obeys_its_schema_and_its_files_are_there(
    run: Play, tmp_path: Path
) -> None:
    code, result = run(ECHO.format(qos=1, topology=EMBEDDED), report=True)
    assert code == 0
    schema = json.loads((REPOSITORY / "contract" / "result.schema.json").read_text())
    jsonschema.validate(result, schema)
    kept = {path.name for path in (tmp_path / "run-0").iterdir()}
    assert kept >= {
        "scenario.yaml",
        "plan.json",
        "environment.json",
        "snapshots.jsonl",
        "result.json",
        "report.md",
        "report.html",
        "junit.xml",
        "latencies.hlog",
        "logs",
    }
    snapshots = (tmp_path / "run-0" / "snapshots.jsonl").read_text().splitlines()
    schema = json.loads((REPOSITORY / "contract" / "snapshot.schema.json").read_text())
    for line in snapshots:
        jsonschema.validate(json.loads(line), schema)
    assert len(snapshots) == sum(agent["snapshots"] for agent in result["fleet"]["agents"])
    flow, device = result["flows"][0], result["populations"]["device"]
    assert logged(tmp_path / "run-0" / "latencies.hlog") == {
        "delivery:device->backend:intended": flow["latency_us"]["intended"]["count"],
        "delivery:device->backend:actual": flow["latency_us"]["actual"]["count"],
        "ack:device:intended": device["ack_latency_us"]["intended"]["count"],
        "ack:device:actual": device["ack_latency_us"]["actual"]["count"],
        "connect:device": 50,
        "connect:backend": 2,
    }
    began_s = datetime.fromisoformat(result["started"]).timestamp()
    ended_s = datetime.fromisoformat(result["ended"]).timestamp()
    assert began_s <= result["started_unix_ns"] / 1e9 <= ended_s + 1


def logged(path: Path) -> dict[str, int]:
    """The latencies in a log by their tags, counted by HdrHistogram's own reader."""
    reader = HistogramLogReader(str(path), HdrHistogram(1, MAX_NS, 2))
    found = Counter[str]()
    while (histogram := reader.get_next_interval_histogram()) is not None:
        found[histogram.get_tag()] += histogram.get_total_count()
    reader.close()
    return dict(found)


EMBEDDED = "{brokers: {main: {kind: embedded}}}"
ECHO = """
topology: {topology}
populations:
  device:
    clients: 50
    publications: [{{topic: "up/{{n}}", rate: 20/s, qos: {qos}}}]
  backend:
    clients: 2
    subscriptions: [{{topic: "up/#", qos: {qos}}}]
stages: [connect, publish: 3s, disconnect]
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
    return shared_run("".join((BOTH, *pairs, "\nstages: [connect, publish: 3s, disconnect]\n")))


@pytest.mark.xdist_group("grid")
@pytest.mark.parametrize(("broker", "qos"), GRID)
def test_what_is_sent_is_acknowledged_and_received(
    broker: str, qos: int, grid: tuple[int, dict[str, Any]]
) -> None:
    code, result = grid
    device, backend = (
        result["populations"][f"{name}-{broker}-{qos}"] for name in ("device", "backend")
    )
    assert code == 0, result["verdict"]
    assert device["sent_total"] == 25 * 20 * 3
    assert device["acked_total"] == (device["sent_total"] if qos else 0)
    assert backend["expected_total"] == backend["received_total"] == 2 * device["sent_total"]
    for name in ("lost", "duplicate", "reordered", "stale", "foreign"):
        assert backend[f"{name}_total"] == 0, name
    for clock in ("intended", "actual"):
        assert backend["latency_us"][clock]["count"] == backend["received_total"]
        assert device["ack_latency_us"][clock]["count"] == device["acked_total"]
    # Messages of a late turn are sent together: so many more or less may be in the steady window.
    (load,) = (stage for stage in result["stages"] if stage["name"] == "publish")
    together = 500 * (2 * result["fleet"]["lateness_us"]["max"] / 1e6) + 25
    sent = device["rates"]["sent_per_s"] * load["steady_s"]
    assert sent == pytest.approx(500 * load["steady_s"], abs=together)


def test_agents_share_the_load_exactly(run: Play) -> None:
    code, result = run(ECHO.format(qos=1, topology=EMBEDDED), "--set", "fleet.agents=3")
    assert code == 0, result["verdict"]
    assert [agent["clients"] for agent in result["fleet"]["agents"]] == [18, 18, 16]
    assert result["populations"]["device"]["sent_total"] == 50 * 20 * 3
    assert result["populations"]["backend"]["received_total"] == 2 * 50 * 20 * 3
    assert result["populations"]["backend"]["lost_total"] == 0


@pytest.mark.slow("a queue has to fill up")
def test_what_a_slow_subscriber_loses_is_what_the_broker_dropped(
    run: Play, mosquitto: MosquittoMaker
) -> None:
    broker = mosquitto(max_queued_messages=100)
    code, result = run(
        f"""
target: {broker.url}
populations:
  device:
    clients: 20
    publications: [{{topic: "up/{{n}}", rate: 25/s, qos: 1}}]
  slow:
    clients: 1
    read_rate: 100/s
    subscriptions: [{{topic: "up/#", qos: 1}}]
stages: [connect, publish: 5s]
drain: 3s
monitors: {{host: false}}
"""
    )
    slow = result["populations"]["slow"]
    dropped = broker.sys_topic("publish/messages/dropped")
    assert code == 0, result["verdict"]
    assert dropped > 500
    assert slow["lost_total"] == dropped
    assert slow["received_total"] + slow["lost_total"] == slow["expected_total"] == 20 * 25 * 5
    assert result["verdict"]["limited_by"] == "broker"


@pytest.mark.xdist_group("heavy")
@pytest.mark.slow("10,000 clients connect, 2,000 a second, and publish for 5 s")
def test_ten_thousand_clients_on_mosquitto_lose_nothing(
    run: Play, mosquitto: MosquittoMaker
) -> None:
    broker = mosquitto(max_queued_messages=0, max_inflight_messages=1000)
    code, result = run(
        f"""
target: {broker.url}
populations:
  device:
    clients: 10k
    publications: [{{topic: "up/{{n}}", interval: 5s, qos: 1, size: 100B}}]
  backend:
    clients: 1
    subscriptions: [{{topic: "up/#", qos: 1}}]
stages: [connect: {{rate: 2000/s}}, publish: 5s, disconnect: {{rate: 5000/s}}]
thresholds: [device.connected == 10k, backend.lost == 0, backend.duplicate == 0]
"""
    )
    device, backend = result["populations"]["device"], result["populations"]["backend"]
    assert code == 0, result["verdict"]
    assert device["connected_max"] == 10_000
    assert device["sent_total"] == device["acked_total"] == backend["received_total"] == 10_000


def test_there_are_as_many_engines_as_descriptors_ask_for(run: Play) -> None:
    code, result = run(
        """
topology: {brokers: {main: {kind: mosquitto, count: 4}}}
populations:
  device:
    clients: 1500
    keep_alive: 10min
    publications: [{topic: "up/{n}", interval: 60s}]
stages: [connect: {rate: 5000/s}, publish: 1s, disconnect: {rate: 20000/s}]
thresholds: [device.connected == 1500]
""",
        prefix=("prlimit", "--nofile=600:600"),
    )
    assert code == 0, result["verdict"]
    assert result["populations"]["device"]["connected_max"] == 1500
    assert len(result["fleet"]["agents"]) >= 3
