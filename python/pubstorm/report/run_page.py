"""The page of a run: the parts that no other report has."""

from __future__ import annotations

from typing import Any

from pubstorm.quantities import span_text
from pubstorm.report.backdrop import MARKS_MAX, marks
from pubstorm.report.document import Document, Table
from pubstorm.report.faults import fault_ledger, faults
from pubstorm.report.key_figures import key_figures
from pubstorm.report.page import page, script_json
from pubstorm.report.percentiles import percentile_plot
from pubstorm.report.publishers import publishers, subscribers
from pubstorm.report.stored import StoredRun
from pubstorm.report.summary import problems, samplers, stalls
from pubstorm.report.tables import environment, own_table, phases
from pubstorm.report.timeline import other_tracks, timeline
from pubstorm.report.watched import symbols
from pubstorm.result import Result

FILES = {
    "result.json": "the whole result: figures, histograms, verdict",
    "report.md": "the tables of this page as Markdown",
    "junit.xml": "thresholds and validity as test cases, for CI systems",
    "samples.csv": "every reading over time: seconds, source, metric, value, repeated or not",
    "latencies.hlog": "the latency histograms as an HdrHistogram log, in nanoseconds",
    "snapshots.jsonl": "snapshots of each agent, one an interval",
    "scenario.yaml": "the scenario as it was written",
    "start.json": "start time, place and agents",
    "plan.json": "the plan, with every choice made",
    "environment.json": "the machine and the programs",
    "profile": "the profile of the broker",
    "topology": "configuration and logs of the brokers that the run started",
    "logs": "logs of the agents",
}
"""Content of a run directory, in the order of the page."""


def run_page(run: StoredRun, document: Document) -> str:
    """Returns the text of `report.html`."""
    result = run.result
    over_time, others = timeline(result, run.tracks), other_tracks(result, run.tracks)
    percentiles = percentile_plot(result)
    first = _first_tables(result)
    titles = {table.title for table in first} | {(profiled := symbols(result)).title}
    return page(
        document,
        [*over_time, *others, *([percentiles] if percentiles else [])],
        template="run.html.j2",
        result=result,
        key_figures=key_figures(result),
        first_tables=first,
        tables=[table for table in document.tables if table.title not in titles],
        profiled=profiled,
        environment=environment(result),
        marks=[(mark, span_text(mark.at_s)) for mark in marks(result)],
        marks_max=MARKS_MAX,
        timeline=[plot for plot in over_time if not plot.is_flat],
        flat=[plot for plot in over_time if plot.is_flat],
        others=others,
        tracks_problem=run.tracks_problem,
        percentiles=percentiles,
        flame=script_json(flame_tree(run.folded.text)),
        flame_problem=_flame_problem(run),
        scenario=run.scenario,
        files=[(f, text) for f, text in FILES.items() if (run.path / f).exists()],
    )


def _first_tables(result: Result) -> list[Table]:
    """Returns the tables that the page shows beside the key figures."""
    found = (
        own_table(result),
        phases(result),
        faults(result),
        fault_ledger(result),
        publishers(result),
        subscribers(result),
        samplers(result),
        problems(result),
        stalls(result),
    )
    return [table for table in found if table.rows]


def _flame_problem(run: StoredRun) -> str | None:
    """Returns why there is no flame graph; None if there is one, or no profile."""
    profile = run.result.profile
    if profile is None:
        return None
    if profile.status == "missing":
        return profile.text
    if run.folded.problem is not None:
        return run.folded.problem
    return None if flame_tree(run.folded.text) else "the profile holds no folded stack"


SHARE_MIN = 0.0005
"""Frames in less than this share of the samples are too narrow to be seen and left out."""
DEPTH_MAX = 200
"""Deeper frames are left out."""


class _Frame:
    """A function as called from one place."""

    __slots__ = ("calls", "samples")

    def __init__(self) -> None:
        self.samples = 0
        self.calls: dict[str, _Frame] = {}


def flame_tree(folded: str) -> dict[str, Any] | None:
    """The tree of `a;b;c count` lines, as JSON: name, samples, and the frames called, the largest
    first. Lines of another form are left out; None where nothing remains."""
    root = _Frame()
    for line in folded.splitlines():
        stack, _, written = line.rpartition(" ")
        if not stack or not (written.isascii() and written.isdecimal()) or not int(written):
            continue
        samples, frame = int(written), root
        root.samples += samples
        for name in stack.split(";")[:DEPTH_MAX]:
            frame = frame.calls.setdefault(name, _Frame())
            frame.samples += samples
    return _as_json("all", root, root.samples * SHARE_MIN) if root.samples else None


def _as_json(name: str, frame: _Frame, least: float) -> dict[str, Any]:
    shown = [call for call in frame.calls.items() if call[1].samples >= least]
    shown.sort(key=lambda call: -call[1].samples)
    calls = [_as_json(name, call, least) for name, call in shown]
    return {"n": name, "v": frame.samples, **({"c": calls} if calls else {})}
