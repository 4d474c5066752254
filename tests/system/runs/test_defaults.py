"""Default thresholds on a real broker: it takes only some of the clients and delivers nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.runs import MosquittoMaker, Run, RunMaker

SCENARIO = """
target: {url}
populations:
  backend: {{clients: 2, subscriptions: [{{topic: "data/#", qos: 1}}]}}
  device:
    clients: 8
    reconnect: never
    publications: [{{topic: "data/{{n}}", rate: 10/s, qos: 1}}]
stages:
  - connect: {{populations: [backend]}}
  - connect: {{populations: [device]}}
  - publish: 500ms
snapshot_interval: 200ms
clean_start: skip
"""


@pytest.fixture
def run(mosquitto: MosquittoMaker, start: RunMaker, tmp_path: Path) -> Run:
    # Without a line for reading, mosquitto grants the subscription and delivers nothing.
    rights = tmp_path / "acl"
    rights.write_text("topic write data/#\n")
    broker = mosquitto(acl_file=rights, max_connections=6)
    # The observer of $SYS is a client too: whether it comes before the devices is not certain.
    return start(SCENARIO.format(url=broker.url), "--set", "monitors.brokers=false", report=True)


def test_topics_that_lead_nowhere_are_evidence_and_fail_thresholds_about_them(
    start: RunMaker, mosquitto: MosquittoMaker
) -> None:
    typo = SCENARIO.format(url=mosquitto().url).replace("data/#", "date/#")
    run = start(typo, "--set", "thresholds=[backend.lost == 0]")
    assert run.finish() == 1
    verdict = run.result()["verdict"]
    (own, *_) = verdict["thresholds"]
    assert (own["passed"], own["found"]) == (False, None)
    place = "populations.backend.subscriptions.0: "
    assert any(fact.startswith(place) and "date/#" in fact for fact in verdict["evidence"])


def test_loss_and_clients_that_never_connect_fail_a_run_without_thresholds(run: Run) -> None:
    assert run.finish() == 1, run.stdout
    result = run.result()
    found: dict[str, Any] = {each["expression"]: each for each in result["verdict"]["thresholds"]}
    assert all(each["default"] for each in found.values())
    assert {expression: each["passed"] for expression, each in found.items()} == {
        "never_ready == 0": False,
        "lost == 0": False,
        "in_flight == 0": True,
        "abandoned == 0": True,
        "skipped == 0": False,
    }
    populations = result["populations"]
    # The broker takes about half of the devices. The others do not try again.
    assert 0 < found["never_ready == 0"]["found"] < 8
    assert populations["device"]["connect_failed_total"] > 0
    assert found["lost == 0"]["found"] == populations["backend"]["expected_total"] > 0
    assert found["skipped == 0"]["found"] == populations["device"]["skipped_total"] > 0
    page, notes = ((run.directory / name).read_text() for name in ("junit.xml", "report.md"))
    for line in found:
        assert f"{line} (default)" in run.stdout
        assert f'name="{line} (default)"' in page
        assert f"`{line}` (default): found " in notes
