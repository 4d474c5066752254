"""Names in expressions of a scenario, checked as it is loaded."""

from __future__ import annotations

import re

import pytest

from pubstorm.scenario import parse_scenario
from tests.pure.scenario.bases import BRIDGED, MONITORED, changed

NAMED = """\
device.lost, lost, acked_per_s@steady, sent_per_s@twice, sent_per_s@-5 device, device.sent@connect,
main.cpu, main-1.cpu.max, main-1.cpu@twice, main.threads, main.$SYS/messages/dropped.increase,
host.load1, agent.busy.max, agent-0.cpu, redis.cpu, stats.$SYS/heap/current, node.anything_at_all,
node.up{job="a.b"}.last, main.$SYS/messages/sent.rate@twice, backend.received_per_s.last@steady,
received_per_s.max, device.stalled, left"""
COLUMNS = """\
main.bytes_per_connection, main-1.bytes_per_connection, host.bytes_per_connection, balance,
main.balance, connects_per_s, disconnects_per_s@connect, connected_after@steady, took@connect,
step, note, verdict, limited_by, evidence, duration,
populations.device.clients, target, stages.1.publish.for"""


@pytest.mark.parametrize(
    "key",
    [
        "thresholds: ['{} < 1']",
        "table: {col: '{}'}",
        "sweep: {vary: {seed: [1, 2]}, stop_when: ['{} > 1']}",
    ],
)
@pytest.mark.parametrize("expression", re.split(r",\s", NAMED))
def test_what_is_there_can_be_named(expression: str, key: str) -> None:
    assert parse_scenario(f"{MONITORED}{key.replace('{}', expression)}\n", "s.yaml")


@pytest.mark.parametrize("column", re.split(r",\s", COLUMNS))
def test_a_column_is_a_metric_of_a_run_or_a_word_or_a_value_of_the_scenario(column: str) -> None:
    assert parse_scenario(f"{MONITORED}table: {{col: '{column}'}}\n", "s.yaml").table


@pytest.mark.parametrize(
    "condition", ["host.bytes_per_connection < 9kB", "balance <= 110%", "took@connect < 5s"]
)
def test_metrics_of_a_run_have_thresholds(condition: str) -> None:
    scenario = parse_scenario(f"{MONITORED}thresholds: ['{condition}']\n", "s.yaml")
    assert [threshold.source for threshold in scenario.thresholds] == [condition]


def test_the_broker_of_a_target_is_called_broker() -> None:
    lines = "thresholds: [broker.cpu < 50%, broker-0.rss < 1MB]"
    text = changed(MONITORED, f"topology: null, target: 'mqtt://localhost', {lines}")
    assert parse_scenario(text, "s.yaml").thresholds


def test_phases_are_called_after_their_changes_each_by_a_name_of_its_own() -> None:
    text = MONITORED.replace(
        "name: twice}",
        "name: twice}\n"
        "        - {at: 9s, population: device, rate: 0.5}\n"
        "        - {at: 8s, population: device, remove: 5}\n"
        "        - {at: 4s, population: device, rate: 1, name: steady}",
    )
    stage = parse_scenario(text, "s.yaml").stages[1]
    assert stage.phases == (
        "steady (2)",
        "-5 device",
        "twice",
        "-5 device (2)",
        "0.5 × device",
    )


@pytest.mark.parametrize(
    "line",
    ["uplink.connected.min == 9", "uplink.connected@connect == 9", "boxes.cpu < 50%"],
)
def test_bridges_and_brokers_that_are_watched_together_can_be_named(line: str) -> None:
    changes = f"topology.brokers.boxes.count: 9, thresholds: ['{line}']"
    assert parse_scenario(changed(BRIDGED, changes), "s.yaml").thresholds
