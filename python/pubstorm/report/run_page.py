"""The page of a run: the parts that no other report has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pubstorm.quantities import span_text
from pubstorm.report.backdrop import MARKS_MAX, marks
from pubstorm.report.document import Document, word
from pubstorm.report.latencies import percentile_plot
from pubstorm.report.layout import Table
from pubstorm.report.page import page, script_json
from pubstorm.report.plot import Part, Plot
from pubstorm.report.stored import StoredRun
from pubstorm.report.tables import environment
from pubstorm.report.timeline import other_tracks, timeline
from pubstorm.result import RunResult, ThresholdOutcome

FILES = {
    "result.json": "the whole result: figures, histograms, verdict",
    "report.md": "the tables of this page as Markdown",
    "junit.xml": "thresholds and validity as test cases, for CI systems",
    "samples.csv": "every sample over time: seconds, kind, source, metric, value, repeated",
    "latencies.hlog": "the latency histograms by interval as an HdrHistogram log, in nanoseconds",
    "events.jsonl": "events, starts of stages and sources, as they happened",
    "snapshots.jsonl": "snapshots of each agent, one an interval",
    "journal": "older samples and snapshots of a long run, compressed and merged with age",
    "scenario.yaml": "the scenario as it was written",
    "start.json": "start time, place and agents",
    "plan.json": "the plan, with every choice made",
    "environment.json": "the machine and the programs",
    "profile": "the profile of the broker",
    "topology": "configuration and logs of the brokers that the run started",
    "logs": "logs of the agents",
}
"""Content of a run directory, in the order of the page."""
THRESHOLDS_MAX = 8
"""Thresholds that stand open, beside missed ones."""


@dataclass(frozen=True)
class Section:
    """A section of the page: what stands open, and what is folded."""

    part: Part
    title: str
    tables: Sequence[Table] = ()
    plots: Sequence[Plot] = ()
    more_plots: Sequence[Plot] = ()
    more_tables: Sequence[Table] = ()
    missing: str = ""
    """Text in place of a section with nothing in it; empty: such a section is left out."""


def run_page(run: StoredRun, document: Document) -> str:
    """Returns the text of `report.html`."""
    result = run.result
    over_time, others = timeline(result, run.tracks), other_tracks(result, run.tracks)
    percentiles = percentile_plot(result)
    plots = [*over_time, *([percentiles] if percentiles else [])]
    moving = [plot for plot in plots if not plot.is_flat]
    no_tracks = f"There are no plots over time: {run.tracks_problem or 'no reading fits one'}."
    return page(
        document,
        [*plots, *others],
        template="run.html.j2",
        result=result,
        thresholds=_thresholds(document),
        sections=_sections(result, document, moving),
        detail_tables=[*(t for t in document.tables if t.part == "details"), *document.details],
        tracks_problem="" if over_time else no_tracks,
        environment=environment(result),
        marks=[(mark, span_text(mark.at_s)) for mark in marks(result)],
        marks_max=MARKS_MAX,
        flat=[plot for plot in plots if plot.is_flat],
        others=others,
        flame=script_json(flame_tree(run.folded.text)),
        flame_problem=_flame_problem(run),
        scenario=run.scenario,
        files=[(f, text) for f, text in FILES.items() if (run.path / f).exists()],
    )


def _sections(result: RunResult, document: Document, moving: Sequence[Plot]) -> list[Section]:
    """Returns the sections between the verdict and the details. The first plot of each stands
    open, and so does every table of what happened."""
    tested = "publisher" if result.publishers else "broker"
    found = []
    titles: tuple[tuple[Part, str, str], ...] = (
        ("happened", "What happened", ""),
        ("load", "Load", "No client sent or received anything."),
        ("latency", "Latency", "No latency was measured."),
        ("broker", tested.capitalize(), f"Nothing of the {tested} was watched."),
        ("generator", "Generator", "Nothing of the generator was watched."),
    )
    for part, title, missing in titles:
        plots = [plot for plot in moving if plot.part == part]
        tables = [table for table in document.tables if table.part == part]
        if part == "happened":
            found.append(Section(part, title, tables=tables))
        else:
            missing = "" if plots or tables else missing
            found.append(Section(part, title, (), plots[:1], plots[1:], tables, missing))
    return found


def _thresholds(document: Document) -> tuple[list[ThresholdOutcome], list[ThresholdOutcome]]:
    """Returns the thresholds that stand open, and the folded ones: of many those that passed."""
    every = list(document.verdict.thresholds) if document.verdict else []
    if len(every) <= THRESHOLDS_MAX:
        return every, []
    bad = [each for each in every if word(each) != "passed"]
    good = [each for each in every if word(each) == "passed"]
    kept = max(THRESHOLDS_MAX - len(bad), 0)
    return bad + good[:kept], good[kept:]


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
