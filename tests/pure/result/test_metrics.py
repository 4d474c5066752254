"""Metric expressions: one grammar, and places in the result for every known metric."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pubstorm
from pubstorm.metrics import METRICS, OF_POPULATIONS, names_of
from pubstorm.metrics.charts import LIVE, PAGE, RUNS, SIDES
from pubstorm.metrics.expressions import Expression, parse_expression
from pubstorm.metrics.metric import READING_STATISTICS
from pubstorm.quantities import UnfitError
from pubstorm.result import PhasePopulation, PopulationResult, StagePopulation

ASKED = re.compile(r'(?:(?:_of|listed|_columns|_lines)\(|\("[A-Z][\w ]*", )"([a-z ]+)"')
"""A table of the registry that the program asks for, by a call or beside its title in a list."""
NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,9}", fullmatch=True)
SPANS = st.none() | st.from_regex(r"[+A-Za-z-]([ @=.A-Za-z0-9]{0,8}[A-Za-z0-9])?", fullmatch=True)
LABELS = st.just("") | st.from_regex(r'\{a="[ @.=<a-z]{0,6}"\}', fullmatch=True)
MONITORED = st.one_of(
    st.sampled_from(names_of("process", "host", "agent")),
    st.from_regex(r"\$SYS/[a-z]{1,5}( [a-z]{1,5})?(/[a-z0-9]{1,5}){0,2}", fullmatch=True),
    st.builds(str.__add__, st.from_regex(r"[a-z][a-z_:]{0,8}[a-z]", fullmatch=True), LABELS),
)


@st.composite
def expressions(draw: st.DrawFn) -> Expression:
    """Expressions of populations and monitors."""
    name, metric = draw(st.sampled_from([*OF_POPULATIONS.items()]))
    statistics = st.sampled_from(metric.statistics or [None])
    if draw(st.booleans()):
        subject = draw(st.none() | NAMES)
        return Expression(subject, name, draw(statistics), draw(SPANS))
    subject = draw(NAMES.filter(lambda name: name not in OF_POPULATIONS))
    watched = draw(MONITORED.filter(lambda name: name not in OF_POPULATIONS))
    statistic = draw(st.none() | st.sampled_from(READING_STATISTICS))
    return Expression(subject, watched, statistic, draw(SPANS))


@given(expressions())
def test_what_is_written_reads_as_what_it_was(expression: Expression) -> None:
    assert parse_expression(str(expression)) == expression


@given(st.text())
def test_any_text_is_an_expression_or_an_error_with_words(text: str) -> None:
    try:
        assert str(parse_expression(text)) == text.strip()
    except ValueError as error:
        assert str(error).startswith("found ")


@pytest.mark.parametrize(
    ("written", "allowed"),
    [
        ("bytes_per_connection", "is SUBJECT.bytes_per_connection"),
        ("took", "is took@STAGE"),
        ("device.took@load", "is took without a subject"),
        ("balance@load", "is balance without a span"),
        ("balance.max", "is balance alone: it is one number"),
        ("node.balance.p99", "is balance alone: it is one number"),
    ],
)
def test_a_metric_of_a_run_is_written_with_what_it_needs(written: str, allowed: str) -> None:
    with pytest.raises(UnfitError, match=re.escape(allowed)):
        parse_expression(written)


@pytest.mark.parametrize(
    "written",
    ["host.bytes_per_connection", "balance", "node.balance", "took@load", "connects_per_s"],
)
def test_a_metric_of_a_run_has_a_unit_and_reads_as_what_it_was(written: str) -> None:
    expression = parse_expression(written)
    assert str(expression) == written
    assert expression.is_of_run
    assert expression.unit == expression.figure.unit


def test_every_metric_of_populations_is_in_the_result_and_those_of_spans_in_theirs() -> None:
    for name, metric in OF_POPULATIONS.items():
        found: object = PopulationResult(clients=1)
        for step in (*metric.path, *metric.statistics[:1]):
            found = getattr(found, step)
        assert isinstance(found, int | float), name
        (field, *_) = (step for step in metric.path if step != "rates")
        assert ("stage" in metric.spans) == (field in StagePopulation.model_fields), name
        kept = field in PhasePopulation.model_fields and "actual" not in metric.path
        assert ("phase" in metric.spans) == kept, name


def test_every_counter_of_a_result_is_a_metric() -> None:
    metrics = {metric.field for metric in METRICS if "population" in metric.of}
    counters = {name for name in StagePopulation.model_fields if name.endswith("_total")}
    # Expressions ask for the clients that are connected, and for the loss of a flow.
    assert counters - metrics == set()
    assert counters - {metric.at for metric in OF_POPULATIONS.values()} == {
        "connected_total",
        "missing_total",
    }


def test_each_table_with_columns_is_asked_for() -> None:
    package = Path(pubstorm.__file__).parent
    texts = [path.read_text(encoding="utf-8") for path in package.rglob("*.py")]
    asked = {name for text in texts for name in ASKED.findall(text)}
    assert {column.table for metric in METRICS for column in metric.columns} <= asked


def test_each_chart_has_lines_and_each_line_a_chart() -> None:
    views = {"page": PAGE, "live": LIVE, "sides": SIDES, "runs": RUNS}
    charts = {(view, chart.key) for view, found in views.items() for chart in found}
    lines = Counter((line.view, line.chart) for metric in METRICS for line in metric.lines)
    assert charts == lines.keys()
    assert {count for (view, _), count in lines.items() if view in {"sides", "runs"}} == {1}


def test_no_source_has_two_metrics_of_a_name() -> None:
    names = Counter(
        (owner, name, bool(metric.at))
        for metric in METRICS
        for owner in metric.of
        for name in metric.names
    )
    assert [name for name, count in names.items() if count > 1] == []
