"""Flapping subscriptions, from scenario to plan."""

from __future__ import annotations

import pytest

from pubstorm.cli.describe.plan import plan_in_words
from pubstorm.contract.plan import PlannedFlapping
from pubstorm.quantities import SECOND_NS
from pubstorm.scenario import parse_scenario
from tests.pure.scenario.bases import SMALL, changed, plan_of

BASE = changed(SMALL, "populations.device.clients: 100, stages: [connect, {hold: 9s}]")


def flapping(keys: str) -> tuple[PlannedFlapping | None, ...]:
    plan = plan_of(changed(BASE, f"populations.device.flapping: {keys}"))
    return tuple(population.flapping for population in plan.populations)


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
    text = changed(BASE, f"populations.device.flapping: {written}")
    least, most, away = (seconds * SECOND_NS for seconds in planned)
    expected = PlannedFlapping(min_ns=least, max_ns=most, unsubscribed_ns=away)
    assert flapping(written) == (expected,)
    assert words in "\n".join(plan_in_words(parse_scenario(text, "s.yaml"), plan_of(text)))


def test_a_check_says_how_often_clients_ask() -> None:
    text = changed(BASE, "populations.device.flapping: {from: 4s, unsubscribed: 1s}")
    words = plan_in_words(parse_scenario(text, "s.yaml"), plan_of(text))
    lines = [line.strip() for line in words]
    # 100 clients with two requests in 5 s, in each stage but those that connect.
    assert lines.count("and up to 40 UNSUBSCRIBE and SUBSCRIBE/s") == 1


def test_a_rate_is_that_of_all_clients() -> None:
    """100 clients at 20/s: each unsubscribes every 5 s, 1 s of which it is unsubscribed."""
    expected = PlannedFlapping(min_ns=1, max_ns=8 * SECOND_NS, unsubscribed_ns=SECOND_NS)
    assert flapping("{rate: 20/s, unsubscribed: 1s}") == (expected,)


def test_shares_flap_by_themselves() -> None:
    shares = "{still: {part: 50%, flapping: never}, own: {part: 10%, flapping: {rate: 10/s}}}"
    rest, still, own = flapping(f"{{rate: 20/s}}, populations.device.shares: {shares}")
    assert still is None
    # The rate of the population counts all clients, that of a share its own.
    assert (rest and rest.max_ns, own and own.max_ns) == (10 * SECOND_NS, 2 * SECOND_NS)
