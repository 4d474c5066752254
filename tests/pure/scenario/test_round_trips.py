"""Requests and answers from scenario to plan, and requests that no answer can come back to."""

from __future__ import annotations

import pytest

from pubstorm.contract.plan import Plan, Responds
from pubstorm.errors import ScenarioError
from pubstorm.plan import compile_plan, planned_targets
from pubstorm.scenario import parse_scenario
from pubstorm.scenario.checks.topics import covers
from pubstorm.scenario.defaults import default_thresholds

BASE = """\
target: mqtt://broker
populations:
  device:
    clients: 10
    version: {version}
    subscriptions: ["{filter}"]
    publications:
      - {{topic: "request/{{n}}", request: true, rate: 1/s, {keys}}}
  backend:
    clients: 1
    version: 5
    subscriptions: ["request/#"]
    responds: {responds}
stages: [connect, publish: 1s]
"""
REPLY = 'response_topic: "reply/{n}"'


def text(
    *, version: str = "5", filter: str = "reply/{n}", keys: str = REPLY, responds: str = "true"
) -> str:
    return BASE.format(version=version, filter=filter, keys=keys, responds=responds)


def plan_of(source: str) -> Plan:
    scenario = parse_scenario(source, "s.yaml")
    return compile_plan(scenario, planned_targets(scenario), run_tag=1)


def problems(source: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(source, "s.yaml")
    return [f"{problem}; {problem.hint}" for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("written", "planned"),
    [
        ("true", Responds(qos=0, bytes=100)),
        ("{}", Responds(qos=0, bytes=100)),
        ("{qos: 2, size: 1kB}", Responds(qos=2, bytes=1000)),
        ("false", None),
    ],
)
def test_answers_have_a_qos_and_a_size(written: str, planned: Responds | None) -> None:
    device, backend = plan_of(text(responds=written)).populations
    assert (device.responds, backend.responds) == (None, planned)
    assert [each.request for each in device.publications] == [True]


@pytest.mark.parametrize("written", ["maybe", "1", "[]", "{rate: 3}", "{qos: 3}"])
def test_other_answers_are_refused(written: str) -> None:
    (problem,) = problems(text(responds=written))
    assert "backend.responds" in problem
    assert "s.yaml:13" in problem


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("qos: 1", "found request: true without response_topic"),
        (f"{REPLY}, correlation_data: x", "found correlation_data with request: true"),
        (f"{REPLY}, retain: true", "found retain: true with request: true"),
        ('response_topic: "reply/{1..3}"', "allowed is a topic without range and choice"),
        ('response_topic: "request/{n}"', "the topic of the requests"),
        ('response_topic: "other/{n}"', "which no subscription of the population matches"),
    ],
)
def test_a_request_without_a_way_back_is_an_error(keys: str, words: str) -> None:
    (problem,) = problems(text(keys=keys))
    assert words in problem
    assert "s.yaml:8" in problem


def test_round_trips_need_mqtt_5() -> None:
    found = problems(text(version="3.1.1"))
    assert len(found) == 2
    assert all("write version: 5 in the population" in each for each in found)
    old = text(responds="true").replace(
        'version: 5\n    subscriptions: ["request', 'subscriptions: ["request'
    )
    (problem,) = problems(old)
    assert "found responds with version 3.1.1" in problem


def test_a_population_that_subscribes_to_nothing_cannot_answer() -> None:
    (problem,) = problems(text().replace('    subscriptions: ["request/#"]\n', ""))
    assert "found responds without subscriptions" in problem


def test_requests_over_bridges_are_refused() -> None:
    bridged = text().replace(
        "target: mqtt://broker",
        """topology:
  brokers: {small: {kind: mosquitto, count: 2}, main: {kind: mosquitto}}
  bridges: {up: {from: small, to: main, topics: [{topic: "#", direction: out}]}}""",
    )
    bridged = bridged.replace("  device:\n", "  device:\n    at: main\n")
    assert any("found request: true with bridges" in each for each in problems(bridged))


@pytest.mark.parametrize(
    ("topic_filter", "topic", "matches"),
    [
        ("reply/{n}", "reply/{n}", True),
        ("reply/+", "reply/{n/10}", True),
        ("#", "a/b/{n}", True),
        ("reply/{n}/#", "reply/{n}", True),
        ("reply/{n}", "reply/{n%10}", False),
        ("reply", "reply/{n}", False),
        ("reply/{n}/+", "reply/{n}", False),
        ("$share/g/reply/{n}", "reply/{n}", False),
        ("reply/{n/10}/x", "reply/{n/10}/x", True),
    ],
)
def test_a_filter_matches_the_topic_of_each_client(
    topic_filter: str, topic: str, matches: bool
) -> None:
    assert covers(topic_filter, topic) == matches


def test_unanswered_requests_and_answers_not_sent_have_default_thresholds() -> None:
    sources = {each.source for each in default_thresholds(parse_scenario(text(), "s.yaml"))}
    assert {"unanswered == 0", "answers_dropped == 0"} <= sources
    plain = text().replace("request: true, ", "").replace("    responds: true\n", "")
    sources = {each.source for each in default_thresholds(parse_scenario(plain, "s.yaml"))}
    assert not {"unanswered == 0", "answers_dropped == 0"} & sources
