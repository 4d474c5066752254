"""A verdict as JUnit XML, which CI systems show: each threshold is a test case, the validity of the
run is one, and whether the target itself failed is one. The findings are its output. Of a series
each step is a test case, of a search what it has to find."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from xml.etree import ElementTree

from pubstorm.report.key_figures import key_figures
from pubstorm.report.search import answer_facts
from pubstorm.result import Result, SearchResult, Series, SeriesStep, Status

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold."""


def junit(result: Result) -> str:
    """The text of `junit.xml`."""
    verdict = result.verdict
    invalid = _evidence(result) if _is(result, Status.INVALID) else None
    cases = [_case("run is valid", invalid, result.duration_s)]
    missed = any(threshold.missed for threshold in verdict.thresholds)
    failed_otherwise = _is(result, Status.FAIL) and not missed
    cases.append(_case("target did not fail", _evidence(result) if failed_otherwise else None))
    for threshold in verdict.thresholds:
        case = _case(threshold.label, threshold.text if threshold.missed else None)
        if threshold.undecided:
            ElementTree.SubElement(case, "skipped", message=_xml(threshold.text))
        cases.append(case)
    return _document(_suite(result.name, result.started, cases, _findings(result)))


def series_junit(series: Series) -> str:
    """The text of a series' `junit.xml`."""
    cases = [_step_case(step) for step in series.steps]
    said = [series.text, f"run directory: {series.run_directory}"]
    return _document(_suite(series.name, series.started, cases, "\n".join(said)))


def search_junit(search: SearchResult) -> str:
    """The text of a search's `junit.xml`."""
    answer, status = search.answer, search.status
    said = [answer.text, *(f"{name}: {value}" for name, value in answer_facts(search))]
    facts = "\n".join(said)
    invalid = status is Status.INVALID
    took_s = math.fsum(point.duration_s for point in search.points)
    cases = [
        _case("points could be counted", facts if invalid else None, took_s),
        _case("a value holds", facts if answer.best is None and not invalid else None),
        _case("the answer held again", facts if answer.confirmed is False else None),
    ]
    said.append(f"run directory: {search.run_directory}")
    return _document(_suite(search.name, search.started, cases, "\n".join(said)))


def _step_case(step: SeriesStep) -> ElementTree.Element:
    name = f"{step.number}: {step.name}"
    if step.status is None and step.problem is None:
        case = _case(name, None)
        ElementTree.SubElement(case, "skipped", message=step.unfit or step.outcome)
        return case
    facts = "\n".join((step.outcome, *((step.problem,) if step.problem else step.evidence)))
    return _case(name, None if step.status is Status.PASS else facts, step.duration_s)


def _suite(
    name: str, started: str, cases: Sequence[ElementTree.Element], findings: str
) -> ElementTree.Element:
    for case in cases:
        case.set("classname", _xml(name))
    failures, skipped = (
        sum(case.find(outcome) is not None for case in cases) for outcome in ("failure", "skipped")
    )
    suite = ElementTree.Element(
        "testsuite",
        name=_xml(name),
        tests=str(len(cases)),
        failures=str(failures),
        errors="0",
        skipped=str(skipped),
        time=f"{math.fsum(float(case.get('time', 0)) for case in cases):.3f}",
        timestamp=started,
    )
    suite.extend(cases)
    ElementTree.SubElement(suite, "system-out").text = _xml(findings)
    return suite


def _case(name: str, failure: str | None, took_s: float = 0.0) -> ElementTree.Element:
    """A test case. A run takes its time for the first of its cases."""
    case = ElementTree.Element("testcase", name=_xml(name), time=f"{took_s:.3f}")
    if failure is not None:
        element = ElementTree.SubElement(case, "failure", message=_xml(failure.split("\n")[0]))
        element.text = _xml(failure)
    return case


def _is(result: Result, status: Status) -> bool:
    return result.verdict.status is status


def _evidence(result: Result) -> str:
    return "\n".join(result.verdict.evidence) or f"limited by {result.verdict.limited_by}"


def _findings(result: Result) -> str:
    verdict = result.verdict
    lines = [verdict.headline] if verdict.headline else []
    lines += [f"{str(verdict.status).upper()}, limited by {verdict.limited_by}", *verdict.evidence]
    lines += [f"{figure.name}: {figure.value} ({figure.note})" for figure in key_figures(result)]
    lines += [f"{problem.kind}: {problem.text}" for problem in result.problems]
    lines += [f"{event.at_s:.1f} s {event.kind}: {event.text}" for event in result.events]
    lines.append(f"run directory: {result.run_directory}")
    return "\n".join(lines)


def _xml(text: str) -> str:
    return NOT_XML.sub("\ufffd", text)


def _document(suite: ElementTree.Element) -> str:
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    text = ElementTree.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'
