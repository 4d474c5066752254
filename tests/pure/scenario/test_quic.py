"""QUIC from scenario to plan: targets, brokers that the run starts, and what goes with neither."""

from __future__ import annotations

import pytest

from pubstorm.cli.describe.plan import plan_in_words
from pubstorm.contract.target import Target, parse_target
from pubstorm.errors import ScenarioError
from pubstorm.scenario import parse_scenario
from tests.pure.scenario.bases import plan_of

BASE = """\
target: quic://broker
populations:
  device: {clients: 10, tls: {ca: ca.crt}}
stages: [connect]
"""
STARTED = """\
topology: {brokers: {main: {kind: embedded, transport: quic}}}
populations:
  device: {clients: 10}
stages: [connect]
"""


@pytest.mark.parametrize(
    ("text", "target", "shown"),
    [
        ("quic://b", Target(host="b", port=14567, tls=True, quic=True), "quic://b:14567"),
        ("quic://[::1]:9/", Target(host="::1", port=9, tls=True, quic=True), "quic://[::1]:9"),
    ],
)
def test_quic_has_a_scheme_and_a_port(text: str, target: Target, shown: str) -> None:
    assert parse_target(text) == target
    assert str(target) == shown
    assert parse_target(shown) == target


def test_quic_has_the_tls_of_populations() -> None:
    (population,) = plan_of(BASE).populations
    assert population.tls is not None and population.tls.ca is not None


@pytest.mark.parametrize(
    "text",
    [
        BASE.replace("ca: ca.crt", "ca: ca.crt, resume: 50%"),
        STARTED.replace("clients: 10", "clients: 10, tls: {resume: 50%}"),
    ],
)
def test_clients_over_quic_resume_sessions(text: str) -> None:
    (population,) = plan_of(text).populations
    assert population.tls is not None and population.tls.resume == 0.5


def test_targets_over_tcp_and_quic_go_together() -> None:
    plan = plan_of(BASE.replace("quic://broker", "[mqtts://a, quic://b]"))
    assert [target.quic for target in plan.targets] == [False, True]


def test_a_broker_of_the_run_has_quic_when_it_is_asked_for() -> None:
    plan = plan_of(STARTED)
    assert plan.targets == (Target(host="127.0.0.1", port=0, tls=True, quic=True),)
    assert plan.populations[0].tls is not None
    scenario = parse_scenario(STARTED, "s.yaml")
    assert "embedded over QUIC" in "\n".join(plan_in_words(scenario, plan))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (BASE.replace("ca: ca.crt", "psk: {file: keys.txt}"), "populations.device.tls.psk"),
        (BASE.replace("ca: ca.crt", "ciphers: HIGH"), "populations.device.tls.ciphers"),
        (BASE.replace("ca: ca.crt", 'max_version: "1.2"'), "populations.device.tls.max_version"),
        (BASE.replace("ca: ca.crt", "alpn: [mqtt]"), "populations.device.tls.alpn"),
        (BASE.replace("ca: ca.crt", "key_log: keys.txt"), "populations.device.tls.key_log"),
        (BASE.replace("tls: {ca: ca.crt}", "link: {delay: 5ms}"), "populations.device.link"),
        (
            BASE.replace("tls: {ca: ca.crt}", "proxy_protocol: v2"),
            "populations.device.proxy_protocol",
        ),
        (STARTED.replace("embedded", "mosquitto"), "topology.brokers.main.transport"),
        (BASE.replace("quic://broker", "quic://broker/mqtt"), "target"),
    ],
)
def test_what_quic_does_not_have_is_refused_where_it_is_written(text: str, place: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "s.yaml")
    assert [problem.path for problem in caught.value.problems] == [place]
