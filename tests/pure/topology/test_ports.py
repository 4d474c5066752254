"""Ports for brokers: apart from those of outgoing connections, and who has one that is taken."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from pubstorm import cli
from pubstorm.errors import ScenarioError, TopologyError
from pubstorm.host.sockets import free_port, is_free
from pubstorm.scenario import parse_scenario
from pubstorm.topology.broker import check_ports, fixed_ports, holder

SCENARIO = """\
topology: {{brokers: {{{brokers}}}}}
populations: {{c: {{clients: 1, subscriptions: [a]}}}}
stages: [connect]
"""


def outgoing() -> range:
    words = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    return range(int(words[0]), int(words[1]) + 1)


def test_chosen_ports_differ_and_no_outgoing_connection_takes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PUBSTORM_PORTS")
    ports = [free_port() for _ in range(500)]
    assert len(set(ports)) == 500
    if outgoing().start > 12_000:
        assert all(10_000 <= port < outgoing().start for port in ports)


def test_a_user_says_which_ports_to_choose_from(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = free_port(), free_port()
    for port in (first, second):
        monkeypatch.setenv("PUBSTORM_PORTS", f"{port}-{port}")
        assert free_port() == port
    with socket.create_server(("127.0.0.1", second)), pytest.raises(TopologyError) as caught:
        free_port()
    assert caught.value.message == f"all ports of PUBSTORM_PORTS={second}-{second} are taken"


@pytest.mark.parametrize("text", ["20000", "20-10", "0-10", "1-65536", "a-b", "1-2-3", "-"])
def test_ports_to_choose_from_that_cannot_be(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("PUBSTORM_PORTS", text)
    with pytest.raises(TopologyError) as caught:
        free_port()
    wanted = "allowed is FIRST-LAST between 1 and 65535"
    assert caught.value.message == f"PUBSTORM_PORTS: found {text!r}, {wanted}"
    assert "as in PUBSTORM_PORTS=20000-20999" in str(caught.value.hint)


def test_a_port_that_is_listened_on_is_taken_by_somebody_with_a_name() -> None:
    port = free_port()
    assert is_free(port)
    with socket.create_server(("127.0.0.1", port)):
        assert not is_free(port)
        with pytest.raises(TopologyError) as caught:
            check_ports([("broker main-0", port, "127.0.0.1")])
    assert f"port {port} of broker main-0 is taken by " in caught.value.message
    assert f"(pid {os.getpid()})" in caught.value.message
    assert "leave port out" in str(caught.value.hint)
    check_ports([("broker main-0", port, "127.0.0.1")])


def test_a_port_that_a_connection_has_is_taken_by_no_listener() -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", free_port())) as server, socket.socket() as client:
        client.bind(("127.0.0.1", port))
        client.connect(server.getsockname())
        assert not is_free(port)
        assert holder(port) == "a connection of another program"


def test_fixed_ports_count_up_from_the_first() -> None:
    brokers = "a: {kind: embedded, port: 2000, count: 3}, b: embedded"
    scenario = parse_scenario(SCENARIO.format(brokers=brokers), "s.yaml")
    wanted = [(f"broker a-{number}", 2000 + number, "127.0.0.1") for number in range(3)]
    assert list(fixed_ports(scenario.topology)) == wanted


def test_nodes_of_a_cluster_have_their_ports_on_addresses_of_their_own() -> None:
    brokers = "a: {kind: rabbitmq, port: 2000, count: 2, cluster: true}"
    scenario = parse_scenario(SCENARIO.format(brokers=brokers), "s.yaml")
    wanted = [("broker a-0", 2000, "127.0.0.1"), ("broker a-1", 2001, "127.0.0.2")]
    assert list(fixed_ports(scenario.topology)) == wanted


def test_check_names_who_has_a_port(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    path = tmp_path / "s.yaml"
    path.write_text(SCENARIO.format(brokers=f"a: {{kind: embedded, port: {port}}}"))
    assert cli.main(["check", str(path)]) == 0
    with socket.create_server(("127.0.0.1", port)):
        assert cli.main(["check", str(path)]) == 3
    assert f"error: port {port} of broker a-0 is taken by " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("brokers", "message"),
    [
        (
            "a: {kind: embedded, port: 65000, count: 600}",
            "topology.brokers.a.port: found 65000 for 600 brokers, allowed is at most 64936",
        ),
        (
            "a: {kind: embedded, port: 2000, count: 3}, b: {kind: embedded, port: 2002}",
            "topology.brokers.b.port: found port 2002 also for a, allowed is one for each",
        ),
    ],
)
def test_ports_that_cannot_be_are_problems_of_the_scenario(brokers: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(SCENARIO.format(brokers=brokers), "s.yaml")
    [problem] = caught.value.problems
    assert f"{problem.path}: {problem.message}" == message
