"""Preflight: how many engines, what is short with its fix, and memory for the steps of a series."""

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pubstorm.contract.plan import Plan
from pubstorm.errors import UsageError
from pubstorm.experiment.player import unfit_here
from pubstorm.host.preflight import (
    Fix,
    HostLimits,
    Need,
    agents_needed,
    broker_host_needs,
    largest_share,
    needs,
)
from pubstorm.host.preflight.need import Kinds, amount_text, script
from pubstorm.plan import provisional_plan
from pubstorm.scenario import parse_scenario
from pubstorm.scenario.sizes import UNLIMITED
from pubstorm.topology.adapters import appetite_of, broker_kinds
from tests.kit import golden

HOST = HostLimits(
    descriptors=20_000, system_descriptors=10**7, ports=28_000, memory_bytes=2**34, cores=4
)
FAR = "mqtt://broker.example"
ONE: Kinds = {appetite_of("embedded"): 1}


def plan_of(clients: int, rate: str = "1/h", targets: int = 1, *, more: str = "") -> Plan:
    where = f"topology: {{brokers: {{b: {{kind: embedded, count: {targets}}}}}}}"
    if "target:" in more:
        where = ""
    text = f"""\
{where}
populations: {{c: {{clients: {clients}, publications: [{{topic: t, rate: {rate}}}]}}}}
{more}
"""
    return provisional_plan(parse_scenario(text, "s.yaml"))


def memory(plan: Plan, host: HostLimits, brokers: Kinds, *, agents: int = 1) -> Need:
    found = needs(plan, host, agents=agents, brokers=brokers)
    return next(need for need in found if need.what == "memory, about")


def short(plan: Plan, host: HostLimits, *, brokers: Kinds = ONE) -> dict[str, Need]:
    found = needs(plan, host, agents=1, brokers=brokers)
    return {need.what: need for need in found if not need.is_met}


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


def test_requests_of_flapping_clients_are_load() -> None:
    text = """\
target: mqtt://b
populations:
  c: {clients: 1000, subscriptions: [t], flapping: {from: TIME, to: TIME, unsubscribed: TIME}}
stages: [connect, hold: 1s]
"""

    def agents(time: str) -> int:
        plan = provisional_plan(parse_scenario(text.replace("TIME", time), "s.yaml"))
        return agents_needed(plan, descriptors=20_000, cores=4)

    # One request of each client in this time; an agent carries 60,000 a second.
    assert (agents("20ms"), agents("10ms")) == (1, 2)


def test_no_engine_gets_more_clients_than_descriptors() -> None:
    for clients in (19_801, 39_601, 59_401):
        plan = plan_of(clients)
        agents = agents_needed(plan, descriptors=20_000, cores=2)
        assert largest_share(plan, agents) <= 19_800


def test_a_host_without_descriptors_is_reported() -> None:
    with pytest.raises(UsageError, match="too few") as caught:
        agents_needed(plan_of(10), descriptors=200, cores=2)
    assert caught.value.hint == "ulimit -n 210"


def test_a_large_enough_host_meets_every_need() -> None:
    assert short(plan_of(1000), HOST) == {}


SHORTAGES: tuple[dict[str, Any], ...] = (
    {"descriptors": 500},
    {"descriptors": 500, "nr_open": 500},
    {"system_descriptors": 100},
    {"listen_ports": 0},
    {"user_threads": 100, "user_threads_used": 95},
    {"system_threads": 600, "system_threads_used": 595},
    {"process_ids": 600, "system_threads_used": 595},
    {"group_threads": 20, "group_threads_used": 19},
    {"ports": 300},
    {"memory_bytes": 10**6},
    {"socket_memory_bytes": 10**5},
    {"tracked_connections": 1500},
    {"accept_backlog": 64},
    {"syn_backlog": 64},
)


def test_what_is_short_comes_with_its_fix() -> None:
    """The golden file has each host that is short of something, with every fix."""
    plan, lines = plan_of(1000), []
    for less in SHORTAGES:
        lines.append(", ".join(f"{name} {value}" for name, value in less.items()))
        found = short(plan, replace(HOST, **less)).values()
        lines += [f"  {need.what}: {need.fix}" for need in found]
    golden.agree(Path(__file__).with_name("shortages.golden"), "\n".join([*lines, ""]))


BRIDGED = """\
topology:
  brokers: {cloud: {kind: mosquitto}, boxes: {kind: mosquitto, count: 1000}}
  bridges: {up: {from: boxes, to: cloud, topics: [{topic: a/#, direction: out}]}}
populations: {c: {clients: 500, at: boxes, subscriptions: [a]}, d: {clients: 7, at: cloud}}
stages: [connect]
"""


def test_bridges_are_connections_of_the_main_broker() -> None:
    scenario = parse_scenario(BRIDGED, "s.yaml")
    plan = provisional_plan(scenario)
    brokers = broker_kinds(scenario.topology)
    assert brokers == {appetite_of("mosquitto"): 1001}
    found = {n.what: n.needed for n in needs(plan, HOST, agents=1, brokers=brokers)}
    assert found["open files of a broker"] == 1000 + 7 + 200
    assert found["open files of Pubstorm itself"] == 1001 + 3 + 200
    assert found["ports for brokers to listen on"] == 1001
    assert found["processes and threads of the system"] == 1001 + 3
    # Of each broker what it takes by itself, and of each connection what a broker has of it.
    assert found["memory, about"] > 1001 * 2 * 2**20 + 1507 * (1_200 + 2 * 4_100)
    few = replace(HOST, has_setpriv=False)
    [short] = [n for n in needs(plan, few, agents=1, brokers=brokers) if not n.is_met]
    assert "apt-get install util-linux" in short.fix
    few = replace(HOST, memory_bytes=2**30)
    [short] = [n for n in needs(plan, few, agents=1, brokers=brokers) if not n.is_met]
    assert "start fewer brokers" in short.fix


def test_brokers_elsewhere_need_nothing_here() -> None:
    found = needs(plan_of(1000, more=f"target: {FAR}"), HOST, agents=1, brokers={})
    assert not any("broker" in need.what or "accepted" in need.what for need in found)


def test_the_host_of_a_broker_elsewhere_gets_advice() -> None:
    found = broker_host_needs(plan_of(3000, more=f"target: {FAR}"))
    assert all(need.is_met for need in found)
    assert [(need.needed, need.fix) for need in found[:3]] == [
        (3200, "ulimit -n 3200"),
        (120_000_000, ""),
        (100, "sysctl -w net.core.somaxconn=128"),
    ]


def test_connection_tracking_counts_only_where_it_is_loaded() -> None:
    found = needs(plan_of(1000), HOST, agents=1, brokers=ONE)
    assert not any("packet filter" in need.what for need in found)


@pytest.mark.parametrize(
    ("connect", "burst"), [("parallelism: 70", 70), ("rate: 2000/s", 200), ("rate: 99000/s", 1000)]
)
def test_the_backlog_follows_from_how_clients_connect(connect: str, burst: int) -> None:
    plan = plan_of(1000, more=f"stages: [connect: {{{connect}}}]")
    assert short(plan, replace(HOST, accept_backlog=0))[
        "connections waiting to be accepted"
    ].needed == (burst)


def test_addresses_of_other_machines_are_named() -> None:
    plan = plan_of(10, more="sources: [127.0.0.9, 10.1.2.3, 10.1.2.4, 10.1.2.5]")
    host = replace(HOST, addresses=frozenset({"10.1.2.4"}), interface="ens3")
    need = short(plan, host)["source addresses of this host"]
    assert (need.needed, need.available) == (4, 2)
    assert need.fix.startswith(
        "for address in 10.1.2.3 10.1.2.5; do ip address replace $address dev ens3; done"
    )


def test_beyond_half_of_the_ports_connecting_gets_slow() -> None:
    plan = plan_of(15_000, more="sources: [127.0.0.1]")
    found = needs(plan, HOST, agents=1, brokers=ONE)
    ports = next(need for need in found if need.what.startswith("ports"))
    assert ports.is_met
    assert ports.hint.startswith("connecting gets slow beyond 14,000 ports")


def test_tls_takes_more_memory() -> None:
    plain = plan_of(1000, more=f"target: {FAR}")
    secured = plain.model_copy(
        update={"targets": (plain.targets[0].model_copy(update={"tls": True}),)}
    )
    taken = memory(secured, HOST, {}).needed - memory(plain, HOST, {}).needed
    assert taken == 1000 * HOST.costs.tls_client.value


def test_a_million_clients_fit_where_there_is_memory_for_both_ends() -> None:
    plan = plan_of(1_000_000, rate="1/h", targets=51)
    host = replace(HOST, memory_bytes=13 * 10**9, socket_memory_bytes=10**9)
    kinds = ("mosquitto", "embedded", "rabbitmq")
    mosquitto, embedded, rabbitmq = (
        memory(plan, host, {appetite_of(kind): 51}, agents=51) for kind in kinds
    )
    assert mosquitto.is_met
    # Measured with 200 000: 9.75 kB for each, by the kernel, mosquitto and the agents.
    assert mosquitto.needed == pytest.approx(9.75e9, rel=0.05)
    assert embedded.needed > 28 * 10**9
    assert rabbitmq.needed > 44 * 10**9
    twice = plan_of(2_000_000, rate="1/h", targets=102)
    needed = memory(twice, host, {appetite_of("mosquitto"): 102}, agents=102).needed
    assert needed == pytest.approx(2 * 9.75e9, rel=0.05)


@pytest.mark.parametrize(
    ("publication", "ends"),
    [("interval: 100s", 2 * 2000), ("interval: 100s, phase: aligned", 200_000)],
)
def test_sockets_hold_what_is_under_way(publication: str, ends: int) -> None:
    text = f"""\
topology: {{brokers: {{b: embedded}}}}
populations: {{c: {{clients: 100k, subscriptions: ["t/{{n}}"], publications: [
  {{topic: "t/{{n}}", {publication}}}]}}}}
stages: [connect: {{parallelism: 1}}, publish: 1s]
"""
    plan = provisional_plan(parse_scenario(text, "s.yaml"))
    found = {need.what: need.needed for need in needs(plan, HOST, agents=6, brokers=ONE)}
    assert found["memory of TCP sockets, about"] == pytest.approx(ends * 4096, rel=0.01)


@pytest.mark.parametrize(
    ("size", "publication", "messages"),
    [
        ("90MB", "rate: 1/min", 2),
        ("90MB", "rate: max", 20),
        ("10kB", "rate: max", 0),
        ("90MB", "rate: 2/s", 20),
        ("90MB", "rate: 6/min, phase: aligned", 20),
    ],
)
def test_large_messages_take_memory_with_sender_and_receiver(
    size: str, publication: str, messages: int
) -> None:
    def needed(size: str) -> float:
        text = f"""\
target: {FAR}
max_packet: 100MB
populations: {{c: {{clients: 10, subscriptions: ["t/{{n}}"], publications: [
  {{topic: "t/{{n}}", size: {size}, {publication}}}]}}}}
"""
        return memory(provisional_plan(parse_scenario(text, "s.yaml")), HOST, {}).needed

    assert needed(size) - needed("1kB") == pytest.approx(messages * 90e6, abs=1e6)


def test_memory_without_a_limit_is_unlimited() -> None:
    assert amount_text(12 << 20, "bytes") == "12 MiB"
    assert {amount_text(UNLIMITED, unit) for unit in ("bytes", "")} == {"unlimited"}


def test_this_machine_can_be_read() -> None:
    host = HostLimits.here()
    assert min(host.descriptors, host.ports, host.memory_bytes, host.cores) > 0
    assert min(host.system_threads, host.process_ids, host.accept_backlog) > 0
    assert host.user_threads_used > 0 or host.user_threads == UNLIMITED
    assert "127.0.0.1" in host.addresses


def test_the_script_has_each_setting_once_with_its_largest_value() -> None:
    found = [
        Need("files of a", 5000, 10, "files", Fix("ulimit", "n", 5000), "fewer clients"),
        Need("files of b", 9000, 10, "files", Fix("ulimit", "n", 9000)),
        Need("files that may be", 9000, 10, "files", Fix("sysctl", "fs.nr_open", 16384)),
        Need("memory", 9, 1, "bytes", otherwise="more memory"),
        Need("ports", 1, 5, "ports", Fix("sysctl", "not.short", 5)),
    ]
    assert (
        script("many", found)
        == """\
#!/bin/bash
# Shortages of this host for the scenario many, as `pubstorm check` found them.
# Pubstorm runs none of it. Read it, then source it in the shell that is to start the
# run (`. FILE`), or run single lines. It may be sourced again.

# files that may be: 9000 needed, 10 there
# Needs root. Holds until the next boot; a line in /etc/sysctl.d/ keeps it.
sysctl -w fs.nr_open=16384

# files of a: 5000 needed, 10 there
# files of b: 9000 needed, 10 there
# Holds for this shell and what it starts. Above the hard limit it needs root.
ulimit -n 9000

# Not for the shell:
# - files of a: fewer clients
# - memory: more memory
"""
    )


def test_the_script_of_everything_short_is_one_that_the_shell_understands() -> None:
    none: dict[str, Any] = {name: 0 for less in SHORTAGES for name in less}
    nothing = replace(HOST, **{**none, "descriptors": 200, "ports": 1})
    plan = plan_of(1000, more="sources: [10.1.2.3]")
    found = needs(plan, nothing, agents=1, brokers=ONE)
    assert not any(need.is_met for need in found)
    text = script("all", found)
    checked = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=True)
    assert checked.stderr == ""
    assert text.index("fs.nr_open") < text.index("ulimit -n")


def test_nothing_short_makes_a_script_without_commands() -> None:
    assert "# Nothing is short." in script("fine", needs(plan_of(1), HOST, agents=1, brokers=ONE))


MILLION = """\
topology: {brokers: {b: {kind: mosquitto, count: 51}}}
populations: {c: {clients: 1M, publications: [{topic: t, rate: 1/h}]}}
"""


def test_a_step_that_needs_more_memory_than_there_is_says_so() -> None:
    scenario, host = (
        parse_scenario(MILLION, "s.yaml"),
        replace(HostLimits.here(), descriptors=20_000),
    )
    assert unfit_here(scenario, replace(host, memory_bytes=20 * 10**9)) is None
    words = unfit_here(scenario, replace(host, memory_bytes=8 * 10**9))
    assert words == "it needs about 9.79 GB of memory, 8.00 GB are available"
