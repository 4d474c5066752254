"""The cost to read, check and compile a scenario follows the number of its populations, and not
their square: counted in steps of the interpreter, which no other work of the machine changes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

from pubstorm.cli.describe.plan import plan_in_words
from pubstorm.plan import provisional_plan
from pubstorm.play.oversights import oversights
from pubstorm.scenario import Scenario, parse_scenario

FEW, MANY = 100, 400
SLACK = 1.1
"""Steps of each of many populations, over those of each of few: sorting has a logarithm."""


def scenario(populations: int) -> Scenario:
    names = range(populations - 1)
    plain = [f"  p{n}: {{clients: 1, client_id: 'p{n}-{{n}}', subscriptions: [a]}}" for n in names]
    publisher = "  feed: {clients: 1, publications: [{topic: a, rate: 1/s}]}"
    populated = "\n".join([publisher, *plain])
    text = f"target: mqtt://localhost\npopulations:\n{populated}\nstages: [connect, publish: 1s]"
    return parse_scenario(text, "s.yaml")


def compiled(populations: int) -> None:
    found = scenario(populations)
    plan = provisional_plan(found)
    assert len(plan.populations) == populations
    assert not [*oversights(found, plan)]
    assert len([*plan_in_words(found, plan)]) > populations


def steps(play: Callable[[], Any]) -> int:
    """Returns the instructions that a call takes."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        play()
    finally:
        sys.settrace(before)
    return count


def test_the_work_for_many_populations_is_that_for_few_many_times() -> None:
    compiled(2)
    few, many = steps(partial(compiled, FEW)), steps(partial(compiled, MANY))
    assert many / few < SLACK * MANY / FEW
