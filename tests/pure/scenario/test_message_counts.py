"""Publish stages with a number of messages: their time makes exactly as many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubstorm.scenario import Scenario, parse_scenario
from pubstorm.scenario.message_counts import GOLDEN_RATIO, PHASES

SCENARIO = """\
target: mqtt://broker
populations:
  device: {{clients: {clients}, publications: [{{topic: "t/{{n}}", rate: {rate}, burst: {burst}}}]}}
stages: [connect, publish: {{messages: {messages}}}]
"""


def read(messages: object, *, clients: int = 10, rate: str = "5/s", burst: int = 1) -> Scenario:
    text = SCENARIO.format(messages=messages, clients=clients, rate=rate, burst=burst)
    return parse_scenario(text, "s.yaml")


def length_ns(scenario: Scenario) -> int:
    publish = scenario.stages[1].publish
    assert publish is not None
    return publish.duration


def due(client: int, until_ns: int, period_ns: int, burst: int) -> int:
    """Messages of a client that are due before an instant, one by one as the schedule has them."""
    number = 0
    while True:
        position = client * GOLDEN_RATIO % PHASES / PHASES + float(number - number % burst)
        if int(position * period_ns) >= until_ns:
            return number
        number += 1


@given(
    st.integers(1, 30),
    st.integers(1, 200),
    st.integers(1, 4),
    st.sampled_from(["1/s", "7/s", "0.3/s", "999/s"]),
)
def test_exactly_so_many_messages_are_due(clients: int, bursts: int, burst: int, rate: str) -> None:
    wanted = bursts * burst
    until_ns = length_ns(read(wanted, clients=clients, rate=rate, burst=burst))
    period_ns = round(1e9 / float(rate.removesuffix("/s")))
    found = sum(due(client, until_ns, period_ns, burst) for client in range(clients))
    assert found == wanted


def test_a_number_of_each_client_takes_as_many_periods() -> None:
    assert length_ns(read("100/client")) == 20 * 10**9
    assert length_ns(read("1k")) == 20 * 10**9
    assert length_ns(read("100/client", clients=1_000_000)) == 20 * 10**9


@pytest.mark.parametrize("rate", ["total_rate: 50/s", "interval: 200ms"])
def test_every_way_to_write_a_rate_fits(rate: str) -> None:
    assert (
        length_ns(
            parse_scenario(
                SCENARIO.format(messages=500, clients=10, rate="5/s", burst=1).replace(
                    "rate: 5/s", rate
                ),
                "s.yaml",
            )
        )
        == 10 * 10**9
    )
