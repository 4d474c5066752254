"""Preflight: how many engines, and what is short with its fix."""

from dataclasses import replace

import pytest

from pubstorm.errors import UsageError
from pubstorm.plan import Plan, compile_plan, planned_targets
from pubstorm.preflight import Host, agents_needed, largest_share, needs
from pubstorm.scenario import parse_scenario

HOST = Host(descriptors=20_000, system_descriptors=10**7, ports=28_000, memory_bytes=2**34, cores=4)


def plan_of(clients: int, rate: str = "1/h", targets: int = 1) -> Plan:
    text = f"""\
topology: {{brokers: {{b: {{kind: embedded, count: {targets}}}}}}}
populations: {{c: {{clients: {clients}, publications: [{{topic: t, rate: {rate}}}]}}}}
"""
    scenario = parse_scenario(text, "s.yaml")
    return compile_plan(scenario, planned_targets(scenario), run_tag=0)


@pytest.mark.parametrize(
    ("clients", "rate", "agents"),
    [
        (1, "1/s", 1),
        (19_800, "1/h", 1),
        (19_801, "1/h", 2),
        (60_000, "1/h", 4),
        (1000, "60/s", 1),
        (1000, "61/s", 2),
        (1000, "1000/s", 4),
        (1000, "max", 1),
    ],
)
def test_engines_follow_from_descriptors_and_load(clients: int, rate: str, agents: int) -> None:
    found = agents_needed(plan_of(clients, rate), descriptors=20_000, cores=4)
    assert found == agents


def test_no_engine_gets_more_clients_than_descriptors() -> None:
    for clients in (19_801, 39_601, 59_401):
        plan = plan_of(clients)
        agents = agents_needed(plan, descriptors=20_000, cores=2)
        assert largest_share(plan, agents) <= 19_800


def test_a_host_without_descriptors_is_told() -> None:
    with pytest.raises(UsageError, match="too few") as caught:
        agents_needed(plan_of(10), descriptors=200, cores=2)
    assert caught.value.hint == "ulimit -n 210"


def test_a_large_enough_host_meets_every_need() -> None:
    assert all(need.is_met for need in needs(plan_of(1000), HOST, agents=1, brokers=1))


@pytest.mark.parametrize(
    ("host", "what", "fix"),
    [
        (replace(HOST, descriptors=500), "open files of an engine", "fleet.agents=4"),
        (replace(HOST, descriptors=500), "open files of a broker", "ulimit -n 1200"),
        (replace(HOST, system_descriptors=100), "open files of the system", "fs.file-max="),
        (replace(HOST, ports=300), "ports from a source", "sources=127.0.0.1-127.0.0.5"),
        (replace(HOST, memory_bytes=10**6), "memory", "fewer clients"),
    ],
)
def test_what_is_short_comes_with_its_fix(host: Host, what: str, fix: str) -> None:
    found = needs(plan_of(1000), host, agents=1, brokers=1)
    short = [need for need in found if not need.is_met and need.what.startswith(what)]
    assert [fix in need.fix for need in short] == [True]


def test_brokers_elsewhere_need_nothing_here() -> None:
    found = needs(plan_of(1000), HOST, agents=1, brokers=0)
    assert not any("broker" in need.what for need in found)


def test_this_machine_can_be_read() -> None:
    host = Host.here()
    assert min(host.descriptors, host.ports, host.memory_bytes, host.cores) > 0
