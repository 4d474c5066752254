"""Networks of bridges: keys of a scenario, commands for the kernel, and needs."""

from ipaddress import IPv4Network
from typing import Any

import pytest

from pubstorm.cli.describe.plan import plan_in_words
from pubstorm.errors import TopologyError
from pubstorm.host.preflight.host import NetworkHost, network_needs
from pubstorm.plan import provisional_plan
from pubstorm.scenario import parse_scenario
from pubstorm.scenario.topology import ScenarioNetwork
from pubstorm.topology.bridges.network import (
    RANGE,
    discipline,
    free_block,
    outer_ends,
    remove_namespace,
)
from tests.pure.scenario.bases import NETWORKED


def test_a_network_is_read_into_plain_numbers() -> None:
    network = parse_scenario(NETWORKED, "s.yaml").topology.bridges["uplink"].network
    assert network == ScenarioNetwork.model_validate(
        {"delay": "50ms", "jitter": "5000us", "loss": 0.01, "rate": "8Mbit/s"}
    )
    assert network is not None
    assert network.rate == 8_000_000


def test_a_check_describes_links_and_when_they_are_unplugged() -> None:
    scenario = parse_scenario(NETWORKED, "s.yaml")
    words = "\n".join(plan_in_words(scenario, provisional_plan(scenario)))
    link = "in each direction: delay 50ms ± 5ms, loss 1%, 8Mbit/s for all"
    assert f"through a network of their own, {link}" in words
    assert "at 2s: cut uplink (every packet of all of them is lost), repaired after 1s" in words


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, ""),
        ({"rate": "1MB/s"}, "tbf rate 8000000bit burst 10000 limit 250000"),
        ({"rate": "8kbit/s"}, "tbf rate 8000bit burst 3028 limit 64000"),
        ({"delay": "50ms"}, "netem delay 50000us 0us limit 100000"),
        ({"loss": "0.5%"}, "netem delay 0us 0us loss 0.5% limit 100000"),
        (
            {"delay": "100ms", "jitter": "10ms", "rate": "8Mbit/s"},
            "netem delay 100000us 10000us rate 8000000bit limit 5625",
        ),
    ],
)
def test_the_kernel_gets_the_properties_of_a_link(spec: dict[str, Any], words: str) -> None:
    assert " ".join(discipline(ScenarioNetwork.model_validate(spec))) == words


def test_runs_get_unused_addresses() -> None:
    lower, upper = RANGE.subnets()
    assert free_block([lower]).subnet_of(upper)
    blocks = {free_block([IPv4Network("10.0.0.0/8")]) for _ in range(20)}
    assert len(blocks) > 1
    assert all(block.subnet_of(RANGE) for block in blocks)


def test_a_range_that_is_taken_as_a_whole_is_an_error() -> None:
    with pytest.raises(TopologyError) as caught:
        free_block([IPv4Network("198.0.0.0/8")])
    assert caught.value.exit_code == 2


def test_interfaces_have_names_that_the_kernel_takes() -> None:
    assert all(len(name) <= 15 for name in outer_ends("0123abcd"))


@pytest.mark.parametrize("name", ["lab", "pubstorm-xyz-uplink", "pubstorm-01234567-../x", ""])
def test_only_networks_of_runs_are_removed(name: str) -> None:
    with pytest.raises(TopologyError):
        remove_namespace(name)


def test_a_network_that_is_not_there_is_removed() -> None:
    assert not remove_namespace("pubstorm-01234567-uplink")


def test_each_lack_of_a_host_has_its_fix() -> None:
    networks = [
        ScenarioNetwork.model_validate({"delay": "1ms"}),
        ScenarioNetwork.model_validate({"rate": "1MB/s"}),
    ]
    able = NetworkHost(True, frozenset({"ip", "tc"}), True, frozenset({"netem", "tbf"}))
    assert all(need.is_met for need in network_needs(networks, able))
    unable = NetworkHost(False, frozenset({"ip"}), False, frozenset())
    short = network_needs(networks, unable)
    assert [need.what for need in short if not need.is_met and need.fix] == [
        "root, for networks of bridges",
        "programs of iproute2 (ip, tc)",
        "network namespaces",
        "netem, for the properties of links",
        "tbf, for the properties of links",
    ]


def test_what_only_root_can_find_out_is_not_short() -> None:
    host = NetworkHost(False, frozenset({"ip", "tc"}), None, None)
    networks = [ScenarioNetwork.model_validate({"loss": "1%"})]
    assert [n.what for n in network_needs(networks, host) if not n.is_met] == [
        "root, for networks of bridges"
    ]


def test_a_network_without_properties_needs_no_discipline() -> None:
    host = NetworkHost(True, frozenset({"ip", "tc"}), True, frozenset())
    assert all(need.is_met for need in network_needs([ScenarioNetwork()], host))
