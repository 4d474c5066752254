"""What a judged run is worth as a point of a search."""

from __future__ import annotations

from typing import Any

import pytest

from pubstorm.metrics import parse_expression
from pubstorm.result import LimitedBy, Result, SearchPoint, Status, Verdict
from pubstorm.search.point import EVIDENCE_MAX, judged, outcome_of

POINT = SearchPoint(number=1, value=10, written="10/s", folder="points/001-10-s", phase="grow")
FULL = "the host's processors were busy for 99.8 % of the time under load"
LATE = "the generator was late: p99 26.1 ms"


def result_of(measured: Any, status: Status, limited_by: LimitedBy, *evidence: str) -> Result:
    verdict = Verdict(status=status, limited_by=limited_by, evidence=evidence, thresholds=())
    return Result.judged(measured(), verdict)


@pytest.mark.parametrize(
    ("status", "limited_by", "state", "why"),
    [
        (Status.PASS, LimitedBy.NONE, "held", None),
        (Status.PASS, LimitedBy.HOST, "held", None),
        (Status.FAIL, LimitedBy.BROKER, "broken", None),
        (Status.FAIL, LimitedBy.PUBLISHER, "broken", None),
        (Status.FAIL, LimitedBy.UNKNOWN, "broken", None),
        (Status.FAIL, LimitedBy.HOST, "uncounted", f"this host was the limit: {FULL}"),
        (
            Status.INVALID,
            LimitedBy.GENERATOR,
            "uncounted",
            f"the load generator was the limit: {LATE}",
        ),
        (Status.INVALID, LimitedBy.TARGET, "uncounted", f"the run is invalid: {LATE}"),
    ],
)
def test_a_point_counts_unless_generator_or_host_made_it_fail(
    measured: Any, status: Status, limited_by: LimitedBy, state: str, why: str | None
) -> None:
    # A verdict has the facts about its limit first.
    facts = (FULL, LATE) if limited_by is LimitedBy.HOST else (LATE, FULL)
    result = result_of(measured, status, limited_by, *facts)
    point = judged(POINT, result, None)
    assert outcome_of(point).state == state
    assert not outcome_of(point).final
    assert point.counted == (why is None)
    assert point.why == why


def test_a_point_has_its_figure_and_the_first_facts(measured: Any) -> None:
    result = result_of(measured, Status.PASS, LimitedBy.NONE, *map(str, range(9)))
    point = judged(POINT, result, parse_expression("device.clients"))
    assert point.figure == result.populations["device"].clients
    assert len(point.evidence) == EVIDENCE_MAX
    missing = judged(POINT, result, parse_expression("broker.cpu"))
    assert missing.figure is None
    assert missing.counted
