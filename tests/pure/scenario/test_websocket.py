"""WebSocket from scenario to plan: targets, headers, brokers that the run starts."""

from __future__ import annotations

import pytest

from pubstorm.cli.describe.plan import plan_in_words
from pubstorm.contract.plan import Header
from pubstorm.contract.target import Target, parse_target
from pubstorm.scenario import parse_scenario
from pubstorm.scenario.document import redacted_text
from tests.pure.scenario.bases import WEBSOCKET, plan_of

BASE = """\
target: wss://broker/mqtt
populations:
  device:
    clients: 10
    headers: {Authorization: "Bearer {n}"}
stages: [connect]
"""


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


def test_a_broker_of_the_run_has_a_websocket_when_it_is_asked_for() -> None:
    plan = plan_of(WEBSOCKET)
    target = Target(host="127.0.0.1", port=0, tls=True, websocket="/mqtt")
    assert plan.targets == (target,)
    scenario = parse_scenario(WEBSOCKET, "s.yaml")
    assert "mosquitto under TLS over WebSocket" in "\n".join(plan_in_words(scenario, plan))
