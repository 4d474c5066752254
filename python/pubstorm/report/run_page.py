"""The page of a run, `report.html`: its parts in the order in which they are read."""

from __future__ import annotations

from pubstorm.quantity import span_text
from pubstorm.report.backdrop import MARKS_MAX, marks
from pubstorm.report.faults import fault_ledger, faults
from pubstorm.report.flame import flame_tree
from pubstorm.report.key_figures import key_figures
from pubstorm.report.outcomes import mark, word
from pubstorm.report.page import figures, library, page, script_json
from pubstorm.report.percentiles import percentile_plot
from pubstorm.report.publishers import publishers, subscribers
from pubstorm.report.stored import StoredRun
from pubstorm.report.summary import problems, samplers, stalls
from pubstorm.report.tables import detail_tables, environment, facts, own_table, phases, tables
from pubstorm.report.timeline import other_tracks, timeline
from pubstorm.report.watched import symbols

FILES = {
    "result.json": "the whole result: figures, histograms, verdict",
    "report.md": "the tables of this page as Markdown",
    "junit.xml": "thresholds and validity as test cases, for CI systems",
    "samples.csv": "every reading over time: seconds, source, metric, value, repeated or not",
    "latencies.hlog": "the latency histograms as an HdrHistogram log, in nanoseconds",
    "snapshots.jsonl": "what each engine reported, once an interval",
    "scenario.yaml": "the scenario as it was written",
    "start.json": "when, where and on which agents it began",
    "plan.json": "the plan, with every choice made",
    "environment.json": "the machine and the programs",
    "profile": "the profile of the broker",
    "topology": "configuration and logs of the brokers that the run started",
    "logs": "logs of the engines",
}
"""What a run directory holds, in the order in which the page lists it."""


def run_page(run: StoredRun) -> str:
    """The text of `report.html`."""
    result = run.result
    over_time, others = timeline(result, run.tracks), other_tracks(result, run.tracks)
    percentiles = percentile_plot(result)
    plots = [*over_time, *others, *([percentiles] if percentiles else [])]
    first = [
        own_table(result),
        phases(result),
        faults(result),
        fault_ledger(result),
        publishers(result),
        subscribers(result),
        samplers(result),
        problems(result),
        stalls(result),
    ]
    profiled = symbols(result)
    return page(
        "run.html.j2",
        title=result.name,
        result=result,
        mark=mark,
        word=word,
        facts=facts(result),
        key_figures=key_figures(result),
        first_tables=[table for table in first if table.rows],
        tables=[table for table in tables(result) if table not in (*first, profiled)],
        profiled=profiled,
        detail_tables=detail_tables(result),
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
        figures=figures(plots),
        library=library() if plots else "",
    )


def _flame_problem(run: StoredRun) -> str | None:
    """Why there is no flame graph; None: there is one, or there was nothing to profile."""
    profile = run.result.profile
    if profile is None:
        return None
    if profile.status == "missing":
        return profile.text
    if run.folded.problem is not None:
        return run.folded.problem
    return None if flame_tree(run.folded.text) else "the profile holds no folded stack"
