"""A report as JUnit XML, for CI systems."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

from pubstorm.output import without_controls
from pubstorm.report.document import Case, Document

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold."""


def junit(document: Document) -> str:
    """Returns the text of `junit.xml`."""
    cases = document.cases
    suite = ElementTree.Element(
        "testsuite",
        name=_xml(document.title),
        tests=str(len(cases)),
        failures=str(sum(case.failure is not None for case in cases)),
        errors="0",
        skipped=str(sum(case.skipped is not None for case in cases)),
        time=f"{math.fsum(case.took_s for case in cases):.3f}",
        timestamp=document.started,
    )
    suite.extend(_case(document.title, case) for case in cases)
    output = (*document.output, f"run directory: {document.run_directory}")
    ElementTree.SubElement(suite, "system-out").text = _xml("\n".join(output))
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    text = ElementTree.tostring(suites, encoding="unicode")
    return without_controls(f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n')


def _case(suite: str, case: Case) -> ElementTree.Element:
    took = f"{case.took_s:.3f}"
    element = ElementTree.Element(
        "testcase", name=_xml(case.name), time=took, classname=_xml(suite)
    )
    if case.failure is not None:
        message = _xml(case.failure.split("\n")[0])
        ElementTree.SubElement(element, "failure", message=message).text = _xml(case.failure)
    if case.skipped is not None:
        ElementTree.SubElement(element, "skipped", message=_xml(case.skipped))
    return element


def _xml(text: str) -> str:
    return NOT_XML.sub("\ufffd", text)
