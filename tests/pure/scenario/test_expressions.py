"""Names in expressions of a scenario, checked as it is loaded: errors have line and hint."""

from __future__ import annotations

import pytest

from pubstorm.errors import Problem, ScenarioError
from pubstorm.scenario import parse_scenario

SCENARIO = """\
topology: {brokers: {main: {kind: mosquitto, count: 2}}}
monitors:
  sources:
    redis: {process: {name: redis-server}}
    stats: {sys: {url: "mqtt://localhost"}}
    node: {prometheus: {url: "http://localhost:9100/metrics"}}
populations:
  device:
    clients: 10
    publications: [{topic: a, rate: 1/s}]
  backend:
    clients: 1
    subscriptions: [a]
stages:
  - connect
  - publish:
      name: steady
      for: 10s
      changes:
        - {at: 5s, population: device, remove: 5}
        - {at: 7s, population: device, rate: 2, name: twice}
"""


def problems(expression: str, key: str = "thresholds") -> list[Problem]:
    line = {
        "thresholds": f"thresholds: ['{expression} < 1']\n",
        "table": f"table: {{col: '{expression}'}}\n",
        "stop_when": f"sweep: {{vary: {{seed: [1, 2]}}, stop_when: ['{expression} > 1']}}\n",
    }[key]
    try:
        parse_scenario(SCENARIO + line, "s.yaml")
    except ScenarioError as error:
        return list(error.problems)
    return []


@pytest.mark.parametrize(
    "expression",
    [
        "device.lost",
        "lost",
        "acked_per_s@steady",
        "sent_per_s@twice",
        "sent_per_s@-5 device",
        "device.sent@connect",
        "main.cpu",
        "main-1.cpu.max",
        "main-1.cpu@twice",
        "main.threads",
        "main.$SYS/messages/dropped.increase",
        "host.load1",
        "agent.busy.max",
        "agent-0.cpu",
        "redis.cpu",
        "stats.$SYS/heap/current",
        "node.anything_at_all",
        'node.up{job="a.b"}.last',
        "main.$SYS/messages/sent.rate@twice",
        "backend.received_per_s.last@steady",
        "received_per_s.max",
        "device.stalled",
        "left",
    ],
)
@pytest.mark.parametrize("key", ["thresholds", "table", "stop_when"])
def test_what_is_there_can_be_named(expression: str, key: str) -> None:
    assert problems(expression, key) == []


@pytest.mark.parametrize(
    ("expression", "message", "hint"),
    [
        (
            "devise.lost",
            "found the unknown population 'devise', allowed are device, backend",
            "did you mean device?",
        ),
        (
            "mian.cpu",
            "found the unknown subject 'mian', allowed are device, backend, host, main, agent, "
            "redis, stats, node",
            "did you mean main?",
        ),
        (
            "redis-0.cpu",
            "found the unknown subject 'redis-0', allowed are device, backend, host, main, agent, "
            "redis, stats, node",
            "did you mean redis?",
        ),
        (
            "device.cpu",
            "found 'cpu', allowed are the metrics of the reference",
            "there are connect_attempts,",
        ),
        (
            "device.lots",
            "found 'lots', allowed are the metrics of the reference",
            "did you mean lost or loss?",
        ),
        ("main.cpus", "found 'cpus', allowed are the metrics of the", "did you mean cpu"),
        ("main.lost", "found 'lost', allowed are the metrics of the reference", "there are cpu,"),
        ("host.threads", "found 'threads', allowed are the metrics of the", "there are cpu,"),
        ("main.cpu.p99", "found 'p99', allowed are mean, min, max, first, last, increase", None),
        (
            "device.lost@stedy",
            "found the unknown span 'stedy', allowed are connect, steady, -5 device, twice",
            "did you mean steady?",
        ),
        (
            "main.cpu@+5 device",
            "found the unknown span '+5 device', allowed are connect, steady, -5 device, twice",
            "did you mean -5 device?",
        ),
        (
            "retained@steady",
            "found 'retained', allowed for a single stage are connect_failed,",
            None,
        ),
        (
            "sent@twice",
            "found 'sent', allowed for a single phase are sent_per_s, acked_per_s, "
            "received_per_s, bytes_sent_per_s, bytes_received_per_s, sent_each_per_s, "
            "received_each_per_s, latency, ack_latency",
            None,
        ),
    ],
)
@pytest.mark.parametrize("key", ["thresholds", "table"])
def test_unknown_names_are_reported(
    expression: str, message: str, hint: str | None, key: str
) -> None:
    (problem,) = problems(expression, key)
    assert problem.place == "s.yaml:22"
    assert problem.message.startswith(message)
    assert (problem.hint is None) == (hint is None)
    assert (problem.hint or "").startswith(hint or "")


@pytest.mark.parametrize(
    "expression",
    [
        "main.bytes_per_connection",
        "main-1.bytes_per_connection",
        "host.bytes_per_connection",
        "balance",
        "main.balance",
        "connects_per_s",
        "disconnects_per_s@connect",
        "connected_after@steady",
        "took@connect",
    ],
)
def test_metrics_of_a_run_can_be_named(expression: str) -> None:
    assert problems(expression, "table") == []


@pytest.mark.parametrize(
    ("expression", "message", "hint"),
    [
        (
            "redis.bytes_per_connection",
            "found the unknown subject 'redis', allowed are main, host",
            "there are main,",
        ),
        (
            "engines.bytes_per_connection",
            "found the unknown subject 'engines', allowed are main, host",
            "there are main,",
        ),
        (
            "device.balance",
            "found the unknown subject 'device', allowed are main",
            "there are main",
        ),
        (
            "took@twice",
            "found the unknown stage 'twice', allowed are connect, steady",
            "there are connect, steady",
        ),
    ],
)
def test_metrics_of_a_run_that_are_not_there_are_reported(
    expression: str, message: str, hint: str
) -> None:
    (problem,) = problems(expression, "table")
    assert (problem.message.startswith(message), (problem.hint or "").startswith(hint)) == (
        True,
        True,
    )


@pytest.mark.parametrize(
    "condition", ["host.bytes_per_connection < 9kB", "balance <= 110%", "took@connect < 5s"]
)
def test_metrics_of_a_run_have_thresholds(condition: str) -> None:
    scenario = parse_scenario(f"{SCENARIO}thresholds: ['{condition}']\n", "s.yaml")
    assert [threshold.source for threshold in scenario.thresholds] == [condition]


@pytest.mark.parametrize("word", ["step", "note", "verdict", "limited_by", "evidence", "duration"])
def test_a_column_may_be_a_word(word: str) -> None:
    assert problems(word, "table") == []


@pytest.mark.parametrize("path", ["populations.device.clients", "target", "stages.1.publish.for"])
def test_a_column_may_show_a_value_of_the_scenario(path: str) -> None:
    assert problems(path, "table") == []


def test_a_column_that_is_nothing_is_reported_with_the_words_there_are() -> None:
    (problem,) = problems("verdcit", "table")
    assert problem.message == (
        "found 'verdcit', allowed are the metrics of the reference, or SUBJECT.METRIC, or one of "
        "verdict, limited_by, evidence, duration, command, step, number, note, search.best, "
        "search.most, search.limited_by, search.trials"
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("device:", "main:", "found the population 'main', which is also a broker"),
        ("backend:", "redis:", "found the population 'redis', which is also a source"),
        ("backend:", "host:", "found the population 'host', which is also a word of the monitors"),
        ("redis:", "agent:", "found the source 'agent', which is also a word of the monitors"),
        ("node:", "main:", "found the source 'main', which is also a broker"),
    ],
)
def test_names_that_could_mean_two_things_are_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(SCENARIO.replace(old, new), "s.yaml")
    found = [problem for problem in caught.value.problems if message in problem.message]
    assert found
    assert found[0].hint == f"rename it: {new.rstrip(':')}.cpu could mean either"


def test_what_is_not_watched_cannot_be_named() -> None:
    text = SCENARIO.replace("monitors:\n", "monitors:\n  host: false\n  brokers: false\n")
    for expression in ("host.cpu", "main.cpu"):
        with pytest.raises(ScenarioError) as caught:
            parse_scenario(text + f"thresholds: ['{expression} < 50%']\n", "s.yaml")
        assert "found the unknown subject" in str(caught.value)


def test_the_broker_of_a_target_is_called_broker() -> None:
    text = SCENARIO.replace(
        "topology: {brokers: {main: {kind: mosquitto, count: 2}}}", "target: mqtt://localhost"
    )
    parse_scenario(text + "thresholds: ['broker.cpu < 50%', 'broker-0.rss < 1MB']\n", "s.yaml")


def test_a_span_that_two_stages_are_called_cannot_be_named() -> None:
    text = SCENARIO + "  - publish: {for: 10s, name: steady}\nthresholds: [sent@steady > 1]\n"
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "s.yaml")
    (problem,) = caught.value.problems
    assert problem.message.startswith("found the span 'steady', which is the name of several")


def test_phases_are_called_after_their_changes_each_by_a_name_of_its_own() -> None:
    text = SCENARIO.replace(
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


BRIDGED = """
topology:
  brokers: {cloud: mosquitto, boxes: {kind: mosquitto, count: 9}}
  bridges:
    uplink: {from: boxes, to: cloud, topics: [{topic: "up/#", direction: out}]}
populations:
  device: {clients: 9, at: boxes, publications: [{topic: up/a, rate: 1/s}]}
"""


@pytest.mark.parametrize(
    "line",
    ["uplink.connected.min == 9", "uplink.connected@publish == 9", "boxes.cpu < 50%"],
)
def test_bridges_and_brokers_that_are_watched_together_can_be_named(line: str) -> None:
    assert parse_scenario(f"{BRIDGED}thresholds: ['{line}']\n", "s.yaml").thresholds


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("boxes-3.cpu", "found 'boxes-3', allowed is boxes"),
        ("boxes.$SYS/bytes/sent", "found '$SYS/bytes/sent', allowed are cpu, "),
    ],
)
def test_nothing_is_asked_of_single_brokers_that_are_watched_together(
    expression: str, message: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(f"{BRIDGED}thresholds: ['{expression} < 1']\n", "s.yaml")
    (problem,) = caught.value.problems
    assert problem.message.startswith(message)
    assert problem.hint == "9 brokers boxes are watched together, without $SYS"


def test_bridges_have_no_other_figure() -> None:
    with pytest.raises(ScenarioError, match="found 'cpu', allowed are the metrics"):
        parse_scenario(f"{BRIDGED}thresholds: ['uplink.cpu < 1']\n", "s.yaml")


def test_a_bridge_and_a_population_cannot_share_a_name() -> None:
    text = BRIDGED.replace("device:", "uplink:")
    with pytest.raises(ScenarioError, match="uplink', which is also a bridge"):
        parse_scenario(text, "s.yaml")
