"""Hosts and addresses of publishers and real subscribers of ZeroMQ."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from pubstorm.contract.target import Target
from pubstorm.fleet.provision import Placement
from pubstorm.host.machine import LocalMachine, Machine, OneHost
from pubstorm.plan import planned_targets
from pubstorm.scenario import Scenario, parse_scenario

TEXT = """\
fleet: {on: ray}
populations:
  feed:
    clients: 3
    hosts: pub
    publisher: {kind: libzmq, port: 7000}
    publications: [{topic: "", size: 32B, rate: 10/s}]
  python:
    clients: 1
    publisher: pyzmq
    publications: [{topic: "", size: 32B, rate: 10/s}]
  real: {clients: 9, at: feed, subscriber: libzmq, hosts: load, subscriptions: [""]}
  simulated: {clients: 9, at: python, subscriptions: [""]}
stages: [connect: {}, publish: 1s]
"""


class There(LocalMachine):
    """A machine that always has one free port."""

    async def free_port(self, address: str = "") -> int:
        return len(address or self.address)


class ThreeHosts(OneHost):
    """The controller's host, and two of any label."""

    are_here = False

    def __init__(self) -> None:
        self.wanted: list[Mapping[str, int]] = []

    async def open(self, wanted: Mapping[str, int]) -> None:
        self.wanted.append(dict(wanted))

    def machine(self, label: str | None, number: int) -> Machine:
        return There("10.0.0.1" if label is None else f"{label}-{number % 2}")


def targets_of(scenario: Scenario, hosts: OneHost) -> Sequence[Target]:
    async def found() -> Sequence[Target]:
        placement = Placement(scenario, hosts)
        await placement.open()
        return await placement.targets(planned_targets(scenario)[len(scenario.target) :])

    return asyncio.run(found())


def test_publishers_listen_on_the_hosts_of_their_label_in_turn() -> None:
    hosts = ThreeHosts()
    found = targets_of(parse_scenario(TEXT, "s.yaml", ()), hosts)
    assert list(map(str, found)) == ["pub-0:7000", "pub-1:7001", "pub-0:7002", "10.0.0.1:8"]
    assert hosts.wanted == [{"pub": 3, "load": 1}]


def test_on_one_host_labels_choose_nothing() -> None:
    found = targets_of(parse_scenario(TEXT, "s.yaml", ("fleet.on=local",)), OneHost())
    assert {target.host for target in found} == {"127.0.0.1"}
    assert [target.port for target in found[:3]] == [7000, 7001, 7002]
    assert found[3].port > 0


def test_a_scenario_without_programs_needs_no_hosts() -> None:
    text = "target: mqtt://h\npopulations: {device: {clients: 1}}\nstages: [connect: {}]\n"
    hosts = ThreeHosts()
    assert targets_of(parse_scenario(text, "s.yaml", ()), hosts) == []
    assert hosts.wanted == []
