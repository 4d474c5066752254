"""The tables of shipped scenarios over measurements of which the right cells are known."""

from __future__ import annotations

from pathlib import Path

from pubstorm.result import RunResult
from pubstorm.result.figures.table import cells
from pubstorm.result.verdict import evaluate_run
from pubstorm.scenario import parse_scenario
from tests.kit.measured import MeasuredMaker

SCENARIOS = Path(__file__).parents[3] / "scenarios"


def test_the_ladder_counts_attempts_clients_and_messages_that_failed(
    measured: MeasuredMaker,
) -> None:
    found = measured(
        device={
            "clients": 22_000,
            "connected_max": 19_992,
            "ready_max": 19_992,
            "connect_failed_total": 23_024,
            "abandoned_total": 17,
            "skipped_total": 6024,
        }
    )
    run = found.model_copy(update={"populations": {"connection": found.populations["device"]}})
    source = (SCENARIOS / "connection-ladder.yaml").read_text()
    scenario = parse_scenario(source, "connection-ladder.yaml")
    result = RunResult(**dict(run), verdict=evaluate_run(run, scenario.thresholds))
    shown = cells(scenario.table, result)
    failed = {heading: cell.text for heading, cell in shown.items() if "failed" in heading}
    assert failed == {
        "failed attempts": "23\u202f024",
        "failed clients": "2\u202f008",
        "failed messages": "17",
    }
    assert shown["unsent messages"].text == "6\u202f024"
    missed = {outcome.expression for outcome in result.verdict.thresholds if outcome.missed}
    assert missed >= {
        "connection.connect_failed == 0",
        "connection.never_ready == 0",
        "connection.abandoned == 0",
        "connection.skipped == 0",
    }
