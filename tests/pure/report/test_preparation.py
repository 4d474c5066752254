"""Reports on stale state, on shortages of the host, and on the generator's headroom."""

from __future__ import annotations

from typing import Any

import pytest

from pubstorm.report.tables import facts
from pubstorm.result import Event, Headroom, Result, StaleState
from pubstorm.result.verdict import evaluate_run
from tests.kit.measured import MeasuredMaker


def stale_state(**values: Any) -> StaleState:
    return StaleState(
        **{
            "target": "127.0.0.1:1883",
            "when": "before",
            "what": "retained",
            "total": 575,
            "text": "575 retained messages under device/#",
            **values,
        }
    )


@pytest.mark.parametrize(
    ("found", "evidence"),
    [
        (
            stale_state(),
            ("it was not a clean start: 127.0.0.1:1883: 575 retained messages under device/#",),
        ),
        (
            stale_state(what="unknown", total=0, text="refused"),
            ("whether it was a clean start is not known: 127.0.0.1:1883: refused",),
        ),
        (stale_state(what="queued", text="it stores 5"), ("127.0.0.1:1883: it stores 5",)),
        (stale_state(when="after", text="removed 5"), ()),
        (stale_state(when="after", what="unknown", text="left 5"), ("127.0.0.1:1883: left 5",)),
    ],
)
def test_stale_state_is_shown_and_leaves_the_run_valid(
    measured: MeasuredMaker, found: StaleState, evidence: tuple[str, ...]
) -> None:
    verdict = evaluate_run(measured(stale_state=(found,)), ())
    assert verdict.evidence == evidence
    assert verdict.status == "pass"


def test_a_run_that_a_target_was_not_clean_enough_for_is_invalid(measured: MeasuredMaker) -> None:
    event = Event(at_s=0, kind="stale_state", text="nothing was played")
    verdict = evaluate_run(measured(events=(event,), ended_early=True), ())
    assert (verdict.status, verdict.limited_by) == ("invalid", "target")
    assert verdict.evidence == ("nothing was played",)


def test_shortages_of_the_host_are_shown_as_they_are(measured: MeasuredMaker) -> None:
    event = Event(at_s=0, kind="host", text="short of ports: 5 of 2")
    verdict = evaluate_run(measured(events=(event,)), ())
    assert (verdict.status, verdict.evidence) == ("pass", ("short of ports: 5 of 2",))


@pytest.mark.parametrize(
    ("rate", "clients", "evidence"),
    [
        (0.234, 0.5, ["the generator ran at 23 % of its calibrated ceiling"]),
        (
            0.85,
            0.9,
            [
                "the generator ran at 85 % of its calibrated ceiling, above 80 %: use more agents "
                "(fleet.agents)",
                "an agent played 90 % of its calibrated number of clients, above 80 %: use more "
                "agents (fleet.agents)",
            ],
        ),
    ],
)
def test_the_generators_headroom_is_shown(
    measured: MeasuredMaker, rate: float, clients: float, evidence: list[str]
) -> None:
    found = measured(headroom=Headroom(rate=rate, clients=clients, calibrated="then"))
    verdict = evaluate_run(found, ())
    assert list(verdict.evidence) == evidence
    assert (verdict.status, verdict.limited_by) == ("pass", "none")
    used = {fact.name: fact.value for fact in facts(Result.of(found, verdict))}["agents load"]
    assert used.startswith(f"{round(rate * 100)} % of the calibrated ceiling")
