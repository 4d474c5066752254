"""Number of agents that play a plan on a cluster, and the needs of their hosts."""

from __future__ import annotations

import pytest

from pubstorm.contract.plan import Plan
from pubstorm.errors import FleetError
from pubstorm.host.preflight.needs import AgentHost, agents_on, cluster_needs
from pubstorm.plan import provisional_plan
from pubstorm.scenario import parse_scenario
from pubstorm.scenario.fleet import ScenarioFleet

TEXT = """\
target: mqtt://broker.example
populations:
  device:
    clients: 100k
    publications: [{topic: "data/{n}", rate: 1/s}]
stages: [connect: {rate: 1000/s}, publish: 10s]
"""


def plan_of(*overrides: str) -> Plan:
    return provisional_plan(parse_scenario(TEXT, "s.yaml", overrides))


def hosts(*cores: int, descriptors: int = 50_000, memory_bytes: int = 2**34) -> list[AgentHost]:
    return [
        AgentHost(f"10.0.0.{n}", "x86_64", each, descriptors, memory_bytes)
        for n, each in enumerate(cores, 1)
    ]


def fleet(**values: object) -> ScenarioFleet:
    return ScenarioFleet.model_validate({"on": "ray", **values})


@pytest.mark.parametrize(
    ("cores", "asked", "agents"),
    [
        ((4, 4, 4), {}, 3),
        ((4, 4, 4), {"agents": 2}, 2),
        ((4, 4, 4), {"spread": "pack"}, 3),
        ((1, 1), {"spread": "pack"}, 2),
        ((4, 4, 4), {"spread": "pack", "agents": 12}, 12),
    ],
)
def test_strict_is_one_on_each_host_and_pack_what_the_plan_asks_for(
    cores: tuple[int, ...], asked: dict[str, object], agents: int
) -> None:
    assert agents_on(hosts(*cores), plan_of(), fleet(**asked)) == agents


def test_packed_engines_are_as_many_as_the_load_needs() -> None:
    idle = plan_of("populations.device.clients=10")
    assert agents_on(hosts(8, 8), idle, fleet(spread="pack")) == 1
    busy = plan_of("populations.device.publications.0.rate=5/s")
    assert agents_on(hosts(8, 8), busy, fleet(spread="pack")) == 9


@pytest.mark.parametrize(
    ("asked", "text", "hint"),
    [
        (
            {"agents": 4},
            "found fleet.agents 4 with spread strict, allowed are 2: the hosts of "
            "10.0.0.1 (2 cores), 10.0.0.2 (1 cores)",
            "add hosts to the cluster, or write fleet.spread: pack",
        ),
        (
            {"agents": 4, "spread": "pack"},
            "found fleet.agents 4 with spread pack, allowed are 3: the processors of "
            "10.0.0.1 (2 cores), 10.0.0.2 (1 cores)",
            "add hosts to the cluster, or leave fleet.agents out",
        ),
    ],
)
def test_more_than_there_is_room_for_are_refused(
    asked: dict[str, object], text: str, hint: str
) -> None:
    with pytest.raises(FleetError) as caught:
        agents_on(hosts(2, 1), plan_of(), fleet(**asked))
    assert (caught.value.message, caught.value.hint) == (text, hint)


def test_a_cluster_without_hosts_is_an_error() -> None:
    with pytest.raises(FleetError, match="found no host for agents"):
        agents_on([], plan_of(), fleet())


def test_each_host_is_asked_for_what_its_engines_need() -> None:
    there = hosts(4, 4, descriptors=20_000)
    found = cluster_needs(plan_of(), there, {"10.0.0.1": 2, "10.0.0.2": 1}, {0})
    assert set(found) == {"10.0.0.1", "10.0.0.2"}
    files, memory = found["10.0.0.1"]
    assert (files.needed, files.is_met) == (33_334 + 200, False)
    assert files.fix == "ulimit -n 33534, or 6 agents: as many hosts, or --set fleet.spread=pack"
    assert memory.is_met
    assert memory.needed > found["10.0.0.2"][1].needed


def test_hosts_without_engines_need_nothing() -> None:
    small = hosts(4, 4, memory_bytes=2**20)
    found = cluster_needs(plan_of(), small, {"10.0.0.2": 1}, {0})
    assert set(found) == {"10.0.0.2"}
    assert not found["10.0.0.2"][1].is_met
