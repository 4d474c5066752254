"""Faults are played at their instants, beside the stage, and repaired before it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pubstorm.contract.plan import HoldAction, Plan, PublishAction
from pubstorm.metrics.expressions import parse_threshold
from pubstorm.plan.stages import Commands, PlannedFault
from pubstorm.play.stages import Interrupt, RunEvent
from pubstorm.result import Event
from pubstorm.result.verdict import evaluate_run
from pubstorm.topology import LinksDied
from tests.kit.agents import planned
from tests.kit.measured import measured_run
from tests.kit.virtual import Played, Script
from tests.kit.virtual import play as play_virtually
from tests.pure.measure.test_faults import fault_result as made_fault

MS_NS = 10**6


def fault(
    stage: int, after_ms: int, lasts_ms: int | None, name: str = "kill cloud"
) -> PlannedFault:
    return PlannedFault(
        stage=stage,
        name=name,
        kind="kill",
        after_ns=after_ms * MS_NS,
        lasts_ns=None if lasts_ms is None else lasts_ms * MS_NS,
        group="cloud",
        numbers=(0,),
    )


class Breaker:
    """Breaks nothing, and notes what it was asked for."""

    def __init__(
        self, problems: Sequence[str] = (), repair_s: float = 0.0, at_first: Sequence[str] = ()
    ) -> None:
        self.asked: list[str] = []
        self._problems, self._at_first = tuple(problems), tuple(at_first)
        self._repair_s = repair_s

    async def begin(self, fault: PlannedFault) -> tuple[str, ...]:
        self.asked.append(f"begin {fault.name}")
        return self._at_first

    async def repair(self, fault: PlannedFault) -> tuple[str, ...]:
        self.asked.append(f"repair {fault.name}")
        await asyncio.sleep(self._repair_s)
        return self._problems


def near(instant_ns: int) -> Any:
    """An instant, give or take a microsecond."""
    return pytest.approx(instant_ns, rel=0, abs=1000)


PLAN = planned("well", PublishAction(duration_ns=100 * MS_NS))


def play(
    plan: Plan, breaker: Breaker, *faults: PlannedFault, first: tuple[RunEvent, ...] = ()
) -> Played:
    return play_virtually(plan, Script(faults=faults, breaker=breaker, first=first))


@pytest.mark.parametrize("action", [PublishAction, HoldAction])
def test_a_fault_begins_and_is_repaired_at_its_instants(
    action: type[PublishAction | HoldAction],
) -> None:
    breaker = Breaker()
    plan = planned("well", action(duration_ns=400 * MS_NS))
    faults = [fault(0, 200, 100, "late"), fault(0, 50, 100, "early"), fault(1, 0, 1, "never")]
    run_log = play(plan, breaker, *faults).run_log
    assert breaker.asked == ["begin early", "repair early", "begin late", "repair late"]
    (span,) = run_log.spans
    early, late = run_log.faults
    for applied in (early, late):
        assert applied.planned.lasts_ns is not None
        assert applied.began_ns == near(span.from_ns + applied.planned.after_ns)
        assert applied.repaired_ns == near(applied.began_ns + applied.planned.lasts_ns)
    assert [event.kind for event in run_log.events] == ["fault"] * 4
    assert [event.text for event in run_log.events] == [
        "early: kill cloud",
        "early: 1 broker is up again",
        "late: kill cloud",
        "late: 1 broker is up again",
    ]


def test_the_end_of_a_stage_waits_for_a_repair() -> None:
    played = play(PLAN, Breaker(repair_s=600), fault(0, 10, 10))
    (span,), (applied,) = played.run_log.spans, played.run_log.faults
    assert applied.repaired_ns is not None
    assert applied.repaired_ns == near(span.from_ns + 600_020 * MS_NS)
    assert span.load_until_ns < applied.repaired_ns <= span.to_ns


def test_a_run_does_not_wait_for_what_lasts_for_ever() -> None:
    breaker = Breaker()
    run_log = play(PLAN, breaker, fault(0, 10, None)).run_log
    assert breaker.asked == ["begin kill cloud"]
    assert [applied.repaired_ns for applied in run_log.faults] == [None]
    assert not run_log.ended_early


def test_what_cannot_be_repaired_is_an_event_and_ends_nothing() -> None:
    plan = planned("well", PublishAction(duration_ns=100 * MS_NS), HoldAction(duration_ns=1))
    breaker = Breaker(problems=["broker cloud-0 did not come up"])
    run_log = play(plan, breaker, fault(0, 10, 10)).run_log
    (applied,) = run_log.faults
    assert applied.repaired_ns is None
    assert applied.problems == ["broker cloud-0 did not come up"]
    assert run_log.events[-1].text == "kill cloud: broker cloud-0 did not come up"
    assert len(run_log.spans) == 2


def test_many_problems_are_reported_in_short() -> None:
    breaker = Breaker(problems=[f"broker cloud-{n} is gone" for n in range(9)])
    run_log = play(PLAN, breaker, fault(0, 10, 10)).run_log
    assert [event.text for event in run_log.events[-2:]] == [
        "kill cloud: broker cloud-4 is gone",
        "kill cloud: 4 problems more",
    ]


def test_an_interrupt_leaves_no_fault_to_begin() -> None:
    breaker = Breaker()
    plan = planned("well", PublishAction(duration_ns=3600 * 10**9))
    interrupt = (Interrupt("SIGINT"),)
    played = play(plan, breaker, fault(0, 60_000, 10), first=interrupt)
    assert played.run_log.interrupted
    assert breaker.asked == []
    assert played.run_log.faults == []


def test_a_command_that_fails_makes_the_run_invalid() -> None:
    by_command = replace(fault(0, 10, None, "crash"), commands=Commands("exit 5", None, None, 1))
    breaker = Breaker(at_first=["exit 5 ended with exit code 5"])
    run_log = play(PLAN, breaker, by_command).run_log
    (applied,) = run_log.faults
    assert (applied.failed, applied.repaired_ns) == (breaker._at_first[0], None)
    assert not run_log.ended_early
    failed = made_fault("crash").model_copy(update={"kind": "command", "failed": applied.failed})
    run = measured_run(faults=(failed,))
    verdict = evaluate_run(run, [parse_threshold("clients_lost@crash == 0")])
    assert verdict.status == "invalid"
    assert [outcome.passed for outcome in verdict.thresholds] == [False]


def test_a_fault_whose_brokers_were_all_gone_was_not_made() -> None:
    gone = "broker cloud-0 was gone before it could be killed"
    for numbers, failed in (((0,), gone), ((0, 1), None)):
        breaker = Breaker(at_first=[gone])
        kill = replace(fault(0, 10, 10, "kill"), numbers=numbers)
        (applied,) = play(PLAN, breaker, kill).run_log.faults
        assert applied.failed == failed


def test_links_that_end_make_the_run_invalid_and_end_nothing() -> None:
    run_log = play(PLAN, Breaker(), first=(LinksDied("links", "the program ended"),)).run_log
    assert not run_log.ended_early
    (event,) = run_log.events
    verdict = evaluate_run(
        measured_run(events=(Event(at_s=1, kind=event.kind, text=event.text),)), []
    )
    assert (verdict.status, verdict.limited_by) == ("invalid", "generator")
