"""The live page at one instant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pubstorm.contract import Sample, Source
from pubstorm.measure.run_log import StageEntered
from pubstorm.quantities import SECOND_NS
from pubstorm.result import ThresholdOutcome
from pubstorm.web.now import Latest, RunState, VerdictSoFar, shown
from tests.kit import made
from tests.kit.recorded import unpack
from tests.pure.scenario.bases import ROUND_TRIP

SCENARIO = """\
target: mqtt://127.0.0.1
populations: {sub: {clients: 3, subscriptions: [d]}}
stages: [connect, hold: 1s, disconnect]
"""


def content(**readings: float) -> dict[str, Any]:
    """The page of a population with some readings."""
    plan = made.compiled(SCENARIO)
    latest = Latest()
    source = Source.single("population", plan.populations[0].name)
    for metric, value in readings.items():
        latest.add("population", Sample(source, metric, 1.0, value))
    state = RunState(plan, None, 1.0, None, None, None, is_alive=True)
    return shown(state, latest, 0.0)


def test_messages_of_other_programs_are_the_first_figure_and_a_column() -> None:
    page = content(connected=3, foreign_per_s=510, received_per_s=0)
    first = page["figures"][0]
    assert (first["name"], first["value"]) == ("foreign messages", "510 /s")
    place = page["heads"].index("foreign/s")
    assert page["populations"][0]["cells"][place] == "510"
    both = content(connected=3, foreign_per_s=510, received_per_s=7)["figures"][0]
    assert both["name"] == "messages received"
    assert both["note"].endswith("; 510 /s of other programs")


def test_answers_are_no_part_of_what_was_scheduled() -> None:
    plan = made.compiled(ROUND_TRIP)
    latest = Latest()
    for name, metric, value in (
        ("device", "sent_per_s", 999),
        ("device", "due_per_s", 1000),
        ("backend", "sent_per_s", 999),
        ("device", "received_per_s", 999),
    ):
        latest.add("population", Sample(Source.single("population", name), metric, 1.0, value))
    page = shown(RunState(plan, None, 1.0, None, None, None, is_alive=True), latest, 0.0)
    assert page["figures"][0]["note"].replace("\u202f", "") == "999 /s sent of 1000 /s scheduled"
    trips = page["figures"][1]
    assert (trips["name"], trips["note"]) == ("round trip p99", "nothing was answered just now")


def test_a_stage_that_waits_for_wills_has_the_time_left_of_the_terminal() -> None:
    text = """\
    target: mqtt://127.0.0.1
    populations:
      phone: {clients: 10, keep_alive: 10s, end: vanish, will: {topic: gone, payload: bye}}
    stages: [connect, {disconnect: {rate: 10/s}}]
    """
    entered = StageEntered(stage=1, at_s=0.0)
    state = RunState(made.compiled(text), entered, 8.0, None, None, None, is_alive=True)
    page = shown(state, Latest(), 0.0)
    assert page["sentence"] == "Stage disconnect, 2 of 2: 8.0 s left; about 8.0 s left in all."
    assert page["stage"]["share"] == 0.5


def test_messages_are_in_flight_as_long_as_clients_publish(tmp_path: Path) -> None:
    folder = unpack("steps", tmp_path)
    scenario = folder / "scenario.yaml"
    text = scenario.read_text().replace("thresholds: [", "thresholds: [device.in_flight == 0, ")
    scenario.write_text(text)
    snapshots = folder / "snapshots.jsonl"
    lines = snapshots.read_bytes().splitlines(keepends=True)

    def first(count: int) -> list[ThresholdOutcome]:
        snapshots.write_bytes(b"".join(lines[:count]))
        verdict = VerdictSoFar(folder).evaluate()
        assert verdict is not None
        return list(verdict.thresholds)

    halfway = first(len(lines) // 2)
    assert [outcome.metric for outcome in halfway][:2] == ["in_flight", "received_per_s"]
    assert halfway[0].found is None
    assert halfway[1].found is not None
    assert first(len(lines))[0].found is not None


def test_clients_that_still_connect_are_not_missing(tmp_path: Path) -> None:
    folder = unpack("steps", tmp_path)
    scenario = folder / "scenario.yaml"
    more = "thresholds: [device.never_ready == 0, device.connected == 20, "
    scenario.write_text(scenario.read_text().replace("thresholds: [", more))
    snapshots = folder / "snapshots.jsonl"
    lines = snapshots.read_bytes().splitlines(keepends=True)
    connecting = [line for line in lines if json.loads(line)["stage"] == 0]
    # The first reading of the stage, as it would be before the first client connects.
    first = json.loads(connecting[0])
    for population in first["populations"]:
        population["gauges"] |= {"connected": 0, "ready": 0}
    first["settled"] = False
    snapshots.write_text(json.dumps(first) + "\n")
    verdict = VerdictSoFar(folder).evaluate()
    assert verdict is not None
    outcomes = {each.metric: each.found for each in verdict.thresholds}
    assert (outcomes["never_ready"], outcomes["connected"]) == (None, None)
    assert not any("never ready" in each for each in verdict.evidence)


@pytest.mark.parametrize(
    ("events", "until_s", "words"),
    [
        (8, 1.8, ("no value of kill cloud so far", "")),
        (10, 2.9, ("no value so far, since the fault continues", "the fault continues; 21 of 21")),
        (
            12,
            3.35,
            ("no value so far, since stage load continues", "repaired after 1.1 s; 21 of 21"),
        ),
    ],
)
def test_a_fault_that_continues_has_not_ended_badly(
    events: int, until_s: float, words: tuple[str, str], tmp_path: Path
) -> None:
    folder = unpack("broker-killed", tmp_path)
    start = json.loads((folder / "start.json").read_text())
    until_ns = start["started_ns"] + until_s * SECOND_NS
    for name, count in (("events.jsonl", events), ("snapshots.jsonl", None)):
        lines = (folder / name).read_text().splitlines(keepends=True)[:count]
        kept = [line for line in lines if json.loads(line).get("to_ns", 0) <= until_ns]
        (folder / name).write_text("".join(kept))
    verdict = VerdictSoFar(folder).evaluate()
    assert verdict is not None
    back = next(each for each in verdict.thresholds if each.metric == "clients_back")
    assert (back.found, back.text) == (None, words[0])
    said = [each for each in verdict.evidence if each.startswith("kill cloud at")]
    assert len(said) == bool(words[1])
    assert all(each.partition(": ")[2].startswith(words[1]) for each in said)
    assert not any("in the stage" in each or "not repaired" in each for each in said)


def test_a_column_without_a_value_is_left_out() -> None:
    page = content(connected=3, received_per_s=7)
    assert {"foreign/s", "round trip p50", "round trip p99"}.isdisjoint(page["heads"])
    assert len(page["populations"][0]["cells"]) == len(page["heads"])
