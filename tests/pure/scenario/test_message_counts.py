"""Publish stages with a number of messages: the part of each population, and the longest time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubstorm.contract.plan import PublishAction
from pubstorm.plan.compile import provisional_plan
from pubstorm.quantities import SECOND_NS
from pubstorm.scenario import parse_scenario

SCENARIO = """\
target: mqtt://broker
populations:
  one: {{clients: {one}, publications: [{first}]}}
  two: {{clients: {two}, publications: [{second}]}}
  backend: {{clients: 2, subscriptions: ["#"]}}
stages: [connect, publish: {publish}]
"""
FAST, SLOW, MAX = "{topic: a, rate: 40/s}", "{topic: a, rate: 10/s}", "{topic: a, rate: max}"
POISSON = "{topic: a, rate: 10/s, arrivals: poisson}"
JITTER = "{topic: a, rate: 10/s, jitter: 50%}"


def action(publish: str, *, first: str, second: str, one: int = 10, two: int = 10) -> PublishAction:
    text = SCENARIO.format(one=one, two=two, first=first, second=second, publish=publish)
    found = provisional_plan(parse_scenario(text, "s.yaml")).stages[1].action
    assert isinstance(found, PublishAction)
    return found


@pytest.mark.parametrize(
    ("messages", "first", "second", "parts"),
    [
        ("1000", SLOW, SLOW, (500, 500, 0)),
        ("1001", SLOW, SLOW, (500, 501, 0)),
        ("1000", FAST, SLOW, (800, 200, 0)),
        ("1", FAST, SLOW, (0, 1, 0)),
        ("1000", MAX, SLOW, (500, 500, 0)),
        ("1000", MAX, MAX, (500, 500, 0)),
        ("1000", POISSON, JITTER, (500, 500, 0)),
        ("1000", f"{SLOW}, {FAST}", SLOW, (833, 167, 0)),
        ("7/client", FAST, SLOW, (70, 70, 0)),
        ("7/client", MAX, POISSON, (70, 70, 0)),
        ("7/client", f"{SLOW}, {MAX}", JITTER, (70, 70, 0)),
    ],
)
def test_populations_share_a_number_by_their_rates(
    messages: str, first: str, second: str, parts: tuple[int, ...]
) -> None:
    assert action(f"{{messages: {messages}}}", first=first, second=second).messages == parts


@given(st.integers(1, 10**12), st.integers(1, 10**6), st.integers(1, 10**6))
def test_the_parts_of_all_populations_are_the_whole(messages: int, one: int, two: int) -> None:
    publish = f"{{messages: {messages}}}"
    found = action(publish, first="{topic: a, rate: 7/s}", second=SLOW, one=one, two=two)
    assert found.messages is not None
    assert sum(found.messages) == messages
    assert min(found.messages) >= 0


@pytest.mark.parametrize(
    ("publish", "first", "longest_s"),
    [
        ("{messages: 100/client}", SLOW, 2 * 10 + 30),
        ("{messages: 100/client}", FAST, 2 * 10 + 30),
        ("{messages: 100/client}", POISSON, 2 * 10 + 30),
        ("{messages: 100/client}", MAX, 2 * 10 + 600 + 2),
        ("{messages: 100/client, for: 5s}", MAX, 5),
        ("{messages: 1, for: 5s}", SLOW, 5),
    ],
)
def test_a_stage_ends_after_its_longest_time(publish: str, first: str, longest_s: int) -> None:
    found = action(publish, first=first, second=SLOW)
    assert found.duration_ns == longest_s * SECOND_NS


def test_only_clients_that_are_active_have_a_part() -> None:
    text = SCENARIO.format(one=10, two=10, first=SLOW, second=SLOW, publish="{messages: 9/client}")
    some = text.replace("[connect,", "[connect: {clients: {one: 4}, populations: [one, backend]},")
    found = provisional_plan(parse_scenario(some, "s.yaml")).stages[1].action
    assert isinstance(found, PublishAction)
    assert found.messages == (36, 0, 0)


def test_a_stage_without_a_number_has_none() -> None:
    assert action("5s", first=SLOW, second=MAX).messages is None
