"""Addresses of targets and clients on their way from a scenario to a plan."""

from __future__ import annotations

import click
import pytest

from pubstorm.cli.options import TARGET
from pubstorm.contract.capabilities import SCHEMES, UNDER_TLS, AddressScheme
from pubstorm.contract.target import parse_target
from pubstorm.plan import compile_plan
from pubstorm.quantities import UnfitError
from pubstorm.scenario import Scenario, parse_scenario

TEXT = """\
target: mqtt://broker.example
{more}
populations: {{device: {{clients: 1{own}}}}}
stages: [connect]
"""


def read(more: str = "", own: str = "") -> Scenario:
    return parse_scenario(TEXT.format(more=more, own=own), "s.yaml")


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("mqtt://[fe80::1%25eth0]:1884", "fe80::1%eth0"),
        ("mqtts://[fe80::1%252]:8883", "fe80::1%2"),
        ("ws://[fe80::a%25br-lan.7]:80/mqtt", "fe80::a%br-lan.7"),
        ("nats://[fe80::1%25eth0]:4222", "fe80::1%eth0"),
        ("mqtt://[2001:db8::1]:1883", "2001:db8::1"),
    ],
)
def test_an_address_with_its_zone_is_written_as_it_was_read(text: str, host: str) -> None:
    target = parse_target(text)
    assert target.host == host
    assert (target.ip_version, target.is_loopback) == (6, False)
    shown = str(target)
    assert parse_target(shown if "://" in shown else f"mqtt://{shown}") == target


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", None),
        ("addresses: random", ("random", True)),
        ("addresses: {use: first}", ("first", True)),
        ("addresses: {failover: false}", ("in_turn", False)),
    ],
)
def test_one_word_uses_all_addresses_of_a_name(
    more: str, expected: tuple[str, bool] | None
) -> None:
    scenario = read(more)
    use = compile_plan(scenario, scenario.target, run_tag=1).addresses
    assert (None if use is None else (use.use, use.failover)) == expected


def test_given_addresses_are_those_of_the_target_and_of_observers() -> None:
    scenario = read("addresses: {names: {broker.example: [127.0.0.2, '0:0::1']}}")
    (target,) = compile_plan(scenario, scenario.target, run_tag=1).targets
    assert target.addresses == ("127.0.0.2", "::1")
    assert (str(target), target.reachable_at) == ("broker.example:1883", "127.0.0.2")
    assert scenario.target[0].reachable_at == "broker.example"


@pytest.mark.parametrize(
    ("sources", "first", "count"),
    [
        ("10.0.0.0/8", "10.0.0.1", 2**24 - 2),
        ("192.0.2.0/30", "192.0.2.1", 2),
        ("192.0.2.4/31", "192.0.2.4", 2),
        ("192.0.2.7", "192.0.2.7", 1),
        ("2001:db8::/64", "2001:db8::1", 2**32 - 1),
        ("2001:db8::/126", "2001:db8::1", 3),
        (None, "198.18.0.1", 131_070),
    ],
)
def test_clients_have_the_addresses_that_hosts_of_a_network_can_have(
    sources: str | None, first: str, count: int
) -> None:
    own = "version: v2" if sources is None else f"version: v2, sources: '{sources}'"
    scenario = read(own=f", proxy_protocol: {{{own}}}")
    header = compile_plan(scenario, scenario.target, run_tag=1).populations[0].proxy_protocol
    assert header is not None
    assert (header.version, header.first, header.count) == ("v2", first, count)


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("mqtt://other.example", []),
        ("mqtt://broker.example:1884", ["broker.example"]),
        ("mqtt://other.example mqtts://broker.example", ["broker.example"]),
    ],
)
def test_another_target_leaves_out_the_addresses_of_other_names(
    target: str, names: list[str]
) -> None:
    text = TEXT.format(more="addresses: {names: {broker.example: 127.0.0.2}}", own="")
    addresses = parse_scenario(text, "s.yaml", target=target).addresses
    assert addresses is not None and [*addresses.names] == names


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_each_scheme_is_read_and_stands_in_help_and_reference(scheme: AddressScheme) -> None:
    for name in scheme.names:
        target = parse_target(f"{name}://h:7")
        assert (target.host, target.port, target.can) == ("h", 7, scheme.can)
        assert target.tls == (name in UNDER_TLS) or target.quic
    (option,) = click.command()(TARGET(lambda: None)).params
    assert isinstance(option, click.Option) and scheme.form in str(option.help)
    schema = Scenario.model_json_schema()
    assert f"`{scheme.form}`" in schema["properties"]["target"]["description"]
    with pytest.raises(UnfitError) as caught:
        parse_target("carrier-pigeon://h")
    assert scheme.form in str(caught.value) and scheme.in_words in str(caught.value.hint)
