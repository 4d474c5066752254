"""Any percentile of a time, of the whole run, of a stage and of a phase, is read from its stored
distribution: no scenario has to name it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from pubstorm.metrics import OF_POPULATIONS
from pubstorm.metrics.expressions import Expression
from pubstorm.metrics.monitors import OF_PUBLISHERS
from pubstorm.result import RunResult
from pubstorm.result.figures import distribution, evaluate
from pubstorm.result.interval import Found
from tests.kit.recorded import unpack
from tests.kit.replayed import Replay

RUNS = ("steps", "requests", "shares", "wills", "zeromq")
"""Recorded runs with changes, requests, shares, deaths and publishers."""


@pytest.fixture(scope="module", params=RUNS)
def result(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    found = Replay(unpack(request.param, tmp_path_factory.mktemp("recorded"))).result()
    assert found is not None
    return RunResult.model_validate_json(found.to_json())


def times(result: RunResult) -> Iterator[Expression]:
    """Yields the p99 of each time that the run or a span of it has."""
    spans: dict[str | None, str] = {None: ""}
    spans |= {phase.name: "phase" for phase in result.phases}
    spans |= {stage.name: "stage" for stage in result.stages}
    for metric in OF_POPULATIONS.values():
        for span, kind in spans.items():
            if metric.kind == "histogram" and (span is None or kind in metric.spans):
                for subject in (None, *result.populations, *result.wholes):
                    expression = Expression(subject, metric.name, "p99", span)
                    if isinstance(evaluate(result, expression), Found):
                        yield expression


def lateness(result: RunResult) -> list[Expression]:
    """The p99 of the times of publishers under test."""
    return [
        Expression(name, metric.name, "p99")
        for metric in OF_PUBLISHERS
        if metric.kind == "histogram"
        for publisher in result.publishers
        for name in (publisher.name, publisher.population)
    ]


def test_each_time_has_each_percentile(result: RunResult) -> None:
    found = list(times(result))
    assert {expression.span is None for expression in found} == {True, False}
    for expression in (*found, *lateness(result)):
        for usual, other in (("p50", "p50.0"), ("p99", "p99.0"), ("p999", "p99.9")):
            same = [
                evaluate(result, replace(expression, statistic=statistic))
                for statistic in (usual, other)
            ]
            assert isinstance(same[0], Found) and same[0] == same[1], (str(expression), usual)
    for expression in found:
        known = distribution(result, expression)
        assert known is not None and known.count, str(expression)
