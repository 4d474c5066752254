"""Evidence about one run: attempts without an answer, client ids that two programs share, times in
which the controller did not run."""

from __future__ import annotations

from typing import Any

import pytest

from pubstorm.result import MonitorGap, ShortStage
from pubstorm.result.verdict import evaluate_run
from tests.kit.measured import MeasuredMaker


def test_attempts_without_an_answer_are_the_reason_that_none_succeeded(
    measured: MeasuredMaker,
) -> None:
    silent = {"connected_total": 0, "connected_max": 0, "ready_max": 0}
    verdict = evaluate_run(measured(device=silent, backend=silent), [])
    assert (verdict.status, verdict.limited_by) == ("invalid", "target")
    assert verdict.evidence[0] == (
        "none of 101 connection attempts succeeded: 101 had no answer from the target when stage "
        "connect ended after 0.5 s"
    )


def test_deliveries_beyond_the_last_report_of_an_agent_are_explained(
    measured: MeasuredMaker,
) -> None:
    flow = {"expected_total": 0, "received_total": 180, "surplus_total": 180}
    assert (
        "device → backend: 180 deliveries came that no agent reported as sent, since an agent "
        "ended before its last report; 0 were expected"
    ) in evaluate_run(measured(flow=flow), []).evidence


TAKEN_OVER = {"connected_total": 700, "disconnected_total": 650}


@pytest.mark.parametrize(
    ("changes", "is_said"),
    [
        ({"outcomes": {"closed_by_broker": 650}}, True),
        ({"outcomes": {"reset_by_broker": 650}}, True),
        ({"outcomes": {"keep_alive_timeout": 650}}, False),
        # Two restarts of a broker.
        ({"connected_total": 300, "disconnected_total": 200}, False),
    ],
)
def test_client_ids_that_are_taken_over_again_and_again_are_reported(
    measured: MeasuredMaker, changes: dict[str, Any], is_said: bool
) -> None:
    found = measured(device={**TAKEN_OVER, **changes})
    text = "another program probably uses the same client ids"
    assert any(text in fact for fact in evaluate_run(found, []).evidence) is is_said
    later = found.model_copy(update={"duration_s": 24 * 3600.0})
    assert not any(text in fact for fact in evaluate_run(later, []).evidence)


def test_a_time_without_readings_is_evidence(measured: MeasuredMaker) -> None:
    found = measured(monitor_gaps=(MonitorGap(from_s=3.25, to_s=13.5),))
    assert evaluate_run(found, []).evidence == (
        "no monitor was read for 10.2 s, from 3.2 s on: the controller was stopped or got no "
        "processor",
    )


def test_a_stage_too_short_to_see_a_collapse_is_evidence(measured: MeasuredMaker) -> None:
    found = measured(short_stages=(ShortStage(stage="publish", intervals=4, needed=10),))
    assert evaluate_run(found, []).evidence == (
        "stage publish was too short to see a collapse: it has 4 intervals, 10 are needed (a "
        "longer stage, or a shorter snapshot_interval)",
    )


def test_a_restart_that_no_fault_explains_has_a_line_for_all_populations(
    measured: MeasuredMaker,
) -> None:
    def hurt(attempts: int, failed: int, lost: int) -> dict[str, Any]:
        return {
            "connect_attempts_total": attempts + failed + lost,
            "connect_failed_total": failed,
            "connected_total": attempts + lost,
            "disconnected_total": lost,
            "outcomes": {"connect_refused": failed, "closed_by_broker": lost},
        }

    found = measured(device=hurt(100, 40, 100), backend=hurt(1, 3, 1))
    assert evaluate_run(found, []).evidence == (
        "device, backend: 43 of 245 connection attempts failed: 43 connect refused",
        "device, backend: 101 of 202 connections were lost: 101 closed by broker",
    )
