"""Validity of an evaluated run as a trial of a search."""

from __future__ import annotations

import pytest

from pubstorm.experiment.search.trial import EVIDENCE_MAX, evaluated, outcome_of
from pubstorm.result import LimitedBy, Result, Status, Trial, Verdict
from pubstorm.result.figures import parse_expression
from tests.kit.measured import measured_run

POINT = Trial(number=1, value=10, written="10/s", folder="trials/001-10-s", phase="grow")
FULL = "the host's processors were busy for 99.8 % of the time under load"
LATE = "the generator was late: p99 26.1 ms"


def result_of(status: Status, limited_by: LimitedBy, *evidence: str) -> Result:
    verdict = Verdict(status=status, limited_by=limited_by, evidence=evidence, thresholds=())
    return Result.of(measured_run(), verdict)


@pytest.mark.parametrize(
    ("status", "limited_by", "state", "why"),
    [
        (Status.PASS, LimitedBy.NONE, "passed", None),
        (Status.PASS, LimitedBy.HOST, "passed", None),
        (Status.FAIL, LimitedBy.BROKER, "failed", None),
        (Status.FAIL, LimitedBy.PUBLISHER, "failed", None),
        (Status.FAIL, LimitedBy.UNKNOWN, "failed", None),
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
def test_a_trial_counts_unless_generator_or_host_made_it_fail(
    status: Status, limited_by: LimitedBy, state: str, why: str | None
) -> None:
    # A verdict has the facts about its limit first.
    facts = (FULL, LATE) if limited_by is LimitedBy.HOST else (LATE, FULL)
    result = result_of(status, limited_by, *facts)
    trial = evaluated(POINT, result, None)
    assert outcome_of(trial).state == state
    assert not outcome_of(trial).final
    assert trial.counted == (why is None)
    assert trial.why == why


def test_a_trial_has_its_figure_and_the_first_facts() -> None:
    result = result_of(Status.PASS, LimitedBy.NONE, *map(str, range(9)))
    trial = evaluated(POINT, result, parse_expression("device.clients"))
    assert trial.figure == result.populations["device"].clients
    assert len(trial.evidence) == EVIDENCE_MAX
    missing = evaluated(POINT, result, parse_expression("broker.cpu"))
    assert missing.figure is None
    assert missing.counted
