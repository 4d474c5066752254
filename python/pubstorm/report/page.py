"""A report as an HTML page: one file with style, script and Plotly, which fetches nothing. Compiled
templates are kept between commands."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from jinja2 import BytecodeCache, Environment, PackageLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup

from pubstorm.output import without_controls
from pubstorm.quantities import span_text
from pubstorm.report.document import Document, mark, word
from pubstorm.report.latencies import percentile_plot
from pubstorm.report.layout import Table
from pubstorm.report.plot import Part, Plot
from pubstorm.report.stored import StoredRun
from pubstorm.report.tables import environment
from pubstorm.report.timeline import MARKS_MAX, marks, other_tracks, timeline
from pubstorm.result import RunResult, ThresholdOutcome


def page(
    document: Document,
    plots: Sequence[Plot] = (),
    template: str = "experiment.html.j2",
    **parts: Any,
) -> str:
    """Returns the text of `report.html`. `plots` and `parts` are those that only this template
    knows. Everything is escaped except Markup."""
    own = [plot for section in document.plots for plot in section.plots]
    every = [*own, *(plot for item in document.items for plot in item.plots), *plots]
    rendered = _environment().get_template(template)
    text = rendered.render(
        title=document.title,
        document=document,
        mark=mark,
        word=word,
        figures=_figures(every),
        library=library() if every else "",
        **parts,
    )
    return without_controls(text)


class _Compiled(BytecodeCache):
    """Keeps compiled templates, each with a checksum of its source."""

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fills a template's bucket, if it is kept."""
        if (found := kept(f"template-{bucket.key}")) is not None:
            bucket.bytecode_from_string(found)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keeps a template."""
        keep(f"template-{bucket.key}", bucket.bytecode_to_string())


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("pubstorm.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=_Compiled(),
    )
    environment.filters["breakable"] = _breakable
    return environment


WORD_CHARS_MAX = 16
"""Longer words may break after a dot, an underscore or a slash."""


def _breakable(text: str) -> Markup:
    """Returns a text whose long words, such as paths of settings, break between their parts."""
    words = (
        re.sub(r"(?<=[._/])(?=\w)", "\0", word) if len(word) > WORD_CHARS_MAX else word
        for word in text.split(" ")
    )
    return Markup("<wbr>").join(" ".join(words).split("\0"))


@cache
def library() -> str:
    """Returns Plotly, compressed, as base64, which the browser unpacks: half the size of the page.
    Raises FileNotFoundError if no install has put it beside this file."""
    return base64.b64encode(Path(__file__).with_name("plotly.js.gz").read_bytes()).decode("ascii")


def _figures(plots: Sequence[Plot]) -> Markup:
    return script_json({plot.key: {**plot.figure, "linked": plot.linked} for plot in plots})


def script_json(value: object) -> Markup:
    """Returns JSON for a script element, which ends at `</`: no text in the JSON can end it."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def kept(name: str) -> bytes | None:
    """Returns the content of this name; None if there is none, or if it is another user's, whose
    code is not to run here."""
    with suppress(OSError, RuntimeError), (_folder() / name).open("rb") as file:
        if os.fstat(file.fileno()).st_uid == os.geteuid():
            return file.read()
    return None


def keep(name: str, content: bytes) -> None:
    """Keeps a content, unless its folder cannot be written. Another command sees all or nothing."""
    with suppress(OSError, RuntimeError):
        folder = _folder()
        folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder, delete=False) as file:
            fresh = Path(file.name)
            try:
                file.write(content)
                file.flush()
                fresh.replace(folder / name)
            except OSError:
                fresh.unlink()


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "pubstorm")


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
