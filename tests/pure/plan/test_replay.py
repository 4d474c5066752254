"""Publications of recorded messages: their plan, what is refused, the topics that a broker keeps,
and their files on other hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pubstorm.contract.offered_load import carries_stamp, payload_bytes_max
from pubstorm.contract.plan import Plan
from pubstorm.contract.protocol import OpenPace, RecordedPayload
from pubstorm.contract.recorded import RecordedMessage, write_recorded
from pubstorm.errors import ScenarioError
from pubstorm.fleet.site import FOLDER, PlanFiles
from pubstorm.measure.phases.load_due import Publishing, load_due
from pubstorm.plan.compile import provisional_plan
from pubstorm.play.clean_start.topics import keeps_messages, kept_topics, looked_at, own_topics
from pubstorm.scenario import parse_scenario
from pubstorm.scenario.defaults import may_match

SECOND = 10**9
MESSAGES = [
    RecordedMessage(0, 0, "up/{n}", 100, 1, False),
    RecordedMessage(SECOND, 1, "up/{n}", 10, 1, False),
    RecordedMessage(2 * SECOND, 1, "kept/{n}/a", 300, 0, True),
    RecordedMessage(4 * SECOND - 1, 0, "kept/b", 300, 0, True),
]
SCENARIO = """
target: mqtt://localhost
populations:
  device:
    clients: 5
    first: 10
    publications:
      - {{topic: "x/{{recorded}}", replay: {replay}, qos: 1}}
      - {{topic: "{{recorded}}", replay: {{file: {file}, shift: 0s}}, retain: true}}
stages: [connect, publish: 5s]
"""


def recorded_in(folder: Path, messages: list[RecordedMessage] | None = None) -> Path:
    path = folder / "device.csv"
    with path.open("w") as file:
        write_recorded(file, MESSAGES if messages is None else messages)
    return path


def plan_of(folder: Path) -> Plan:
    file = recorded_in(folder)
    return provisional_plan(parse_scenario(SCENARIO.format(replay=file, file=file), "s.yaml"))


def test_a_plan_has_the_facts_of_the_file_for_each_kind_of_messages(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    device = plan.populations[0]
    first, kept = device.publications
    file = str(tmp_path / "device.csv")
    same: dict[str, Any] = {"file": file, "first": 10, "clients": 2}
    assert first.payload == RecordedPayload(**same, mean_bytes=66, max_bytes=100, shift_ns=SECOND)
    assert kept.payload == RecordedPayload(**same, mean_bytes=300, max_bytes=300, shift_ns=0)
    assert isinstance(first.pace, OpenPace) and isinstance(kept.pace, OpenPace)
    # Two clients send two messages of each kind in 4 s.
    assert first.pace.period_ns == kept.pace.period_ns == 4 * SECOND
    assert (first.pace.late, first.pace.burst, first.topic) == ("send", 1, "x/{recorded}")
    assert carries_stamp(first, device, device) and payload_bytes_max(device, first) == 100
    assert Plan.model_validate_json(plan.to_line()) == plan


def test_recorded_messages_are_no_steady_load(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    due = load_due(plan, Publishing.at_start_of(plan, 1, []), [0], {})
    assert (due.is_open, due.sent_per_s) == (False, 0)


def test_topics_of_kept_messages_are_found_again(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    own = own_topics(plan)
    assert {topic: each.client for topic, each in own.publishers.items()} == {
        "kept/b": 0,
        "kept/11/a": 1,
        "kept/13/a": 3,
    }
    assert keeps_messages(plan) and kept_topics(plan) >= len(own.publishers)
    assert set(looked_at(plan)) == {"x/kept/+/a", "x/kept/b", "kept/+/a", "kept/b"}


@pytest.mark.parametrize("wanted", ["#", "a/b/+", "$share/g/x", "kept/1"])
def test_any_filter_may_match_a_recorded_topic(wanted: str) -> None:
    assert may_match(wanted, "{recorded}") and may_match(wanted, "x/{recorded}")


def test_other_hosts_get_the_file_of_a_recording(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    files = PlanFiles(plan)
    moved = files.plan.populations[0].publications[0].recorded
    assert moved is not None and moved.file == FOLDER + str(tmp_path / "device.csv")
    assert files.of(0, 3)[moved.file] == tmp_path / "device.csv"


@pytest.mark.parametrize(
    ("publication", "found"),
    [
        ('{topic: "{recorded}", replay: F, rate: 1/s}', "found rate with replay"),
        ('{topic: "{recorded}", replay: F, size: 10B}', "found size with replay"),
        ('{topic: "{recorded}", replay: F, data: d.csv}', "found data with replay"),
        ('{topic: "{recorded}", replay: F, weights: [1, 2]}', "found weights with replay"),
        ('{topic: "{recorded}", replay: F, topic_alias: true}', "found topic_alias with replay"),
        ('{topic: "t", replay: F}', "found a topic without {recorded}"),
        ('{topic: "{recorded}", rate: 1/s}', "found {recorded} without replay"),
        ('{topic: "{recorded}/{recorded}", replay: F, qos: 1}', "{recorded}"),
        ('{topic: "{1..2}/{recorded}", replay: F, qos: 1}', "{1..2}"),
        ('{topic: "{recorded}", replay: F, qos: 2}', "found no recorded messages with qos: 2"),
        ('{topic: "{recorded}", replay: nowhere.csv}', "which cannot be read"),
        ('{topic: t, rate: 1/s, response_topic: "{recorded}"}', "{recorded}"),
    ],
)
def test_what_does_not_go_with_a_recording_is_refused(
    publication: str, found: str, tmp_path: Path
) -> None:
    text = publication.replace(": F", f": {recorded_in(tmp_path)}")
    scenario = f"""
target: mqtt://localhost
populations: {{device: {{version: 5, clients: 2, publications: [{text}]}}}}
stages: [connect, publish: 5s]
"""
    with pytest.raises(ScenarioError) as error:
        parse_scenario(scenario, "s.yaml")
    assert found in str(error.value)


def test_a_stage_with_a_number_of_messages_plays_no_recording(tmp_path: Path) -> None:
    file = recorded_in(tmp_path)
    scenario = SCENARIO.format(replay=file, file=file).replace("5s", "{messages: 100}")
    with pytest.raises(ScenarioError, match="device, which plays recorded messages"):
        parse_scenario(scenario, "s.yaml")


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ((5, 0, "t", 1, 1, "false"), "the order of time"),
        ((10, 2, "t", 1, 1, "false"), "without gaps"),
        ((10, 0, "a/#", 1, 1, "false"), "without wildcards"),
        ((10, 0, "{row.x}", 1, 1, "false"), "with the variables"),
        ((10, 0, "a{", 1, 1, "false"), "found the topic"),
        ((10, 0, "", 1, 1, "false"), "found the topic"),
        ((10, 0, "t", 1, 3, "false"), "qos '3'"),
        ((10, 0, "t", 1, 1, "no"), "retain 'no'"),
        ((10, 0, "t", "1e3", 1, "false"), "bytes '1e3'"),
    ],
)
def test_a_wrong_row_is_refused(row: tuple[object, ...], found: str, tmp_path: Path) -> None:
    path = recorded_in(tmp_path, [RecordedMessage(7, 0, "t", 100, 1, False)])
    with path.open("a") as file:
        file.write(",".join(map(str, row)) + "\n")
    with pytest.raises(ScenarioError) as error:
        parse_scenario(SCENARIO.format(replay=path, file=path), "s.yaml")
    assert found in str(error.value)
