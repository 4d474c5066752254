"""Conditions of a scenario that end its run, in virtual time."""

from __future__ import annotations

import pytest

from pubstorm.contract.plan import Action, HoldAction, PublishAction
from pubstorm.measure.run_log import RunLog
from pubstorm.metrics.expressions import parse_threshold
from pubstorm.play.abort import INTERVALS_MIN, AbortWhen
from pubstorm.result import LatencyPair, Measured
from tests.kit.agents import planned
from tests.kit.made import SECOND_NS
from tests.kit.measured import latency, measured_run
from tests.kit.virtual import Played, Script, play
from tests.pure.play.test_stages import CONNECT, LEAVE, PUBLISH

LIMIT = "device.ack_latency.p99 > 2s"
P99_US_PER_S = 100_000.0


class Measuring:
    """Measures a p99 that grows by 100 ms a second of the run, and keeps the logs that it gets."""

    def __init__(self) -> None:
        self.logs: list[RunLog] = []

    def __call__(self, run_log: RunLog) -> Measured:
        self.logs.append(run_log)
        seconds = (run_log.ended_ns - run_log.started_ns) / SECOND_NS
        found = latency(p99=P99_US_PER_S * seconds)
        pair = LatencyPair(intended=found, actual=found)
        return measured_run(device={"ack_latency_us": pair})


def played_until(condition: str, *actions: Action) -> tuple[Played, Measuring]:
    measuring = Measuring()
    abort = AbortWhen([parse_threshold(condition)], measuring)
    return play(planned("well", *actions), Script(abort=abort)), measuring


@pytest.mark.parametrize("action", [PublishAction, HoldAction])
def test_a_stage_ends_when_a_condition_is_met_and_the_run_after_it(
    action: type[PublishAction | HoldAction],
) -> None:
    minute = action(duration_ns=60 * SECOND_NS)
    played, measuring = played_until(LIMIT, CONNECT, minute, PUBLISH, LEAVE)
    run_log = played.run_log
    assert (run_log.interrupted, run_log.ended_early) == (False, False)
    assert [span.index for span in run_log.spans] == [0, 1]
    (event,) = run_log.events
    words = f"abort_when {LIMIT} ended the run after 19.9 s of stage {minute.kind}: found 2.00 s"
    assert (event.kind, event.text) == ("check", words)
    assert run_log.spans[1].by_user
    assert run_log.endings == {0: "bye"}
    # Each evaluation is about the run until then, with the stage that is played.
    assert [span.settled for span in measuring.logs[-1].spans] == [True, False]
    first = measuring.logs[1]
    assert first.spans[-1].to_ns - first.spans[-1].from_ns >= INTERVALS_MIN * SECOND_NS


def test_what_is_known_only_at_the_end_of_a_stage_ends_the_run_there() -> None:
    tenth = PublishAction(duration_ns=SECOND_NS // 10)
    condition = "device.ack_latency.p99 > 10ms"
    played, _ = played_until(condition, CONNECT, tenth, PUBLISH, LEAVE)
    run_log = played.run_log
    assert run_log.ended_early
    assert [span.index for span in run_log.spans] == [0, 1]
    (event,) = run_log.events
    words = f"abort_when {condition} ended the run after stage publish: found "
    assert (event.kind, event.text[: len(words)]) == ("check", words)


def test_a_run_whose_conditions_are_not_met_is_played_to_its_end() -> None:
    half = PublishAction(duration_ns=15 * SECOND_NS)
    played, measuring = played_until("device.ack_latency.p99 > 1min", CONNECT, half, LEAVE)
    assert played.run_log.events == []
    assert len(played.run_log.spans) == 3
    # Five intervals of the stage, and the ends of three stages.
    assert len(measuring.logs) in {8, 9}


@pytest.mark.parametrize("condition", ["in_flight < 1000", "device.acked_per_s < 490/s"])
def test_what_is_low_before_the_load_ends_no_run(condition: str) -> None:
    half = PublishAction(duration_ns=15 * SECOND_NS)
    played, _ = played_until(condition, CONNECT, half, LEAVE)
    (event,) = played.run_log.events
    assert [span.index for span in played.run_log.spans] == [0, 1]
    is_of_the_end = condition.startswith("in_flight")
    after = "after stage publish: " if is_of_the_end else "s of stage publish: "
    assert after in event.text


def test_clients_that_do_not_connect_end_a_run_before_its_load() -> None:
    half = PublishAction(duration_ns=15 * SECOND_NS)
    played, _ = played_until("device.connect_attempts > 9", CONNECT, half, LEAVE)
    assert [span.index for span in played.run_log.spans] == [0]
    assert "ended the run after stage connect: found 100" in played.run_log.events[0].text


def test_a_result_that_cannot_be_made_ends_no_run() -> None:
    def broken(_run_log: RunLog) -> Measured:
        raise ValueError("no such part")

    abort = AbortWhen([parse_threshold(LIMIT)], broken)
    half = PublishAction(duration_ns=15 * SECOND_NS)
    played = play(planned("well", CONNECT, half, LEAVE), Script(abort=abort))
    (event,) = played.run_log.events
    assert (event.kind, len(played.run_log.spans)) == ("monitor", 3)
    assert event.text == "abort_when is not evaluated any more: ValueError: no such part"
