"""QUIC from scenario to plan: targets, brokers that the run starts, and what goes with neither."""

from __future__ import annotations

import pytest

from pubstorm.cli.describe.plan import plan_in_words
from pubstorm.contract.commands import ActiveClients
from pubstorm.contract.plan import HoldAction, MigrateClients
from pubstorm.contract.target import Target, parse_target
from pubstorm.errors import ScenarioError
from pubstorm.measure.run_log import AppliedChange, excluded_from_loss
from pubstorm.quantities import SECOND_NS
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

EARLY = BASE.replace("ca: ca.crt", "ca: ca.crt, resume: 100%, early_data: true")


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


def test_clients_over_quic_send_early_data_if_they_resume_sessions() -> None:
    (population,) = plan_of(EARLY).populations
    assert population.tls is not None and population.tls.early_data


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (EARLY.replace("resume: 100%, ", ""), "early_data without resume"),
        (EARLY.replace("quic://broker", "mqtts://broker"), "a target over TCP"),
        (EARLY.replace("quic://broker", "[quic://a, mqtts://b]"), "a target over TCP"),
    ],
)
def test_early_data_that_cannot_be_is_refused_in_words(text: str, found: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "s.yaml")
    (problem,) = caught.value.problems
    assert problem.path == "populations.device.tls.early_data"
    assert found in problem.message


def test_targets_over_tcp_and_quic_go_together() -> None:
    plan = plan_of(BASE.replace("quic://broker", "[mqtts://a, quic://b]"))
    assert [target.quic for target in plan.targets] == [False, True]


def test_a_broker_of_the_run_has_quic_when_it_is_asked_for() -> None:
    plan = plan_of(STARTED)
    assert plan.targets == (Target(host="127.0.0.1", port=0, tls=True, quic=True),)
    assert plan.populations[0].tls is not None
    scenario = parse_scenario(STARTED, "s.yaml")
    assert "embedded over QUIC" in "\n".join(plan_in_words(scenario, plan))


MIGRATION = """\
  - hold:
      for: 5s
      changes: [{at: 1s, population: device, migrate: 50%, over: 2s}]
"""
MIGRATING = BASE.replace("stages: [connect]\n", "stages:\n  - connect\n" + MIGRATION)


def test_a_share_of_a_population_changes_its_port_and_none_is_excluded_from_loss() -> None:
    plan = plan_of(MIGRATING)
    action = plan.stages[1].action
    assert isinstance(action, HoldAction)
    (change,) = action.changes
    assert change.action == MigrateClients(clients=5, over_ns=2 * SECOND_NS)
    assert change.name == "migrate 50% device"
    active = ActiveClients(plan)
    active.enter(plan.stages[0])
    assert active.fits(0, change.action)
    active.change(0, change.action)
    assert active.counts == [10] and not active.fits(0, MigrateClients(clients=11, over_ns=0))
    applied = AppliedChange(1, 0, change.name, 0, change.action)
    receiving = MIGRATING.replace("clients: 10,", "clients: 10, subscriptions: [a],")
    assert excluded_from_loss(plan_of(receiving), [applied], 1) == []


@pytest.mark.parametrize(
    ("text", "place", "found"),
    [
        (MIGRATING.replace("quic://broker", "mqtts://broker"), "migrate", "whose targets have TCP"),
        (MIGRATING.replace("quic://broker", "[quic://a, mqtts://b]"), "migrate", "have TCP"),
        (MIGRATING.replace("50%", "11"), "migrate", "allowed is up to 10"),
        (MIGRATING.replace("50%", "1%"), "migrate", "which is no client"),
        (MIGRATING.replace("migrate: 50%,", "migrate: 1, add: 1,"), "", "add and migrate"),
    ],
)
def test_migrations_that_cannot_be_are_refused_in_words(text: str, place: str, found: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "s.yaml")
    (problem,) = caught.value.problems
    assert problem.path == f"stages.1.hold.changes.0.{place}".rstrip(".")
    assert found in problem.message


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
