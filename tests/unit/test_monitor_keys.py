"""What a scenario may say of monitors and profiles, and which monitors come of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from pubstorm.errors import ScenarioError
from pubstorm.monitor.choice import (
    WatchedBroker,
    monitors_for,
    profile_spec,
    watched_brokers,
)
from pubstorm.plan import Plan, compile_plan
from pubstorm.result import BrokerResult
from pubstorm.scenario import Scenario, parse_scenario
from pubstorm.scenario.monitors import TOGETHER_ABOVE, Process
from pubstorm.scenario.target import Target

SECOND_NS = 10**9
HERE = Target(host="127.0.0.1", port=1883)
THERE = Target(host="broker.example", port=1883)


def scenario(**keys: Any) -> Scenario:
    device = {"clients": 1, "publications": [{"topic": "t", "rate": "1/s"}], "username": "u{n}"}
    data = {"target": "mqtt://localhost", "populations": {"device": device}, **keys}
    return parse_scenario(yaml.safe_dump(data, sort_keys=False), file="s.yaml")


def problem(**keys: Any) -> str:
    with pytest.raises(ScenarioError) as caught:
        scenario(**keys)
    return str(caught.value)


def chosen(asked: Scenario, targets: list[Target], *brokers: BrokerResult) -> list[tuple[str, str]]:
    """Class and source of each monitor."""
    compiled = compiled_for(asked, targets)
    pids = {broker.name: broker.pid for broker in brokers}
    found = monitors_for(asked, compiled, watched_brokers(brokers, targets, pids.__getitem__))
    return [(type(monitor).__name__, monitor.source) for monitor in found]


def compiled_for(asked: Scenario, targets: list[Target]) -> Plan:
    return compile_plan(asked, targets, run_tag=1)


def given(targets: Sequence[Target]) -> Sequence[WatchedBroker]:
    pids: dict[str, int] = {}
    return watched_brokers((), targets, pids.__getitem__).brokers


def started(name: str, kind: str) -> BrokerResult:
    return BrokerResult(
        name=name,
        group=name.rpartition("-")[0],
        kind=kind,
        version="1",
        host="127.0.0.1",
        port=1,
        pid=4711,
        died=False,
        speaks_sys=kind == "mosquitto",
        metrics_url="http://127.0.0.1:9/metrics" if kind in {"embedded", "rabbitmq"} else None,
    )


HOST = ("HostMonitor", "host")


def test_by_default_host_and_brokers_of_the_run_are_watched() -> None:
    kinds = {"main-0": "mosquitto", "small-0": "embedded", "other-0": "rabbitmq"}
    brokers = [started(name, kind) for name, kind in kinds.items()]
    assert chosen(scenario(), [HERE, HERE, HERE], *brokers) == [
        HOST,
        ("ProcessMonitor", "main-0"),
        ("SysTopicsMonitor", "main-0"),
        ("ProcessMonitor", "small-0"),
        ("PrometheusMonitor", "small-0"),
        ("ProcessMonitor", "other-0"),
        ("PrometheusMonitor", "other-0"),
    ]


def test_a_target_of_this_machine_is_watched_and_another_is_not() -> None:
    assert chosen(scenario(), [THERE, HERE]) == [
        HOST,
        ("ProcessMonitor", "broker-1"),
        ("SysTopicsMonitor", "broker-1"),
    ]


def test_everything_can_be_turned_off() -> None:
    asked = scenario(monitors={"host": False, "brokers": False})
    assert chosen(asked, [HERE]) == []


def test_sources_are_watched_by_their_names() -> None:
    sources = {
        "redis": {"process": {"port": 6379}},
        "node": {"prometheus": {"url": "http://127.0.0.1:9100/metrics", "include": ["node_*"]}},
        "site": {"sys": {"topics": ["site/#"], "username": "eye"}},
        "other": {"sys": {"url": "mqtt://other.example"}},
    }
    asked = scenario(monitors={"host": False, "sources": sources})
    assert chosen(asked, [THERE]) == [
        ("ProcessMonitor", "redis"),
        ("PrometheusMonitor", "node"),
        ("SysTopicsMonitor", "site"),
        ("SysTopicsMonitor", "other"),
    ]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"process": {}}, "found 'no key', allowed is one of pid, port, name"),
        ({"process": {"pid": 1, "port": 2}}, "found 'pid and port', allowed is one of"),
        ({"prometheus": {"url": "file:///etc/passwd"}}, "allowed is an address such as http://"),
        ({"sys": {"url": "http://x"}}, "monitors.sources.it.sys.url: found 'http://x'"),
        ({"process": {"pid": 1}, "sys": {}}, "allowed is one of process, sys, prometheus"),
    ],
)
def test_a_wrong_source_is_told(source: object, words: str) -> None:
    assert words in problem(monitors={"sources": {"it": source}})


@pytest.mark.parametrize("name", ["broker-0", "agent-12"])
def test_a_source_has_a_name_of_its_own(name: str) -> None:
    found = problem(monitors={"sources": {name: {"process": {"pid": 1}}}})
    assert f"monitors.sources.{name}: found the name '{name}', allowed is one that nothing" in found


def test_many_brokers_of_a_name_are_watched_together_and_without_observers() -> None:
    brokers = (
        started("cloud-0", "mosquitto"),
        *(started(f"boxes-{n}", "mosquitto") for n in range(TOGETHER_ABOVE + 1)),
        *(started(f"few-{n}", "nats") for n in range(TOGETHER_ABOVE)),
    )
    assert chosen(scenario(), [HERE] * len(brokers), *brokers) == [
        HOST,
        ("ProcessMonitor", "cloud-0"),
        ("SysTopicsMonitor", "cloud-0"),
        *(("ProcessMonitor", f"few-{n}") for n in range(TOGETHER_ABOVE)),
        ("GroupMonitor", "boxes"),
    ]


def test_the_first_publish_stage_of_the_first_broker_is_profiled() -> None:
    asked = scenario(stages=["connect", {"publish": "5s"}], profile={"for": "2s"})
    compiled = compiled_for(asked, [HERE])
    found = profile_spec(asked, compiled, given(compiled.targets))
    assert found is not None
    assert (found.broker, found.process, found.stage) == ("broker-0", Process(port=1883), 1)
    assert (found.after_ns, found.duration_ns) == (SECOND_NS, 2 * SECOND_NS)


def test_stage_and_process_of_a_profile_can_be_chosen() -> None:
    asked = scenario(
        target="mqtt://broker.example",
        stages=["connect", {"publish": "5s"}, {"hold": {"for": "5s", "name": "idle"}}],
        monitors={"sources": {"redis": {"process": {"name": "redis-server"}}}},
        profile={"stage": "idle", "broker": "redis"},
    )
    compiled = compiled_for(asked, [THERE])
    found = profile_spec(asked, compiled, given(compiled.targets))
    assert found is not None
    process = Process(name="redis-server")
    assert (found.broker, found.process, found.stage) == ("redis", process, 2)


def test_a_scenario_without_a_profile_has_none() -> None:
    asked = scenario()
    assert profile_spec(asked, compiled_for(asked, [HERE]), ()) is None


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"profile": {"stage": "later"}}, "unknown stage 'later', allowed are connect, publish"),
        ({"profile": {"broker": "x"}}, "found the unknown broker 'x', allowed are broker-0"),
        (
            {"profile": {}, "target": "mqtt://broker.example"},
            "found no broker of this machine, needed is one to profile",
        ),
        (
            {"profile": {}, "stages": ["connect", {"hold": "1s"}]},
            "found no publish stage, needed is one or a stage to profile",
        ),
    ],
)
def test_a_profile_of_nothing_is_told(keys: dict[str, Any], words: str) -> None:
    assert words in problem(**keys)
