"""Faults that a user asks for: their words, and their play beside the faults of the scenario."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pubstorm.contract.plan import ConnectAction, HoldAction, Plan, PublishAction
from pubstorm.errors import UsageError
from pubstorm.plan.stages import PlannedFault
from pubstorm.play.faults import Breakable
from pubstorm.scenario import parse_scenario
from tests.kit.agents import planned
from tests.kit.virtual import Played, Script, now_ns, run_virtually
from tests.pure.play.test_faults import MS_NS, Breaker, fault, near

SCENARIO = """
topology:
  brokers: {cloud: {kind: mosquitto}, boxes: {kind: mosquitto, count: 3}}
  bridges:
    up: {from: boxes, to: cloud, topics: [{topic: up/#, direction: out, qos: 1}]}
    down: {from: boxes, to: cloud, topics: [{topic: down/#, direction: in, qos: 1}]}
populations:
  device: {clients: 1, at: boxes, publications: [{topic: t, rate: 1/s}]}
  feed: {clients: 2, publisher: libzmq, publications: [{topic: t, rate: 1/s}]}
  own: {clients: 1, publisher: {kind: command, command: [a]}, publications: [{topic: t, rate: 1/s}]}
"""


def breakable() -> Breakable:
    return Breakable(parse_scenario(SCENARIO, "scenario.yaml"), frozenset({"up"}))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("kill cloud", ("kill cloud", "kill", None, "cloud", (0,), 0)),
        ("freeze boxes for 10s", ("freeze boxes", "freeze", 10**10, "boxes", (0, 1, 2), 0)),
        ("stop boxes-2 for 200ms", ("stop boxes-2", "stop", 2 * 10**8, "boxes", (2,), 0)),
        ("cut up", ("cut up", "cut", None, "up", (0, 1, 2), 0)),
        ("delay up-1 by 100ms for 5s", ("delay up-1", "delay", 5 * 10**9, "up", (1,), 10**8)),
        ("stop feed for 2s", ("stop feed", "stop", 2 * 10**9, "feed", (0, 1), 0)),
        ("stop feed-1", ("stop feed-1", "stop", None, "feed", (1,), 0)),
        ("delay up for 5s by 100ms", ("delay up", "delay", 5 * 10**9, "up", (0, 1, 2), 10**8)),
    ],
)
def test_words_name_a_fault(words: str, expected: tuple[object, ...]) -> None:
    found = breakable().parse(words)
    assert (
        found.name,
        found.kind,
        found.lasts_ns,
        found.group,
        found.numbers,
        found.delay_ns,
    ) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "found 'fault ', which is no fault"),
        ("kill", "found no name to kill, allowed: cloud, boxes"),
        ("kill nothing", "found nothing to kill, allowed: cloud, boxes"),
        ("kill boxes-3", "found boxes-3 to kill, allowed: cloud, boxes"),
        ("kill feed", "found feed to kill, allowed: cloud, boxes"),
        ("stop own", "found own to stop, allowed: cloud, boxes, feed"),
        ("cut down", "found down to cut, allowed: up"),
        ("cut cloud", "found cloud to cut, allowed: up"),
        ("command ls", "found 'fault command ls', which is no fault"),
        ("burn cloud", "found 'fault burn cloud', which is no fault"),
        ("kill cloud for", "found 'fault kill cloud for', which is no fault"),
        ("kill cloud in 10s", "found 'fault kill cloud in 10s', which is no fault"),
        ("kill cloud by 1s", "found 'fault kill cloud by 1s'"),
        ("delay up for 1s", "found 'fault delay up for 1s'"),
        ("kill cloud for ever", "found ever"),
        ("kill cloud for 0s", "found 0s"),
    ],
)
def test_other_words_are_refused(words: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        breakable().parse(words)
    assert caught.value.message.startswith(message)
    assert caught.value.hint


Act = Callable[[Played], Coroutine[Any, Any, None]]


def play(plan: Plan, breaker: Breaker, act: Act, *faults: PlannedFault) -> Played:
    """Plays a plan in virtual time, while the user acts."""

    async def run() -> Played:
        played = Played(plan, Script(faults=faults, breaker=breaker, breakable=breakable()))
        acting = asyncio.create_task(act(played))
        await played.play()
        await acting
        return played

    return run_virtually(run())


async def at(played: Played, ms: int) -> None:
    """Waits until a time after the start of the first stage."""
    while not played.entered:
        await asyncio.sleep(0.001)
    start_ns = played.run.progress.entered_ns
    await asyncio.sleep((start_ns + ms * MS_NS - now_ns()) / 1e9)


def refused(played: Played, words: str) -> str:
    with pytest.raises(UsageError) as caught:
        played.controller.inject(words)
    return caught.value.message


@pytest.mark.parametrize("action", [PublishAction, HoldAction])
def test_a_fault_begins_at_once_and_is_repaired_by_request(
    action: type[PublishAction | HoldAction],
) -> None:
    async def act(played: Played) -> None:
        await at(played, 100)
        assert played.controller.inject("kill cloud") == "kill cloud"
        await at(played, 150)
        assert refused(played, "stop cloud") == "stop cloud would overlap with kill cloud"
        with pytest.raises(UsageError, match="found no fault kill to repair, allowed: kill cloud"):
            played.controller.repair("kill")
        assert played.controller.repair("kill cloud") == "kill cloud"
        await at(played, 200)
        with pytest.raises(UsageError, match="none is in effect"):
            played.controller.repair("kill cloud")
        assert played.controller.inject("kill cloud for 50ms") == "kill cloud (2)"

    breaker = Breaker()
    run_log = play(planned("well", action(duration_ns=400 * MS_NS)), breaker, act).run_log
    names = ("kill cloud", "kill cloud (2)")
    assert breaker.asked == [f"{verb} {name}" for name in names for verb in ("begin", "repair")]
    (first, second), (span,) = run_log.faults, run_log.spans
    assert first.began_ns == near(span.from_ns + 100 * MS_NS)
    assert first.repaired_ns == near(span.from_ns + 150 * MS_NS)
    assert second.repaired_ns == near(span.from_ns + 250 * MS_NS)


def test_a_fault_that_is_not_repaired_by_request_ends_with_the_load() -> None:
    async def act(played: Played) -> None:
        await at(played, 100)
        played.controller.inject("kill cloud")

    plan = planned("well", PublishAction(duration_ns=400 * MS_NS))
    run_log = play(plan, Breaker(), act).run_log
    (applied,), (span,) = run_log.faults, run_log.spans
    assert applied.repaired_ns == near(span.load_until_ns)


def test_faults_of_the_scenario_come_first() -> None:
    async def act(played: Played) -> None:
        await at(played, 10)
        overlap = "kill cloud (2) would overlap with kill cloud"
        assert refused(played, "kill cloud") == overlap
        assert refused(played, "kill cloud for 100ms") == overlap
        assert played.controller.inject("kill cloud for 50ms") == "kill cloud (2)"
        assert played.controller.inject("kill boxes-1 for 350ms") == "kill boxes-1"
        await at(played, 200)
        too_long = "the stage has 0.2 s left, too short for the fault"
        assert refused(played, "kill boxes-0 for 300ms") == too_long

    plan = planned("well", PublishAction(duration_ns=400 * MS_NS))
    played = play(plan, Breaker(), act, fault(0, 100, 50))
    assert len(played.run_log.faults) == 3


def test_no_fault_begins_outside_a_stage_with_a_time() -> None:
    async def act(played: Played) -> None:
        await at(played, 0)
        assert refused(played, "kill cloud") == "no publish stage is on"

    play(
        planned("well", ConnectAction(rate_per_s=1.0, parallelism=None, timeout_ns=10**9)),
        Breaker(),
        act,
    )
