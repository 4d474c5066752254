"""Flapping subscriptions, from scenario to plan."""

from __future__ import annotations

import pytest

from pubstorm.cli.describe.plan import plan_in_words
from pubstorm.contract.plan import Flapping, Plan
from pubstorm.errors import ScenarioError
from pubstorm.plan import compile_plan, planned_targets
from pubstorm.quantities import SECOND_NS
from pubstorm.scenario import parse_scenario

BASE = """\
target: mqtt://broker
populations:
  device: {{clients: 100, subscriptions: ["a/{{n}}"]{device}}}
stages: [connect]
"""


def plan_of(device: str) -> Plan:
    scenario = parse_scenario(BASE.format(device=f", {device}"), "s.yaml")
    return compile_plan(scenario, planned_targets(scenario), run_tag=1)


@pytest.mark.parametrize(
    ("written", "planned", "words"),
    [
        ("2s", (2, 2, 0), "unsubscribes after 2s, subscribes again at once"),
        (
            "{from: 5s, to: 20s, unsubscribed: 2s}",
            (5, 20, 2),
            "unsubscribes after 5s to 20s, subscribes again after 2s",
        ),
    ],
)
def test_times_are_planned_and_described(
    written: str, planned: tuple[int, int, int], words: str
) -> None:
    text = BASE.format(device=f", flapping: {written}")
    scenario, plan = parse_scenario(text, "s.yaml"), plan_of(f"flapping: {written}")
    least, most, away = (seconds * SECOND_NS for seconds in planned)
    expected = Flapping(min_ns=least, max_ns=most, unsubscribed_ns=away)
    assert plan.populations[0].flapping == expected
    assert words in "\n".join(plan_in_words(scenario, plan))


def test_a_check_says_how_often_clients_ask() -> None:
    text = BASE.format(device=", flapping: {from: 4s, unsubscribed: 1s}")
    text = text.replace("[connect]", "[connect, hold: 9s]")
    scenario = parse_scenario(text, "s.yaml")
    plan = compile_plan(scenario, planned_targets(scenario), run_tag=1)
    lines = [line.strip() for line in plan_in_words(scenario, plan)]
    # 100 clients with two requests in 5 s, in each stage but those that connect.
    assert lines.count("and up to 40 UNSUBSCRIBE and SUBSCRIBE/s") == 1


def test_a_rate_is_that_of_all_clients() -> None:
    """100 clients at 20/s: each unsubscribes every 5 s, 1 s of which it is unsubscribed."""
    found = plan_of("flapping: {rate: 20/s, unsubscribed: 1s}").populations[0].flapping
    expected = Flapping(min_ns=1, max_ns=8 * SECOND_NS, unsubscribed_ns=SECOND_NS)
    assert found == expected


def test_shares_flap_by_themselves() -> None:
    shares = "{still: {part: 50%, flapping: never}, own: {part: 10%, flapping: {rate: 10/s}}}"
    plan = plan_of(f"flapping: {{rate: 20/s}}, shares: {shares}")
    rest, still, own = (population.flapping for population in plan.populations)
    assert still is None
    # The rate of the population counts all clients, that of a share its own.
    assert (rest and rest.max_ns, own and own.max_ns) == (10 * SECOND_NS, 2 * SECOND_NS)


@pytest.mark.parametrize(
    ("keys", "path", "found"),
    [
        ("flapping: {}", "", "found neither from nor rate, needed is one of from and rate"),
        ("flapping: {unsubscribed: 2s}", "", "found neither from nor rate"),
        ("flapping: {from: 1s, rate: 2/s}", "", "found from and rate, needed is one"),
        ("flapping: {rate: 2/s, to: 3s}", ".to", "found to with rate"),
        ("flapping: {from: 3s, to: 2s}", ".to", "found 2s, allowed is at least 3s"),
        ("flapping: {from: 0s}", ".from", "allowed is more than 0"),
        ("flapping: 0s", "", "allowed is more than 0"),
        ("flapping: {rate: 0/s}", ".rate", "allowed is more than 0"),
        (
            "flapping: {rate: 100/s, unsubscribed: 1s}",
            "",
            "found 100/s of 100 clients that are unsubscribed for 1s, needed is a lower rate",
        ),
    ],
)
def test_times_that_cannot_be_are_refused(keys: str, path: str, found: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        plan_of(keys)
    (problem,) = caught.value.problems
    assert f"populations.device.flapping{path}: " in str(problem)
    assert found in str(problem)


def test_clients_without_subscriptions_cannot_flap() -> None:
    text = BASE.format(device=", flapping: 2s").replace('subscriptions: ["a/{n}"], ', "")
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "s.yaml")
    (problem,) = caught.value.problems
    assert "found flapping of device, which subscribes to nothing" in str(problem)
    assert problem.hint == "write subscriptions, or leave it out"


def test_sockets_of_zeromq_do_not_flap() -> None:
    text = BASE.format(device=", flapping: 2s").replace("mqtt://", "zmq://")
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text.replace("broker", "broker:5555"), "s.yaml")
    (problem,) = caught.value.problems
    assert "found flapping with simulated subscribers of ZeroMQ" in str(problem)
    assert (problem.hint or "").startswith("only clients of MQTT flap: write lifetime")
