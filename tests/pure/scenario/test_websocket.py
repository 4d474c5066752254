"""WebSocket from scenario to plan: targets, headers, brokers that the run starts."""

from __future__ import annotations

import pytest

from pubstorm.cli.describe.plan import plan_in_words
from pubstorm.contract.plan import Header, Plan
from pubstorm.contract.target import Target, parse_target
from pubstorm.errors import ScenarioError
from pubstorm.plan import compile_plan, planned_targets
from pubstorm.scenario import parse_scenario
from pubstorm.scenario.secrets import redacted_text

BASE = """\
target: wss://broker/mqtt
populations:
  device:
    clients: 10
    headers: {Authorization: "Bearer {n}"}
stages: [connect]
"""
OURS = """\
topology: {brokers: {main: {kind: mosquitto, transport: websocket, tls: server}}}
populations: {device: {clients: 10}}
stages: [connect]
"""


def plan_of(text: str) -> Plan:
    scenario = parse_scenario(text, "s.yaml")
    return compile_plan(scenario, planned_targets(scenario), run_tag=1)


def problems(text: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "s.yaml")
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "target", "shown"),
    [
        ("ws://b", Target(host="b", port=80, websocket="/"), "ws://b:80/"),
        ("ws://b:1/", Target(host="b", port=1, websocket="/"), "ws://b:1/"),
        ("ws://b?a=b", Target(host="b", port=80, websocket="/?a=b"), "ws://b:80/?a=b"),
        (
            "wss://[::1]:9/a/b?c=d",
            Target(host="::1", port=9, tls=True, websocket="/a/b?c=d"),
            "wss://[::1]:9/a/b?c=d",
        ),
        ("wss://b", Target(host="b", port=443, tls=True, websocket="/"), "wss://b:443/"),
    ],
)
def test_a_websocket_has_a_scheme_ports_and_a_path(text: str, target: Target, shown: str) -> None:
    assert parse_target(text) == target
    assert str(target) == shown
    assert parse_target(shown) == target


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("http://b/mqtt", "write ws://b/mqtt"),
        ("https://b/mqtt", "write wss://b/mqtt"),
        ("mqtt://b/mqtt", "only ws:// and wss:// have a path"),
        ("ws://me:secret@b/mqtt", "user name and password belong to the population"),
        ("ws://b/a#b", "a path has no spaces and no #: write %20 and %23"),
        ("ws://b/a b", "a path has no spaces and no #: write %20 and %23"),
    ],
)
def test_other_ways_to_write_it_get_a_hint(text: str, hint: str | None) -> None:
    with pytest.raises(ValueError, match=r"ws\[s\]://HOST\[:PORT\]\[/PATH\]") as caught:
        parse_target(text)
    assert getattr(caught.value, "hint", None) == hint


def test_headers_are_planned_for_targets_over_websocket_and_stored_without_values() -> None:
    plan = plan_of(BASE)
    assert plan.populations[0].headers == (Header(name="Authorization", value="Bearer {n}"),)
    assert plan.populations[0].tls is not None
    stored = plan.without_secrets().populations[0].headers
    assert stored == (Header(name="Authorization", value="***"),)
    assert 'Authorization: "***"' in redacted_text(BASE)


def test_targets_of_both_transports_go_together() -> None:
    text = BASE.replace("wss://broker/mqtt", "[mqtt://a, ws://b/mqtt]")
    assert [target.websocket for target in plan_of(text).targets] == [None, "/mqtt"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            BASE.replace("wss://broker/mqtt", "mqtts://broker"),
            "populations.device.headers: found headers, and no target over WebSocket",
        ),
        (
            BASE.replace("Authorization", "Sec-WebSocket-Key"),
            "allowed are headers that the clients do not write themselves",
        ),
        (BASE.replace("Authorization", "A B"), "allowed are names of headers"),
        (BASE.replace("{n}", "{1..3}"), "headers.Authorization: found a secret that does not fit"),
        (BASE.replace("{n}", "\\r\\nX: y"), "headers.Authorization: found a secret that does"),
        (BASE.replace("{n}", "{row.token}"), "found {row.token} without rows"),
        (
            OURS.replace("tls: server", "tls: psk"),
            "topology.brokers.main.transport: found websocket with tls: psk",
        ),
        (
            OURS.replace(
                "mosquitto, transport", "command, command: ['b', '{port}'], transport"
            ).replace(", tls: server", ""),
            "found transport: websocket and a command without {websocket_port}",
        ),
        (
            OURS.replace(
                "mosquitto, transport: websocket, tls: server",
                "command, command: ['b', '{websocket_port}']",
            ),
            "found '{websocket_port}', allowed are {host}, {port} and {folder}",
        ),
    ],
)
def test_what_does_not_fit_is_refused(text: str, problem: str) -> None:
    assert any(problem in found for found in problems(text)), problems(text)


def test_a_broker_of_the_run_has_a_websocket_when_it_is_asked_for() -> None:
    plan = plan_of(OURS)
    target = Target(host="127.0.0.1", port=0, tls=True, websocket="/mqtt")
    assert plan.targets == (target,)
    scenario = parse_scenario(OURS, "s.yaml")
    assert "mosquitto under TLS over WebSocket" in "\n".join(plan_in_words(scenario, plan))


def test_a_bridge_to_a_websocket_is_refused() -> None:
    text = OURS.replace("populations", "  #\npopulations").replace(
        "}}}\n",
        "}}, bridges: {up: {from: main, to: target, topics: [{topic: a, direction: out}]}}}\n",
    )
    found = problems(f"target: ws://other/mqtt\n{text}")
    assert any("found a bridge to a target over WebSocket" in each for each in found), found
