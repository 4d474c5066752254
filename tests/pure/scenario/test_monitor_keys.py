"""Keys of a scenario for monitors and profiles, and the monitors made from them."""

from __future__ import annotations

import os
from typing import Any

import pytest
import yaml

from pubstorm.contract.plan import Plan
from pubstorm.contract.target import PublisherTarget, Target
from pubstorm.errors import ScenarioError
from pubstorm.host.members import LocalProcesses
from pubstorm.measure.monitors import MonitorError
from pubstorm.measure.monitors.choice import (
    maker_of,
    monitors_for,
    profile_spec,
    watched_brokers,
)
from pubstorm.measure.monitors.process import find
from pubstorm.measure.monitors.profiling import ProfileSpec
from pubstorm.measure.monitors.sys_topics import SysTopicsMonitor
from pubstorm.plan import compile_plan
from pubstorm.result import BrokerResult
from pubstorm.scenario import Scenario, parse_scenario
from pubstorm.scenario.monitors import MONITORABLE, TOGETHER_ABOVE, Monitorable, Process

SECOND_NS = 10**9
HERE = Target(host="127.0.0.1", port=1883)
THERE = Target(host="broker.example", port=1883)


def scenario(**keys: Any) -> Scenario:
    device = {"clients": 1, "publications": [{"topic": "t", "rate": "1/s"}], "username": "u{n}"}
    data = {"target": "mqtt://localhost", "populations": {"device": device}, **keys}
    return parse_scenario(yaml.safe_dump(data, sort_keys=False), file="s.yaml")


def chosen(asked: Scenario, targets: list[Target], *brokers: BrokerResult) -> list[tuple[str, str]]:
    """Class and source of each monitor."""
    compiled = compiled_for(asked, targets)
    pids = {broker.name: broker.pid for broker in brokers}
    found = monitors_for(asked, compiled, watched_brokers(brokers, targets, pids.__getitem__))
    return [(type(monitor).__name__, monitor.source.name) for monitor in found]


def test_a_source_with_the_name_of_a_target_is_the_broker_there() -> None:
    sources = {name: {"process": {"pid": 1}} for name in ("broker-0", "box-1")}
    asked = scenario(monitors={"host": False, "brokers": False, "sources": sources})
    there = Target(host="192.0.2.1", port=1883)
    compiled = compiled_for(asked, [there])
    found = monitors_for(asked, compiled, watched_brokers((), [there], int))
    groups = [(each.source.kind, each.source.group) for each in found]
    # A process has a monitor of its own, and one of its connections.
    assert groups == [*[("broker", "broker")] * 2, *[("process", "box-1")] * 2]


def compiled_for(asked: Scenario, targets: list[Target]) -> Plan:
    return compile_plan(asked, targets, run_tag=1)


def profiled(asked: Scenario, target: Target) -> ProfileSpec:
    compiled = compiled_for(asked, [target])
    watched = watched_brokers((), compiled.targets, dict[str, int]().__getitem__)
    found = profile_spec(asked, compiled, watched.brokers)
    assert found is not None
    return found


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


HOST = (("HostMonitor", "host"), ("ClientsMonitor", "host"))


def test_by_default_host_and_brokers_of_the_run_are_watched() -> None:
    kinds = {"main-0": "mosquitto", "small-0": "embedded", "other-0": "rabbitmq"}
    brokers = [started(name, kind) for name, kind in kinds.items()]
    assert chosen(scenario(), [HERE, HERE, HERE], *brokers) == [
        *HOST,
        ("ProcessMonitor", "main-0"),
        ("ConnectionsMonitor", "main-0"),
        ("SysTopicsMonitor", "main-0"),
        ("ProcessMonitor", "small-0"),
        ("ConnectionsMonitor", "small-0"),
        ("PrometheusMonitor", "small-0"),
        ("ProcessMonitor", "other-0"),
        ("ConnectionsMonitor", "other-0"),
        ("PrometheusMonitor", "other-0"),
    ]


def test_a_target_of_this_machine_is_watched_and_another_is_not() -> None:
    assert chosen(scenario(), [THERE, HERE]) == [
        *HOST,
        ("ProcessMonitor", "broker-1"),
        ("ConnectionsMonitor", "broker-1"),
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
        ("ConnectionsMonitor", "redis"),
        ("PrometheusMonitor", "node"),
        ("SysTopicsMonitor", "site"),
        ("SysTopicsMonitor", "other"),
    ]


@pytest.mark.parametrize("kind", MONITORABLE.values())
def test_everything_that_monitors_can_read_has_a_module_that_makes_them(
    kind: type[Monitorable],
) -> None:
    assert callable(maker_of(kind))


CLOUD = {"url": "https://broker.example:9700", "token": "t" * 16, "process": {"port": 1883}}


def test_another_host_is_watched_with_its_process() -> None:
    sources = {"cloud": {"remote": CLOUD}, "far": {"remote": {"url": "https://10.0.0.2"}}}
    asked = scenario(monitors={"host": False, "sources": sources})
    assert chosen(asked, [THERE]) == [
        ("RemoteMonitor", "cloud"),
        ("RemoteMonitor", "host-cloud"),
        ("RemoteMonitor", "host-far"),
    ]


def test_a_process_of_another_host_can_be_profiled() -> None:
    asked = scenario(
        target="mqtt://broker.example",
        monitors={"sources": {"cloud": {"remote": CLOUD}}},
        profile={},
    )
    found = profiled(asked, THERE)
    assert (found.broker, found.process) == ("cloud", Process(port=1883))


def test_a_source_can_take_the_place_of_a_target_whose_own_monitors_are_off() -> None:
    sources = {"broker-0": {"remote": CLOUD}}
    asked = scenario(monitors={"brokers": False, "host": False, "sources": sources}, profile={})
    assert {source for _, source in chosen(asked, [HERE])} == {"broker-0", "host-broker-0"}
    found = profiled(asked, HERE)
    assert (found.broker, found.process) == ("broker-0", Process(port=1883))


def test_many_brokers_of_a_name_are_watched_together_and_without_observers() -> None:
    brokers = (
        started("cloud-0", "mosquitto"),
        *(started(f"boxes-{n}", "mosquitto") for n in range(TOGETHER_ABOVE + 1)),
        *(started(f"few-{n}", "nats") for n in range(TOGETHER_ABOVE)),
    )
    assert chosen(scenario(), [HERE] * len(brokers), *brokers) == [
        *HOST,
        ("ProcessMonitor", "cloud-0"),
        ("ConnectionsMonitor", "cloud-0"),
        ("SysTopicsMonitor", "cloud-0"),
        *(
            (monitor, f"few-{n}")
            for n in range(TOGETHER_ABOVE)
            for monitor in ("ProcessMonitor", "ConnectionsMonitor")
        ),
        ("GroupMonitor", "boxes"),
    ]


def test_the_first_publish_stage_of_the_first_broker_is_profiled() -> None:
    asked = scenario(stages=["connect", {"publish": "5s"}], profile={"for": "2s"})
    found = profiled(asked, HERE)
    assert (found.broker, found.process, found.stage) == ("broker-0", Process(port=1883), 1)
    assert (found.after_ns, found.duration_ns) == (SECOND_NS, 2 * SECOND_NS)


def test_stage_and_process_of_a_profile_can_be_chosen() -> None:
    asked = scenario(
        target="mqtt://broker.example",
        stages=["connect", {"publish": "5s"}, {"hold": {"for": "5s", "name": "idle"}}],
        monitors={"sources": {"redis": {"process": {"name": "redis-server"}}}},
        profile={"stage": "idle", "broker": "redis"},
    )
    found = profiled(asked, THERE)
    process = Process(name="redis-server")
    assert (found.broker, found.process, found.stage) == ("redis", process, 2)


def test_a_broker_that_the_run_placed_on_another_host_is_not_mistaken_for_a_local_process() -> None:
    asked = scenario(profile={})
    compiled = compiled_for(asked, [THERE])
    watched = watched_brokers(
        [started("main-0", "mosquitto")],
        [THERE],
        {"main-0": os.getpid()}.__getitem__,
        processes_of=lambda _: LocalProcesses(),
    )
    found = profile_spec(asked, compiled, watched.brokers)
    assert found is not None
    with pytest.raises(MonitorError, match="main-0 runs on another host: run pubstorm monitor"):
        find(found.process)


def test_a_scenario_without_a_profile_has_none() -> None:
    asked = scenario()
    assert profile_spec(asked, compiled_for(asked, [HERE]), ()) is None


@pytest.mark.parametrize(
    ("keys", "observed"),
    [
        ({"thresholds": ["broker.$SYS/clients/connected.max < 9"]}, ["broker-0", "broker-1"]),
        ({"thresholds": ["broker-1.$SYS/uptime > 1"]}, ["broker-1"]),
        ({"table": {"clients": "broker.$SYS/clients/connected"}}, ["broker-0", "broker-1"]),
        ({"table": {"CPU": "broker.cpu"}}, []),
        (
            {
                "table": {"clients": "broker.$SYS/clients/connected"},
                "monitors": {"sources": {"topics": {"sys": {"username": "observer"}}}},
            },
            ["broker-1", "topics"],
        ),
        (
            {
                "table": {"clients": "broker.$SYS/clients/connected"},
                "monitors": {"sources": {"topics": {"sys": {"url": "mqtt://two.example:1884"}}}},
            },
            ["broker-0", "topics"],
        ),
        ({"table": {"n": "broker.$SYS/uptime"}, "monitors": {"brokers": False}}, None),
    ],
)
def test_targets_elsewhere_whose_own_counters_are_asked_for_are_observed(
    keys: dict[str, Any], observed: list[str] | None
) -> None:
    if observed is None:
        with pytest.raises(ScenarioError):
            scenario(**keys)
        return
    urls = ["mqtt://one.example", "mqtt://two.example"]
    targets = [Target(host=url.removeprefix("mqtt://"), port=1883) for url in urls]
    found = chosen(scenario(target=urls, **keys), targets)
    assert [name for kind, name in found if kind == "SysTopicsMonitor"] == observed


NAMED = {"log": "kafka://one.example", "mqtt": ["mqtt://two.example", "mqtt://three.example"]}


@pytest.mark.parametrize(
    ("source", "observed"), [("mqtt-1", "three"), ("mqtt-0", "two"), ("topics", "two")]
)
def test_a_source_of_counters_observes_the_target_of_its_name_or_the_first_for_mqtt(
    source: str, observed: str
) -> None:
    device = {"clients": 1, "at": "mqtt", "publications": [{"topic": "t", "rate": "1/s"}]}
    reader = {"clients": 1, "at": "log", "subscriptions": ["t"]}
    keys = {"populations": {"device": device, "reader": reader}, "target": NAMED}
    asked = scenario(monitors={"host": False, "sources": {source: {"sys": {}}}}, **keys)
    compiled = compiled_for(asked, list(asked.target))
    (found,) = monitors_for(asked, compiled, watched_brokers((), asked.target, int))
    assert isinstance(found, SysTopicsMonitor)
    assert found.target.host == f"{observed}.example"
    assert found.source.name == source


@pytest.mark.parametrize(
    ("expression", "is_allowed"),
    [
        ("broker.host.cpu.max < 90%", True),
        ("broker-0.host.memory_used < 1GB", True),
        ("far.host.clock_bound < 1s", False),
        ("far.host.cpu < 1", True),
        ("topics.host.cpu < 1", False),
        ("device.host.cpu < 1", False),
        ("agent.host.cpu < 1", False),
        ("host.host.cpu < 1", False),
        ("broker.host.rss < 1GB", False),
    ],
)
def test_the_host_of_what_runs_on_one_has_the_figures_of_a_host(
    expression: str, *, is_allowed: bool
) -> None:
    sources = {
        "far": {"remote": {"url": "https://broker.example:9700", "process": {"port": 1}}},
        "topics": {"sys": {"url": "mqtt://broker.example"}},
    }
    keys = {"thresholds": [expression], "monitors": {"sources": sources}}
    if is_allowed:
        assert scenario(**keys).thresholds
    else:
        with pytest.raises(ScenarioError):
            scenario(**keys)
    with pytest.raises(ScenarioError):
        scenario(**keys | {"monitors": {"sources": sources, "host": False}})


def test_a_publisher_of_zeromq_elsewhere_has_no_observer() -> None:
    asked = scenario(table={"clients": "broker.$SYS/clients/connected"})
    assert chosen(asked, [PublisherTarget(host="one.example", port=5555)]) == [*HOST]
