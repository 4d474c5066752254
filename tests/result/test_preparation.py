"""What is said of residue, of a host that is short, and of the generator's headroom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pubstorm.report.tables import facts
from pubstorm.result import Event, Headroom, Measured, Residue, Result
from pubstorm.verdict import judge

MeasuredMaker = Callable[..., Measured]


def residue(**values: Any) -> Residue:
    return Residue(
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
            residue(),
            ("it was not a clean start: 127.0.0.1:1883: 575 retained messages under device/#",),
        ),
        (
            residue(what="unknown", total=0, text="refused"),
            ("whether it was a clean start is not known: 127.0.0.1:1883: refused",),
        ),
        (residue(what="queued", text="it stores 5"), ("127.0.0.1:1883: it stores 5",)),
        (residue(when="after", text="removed 5"), ()),
        (residue(when="after", what="unknown", text="left 5"), ("127.0.0.1:1883: left 5",)),
    ],
)
def test_residue_is_told_and_leaves_the_run_valid(
    measured: MeasuredMaker, found: Residue, evidence: tuple[str, ...]
) -> None:
    verdict = judge(measured(residue=(found,)), ())
    assert verdict.evidence == evidence
    assert verdict.status == "pass"


def test_a_run_that_a_target_was_not_clean_enough_for_is_invalid(measured: MeasuredMaker) -> None:
    event = Event(at_s=0, kind="residue", text="nothing was played")
    verdict = judge(measured(events=(event,), ended_early=True), ())
    assert (verdict.status, verdict.limited_by) == ("invalid", "target")
    assert verdict.evidence == ("nothing was played",)


def test_what_the_host_is_short_of_is_told_as_it_is(measured: MeasuredMaker) -> None:
    event = Event(at_s=0, kind="host", text="short of ports: 5 of 2")
    verdict = judge(measured(events=(event,)), ())
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
                "an engine played 90 % of its calibrated number of clients, above 80 %: use more "
                "agents (fleet.agents)",
            ],
        ),
    ],
)
def test_the_generators_headroom_is_told(
    measured: MeasuredMaker, rate: float, clients: float, evidence: list[str]
) -> None:
    found = measured(headroom=Headroom(rate=rate, clients=clients, calibrated="then"))
    verdict = judge(found, ())
    assert list(verdict.evidence) == evidence
    assert (verdict.status, verdict.limited_by) == ("pass", "none")
    assert dict(facts(Result.judged(found, verdict)))["engine load"].startswith(
        f"{round(rate * 100)} % of the calibrated ceiling"
    )
