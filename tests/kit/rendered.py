"""Renders a recorded run to text: everything that its user can see. Each section is a list of
lines, each of which begins with what it is about, so that a difference shows where it is."""

from __future__ import annotations

import difflib
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from pubstorm.exports import Run, otlp
from pubstorm.exports.tally import Family
from pubstorm.metrics.expressions import parse_expression
from pubstorm.quantities import UnfitError
from pubstorm.report.data import PARTS, data_table
from pubstorm.report.files import junit, markdown
from pubstorm.report.latencies import hdr_log, percentile_plot
from pubstorm.report.of_run import run_document
from pubstorm.report.overlay import Played, compared, course, overlaid
from pubstorm.report.plot import Plot
from pubstorm.report.stored import RESULT_FILE
from pubstorm.report.timeline import other_tracks, timeline
from pubstorm.result import RunResult
from pubstorm.result.figures import Missing, evaluate, nothing_behind
from pubstorm.result.samples import SAMPLES_FILE, csv_lines
from pubstorm.web.metrics import Figures, encoded
from pubstorm.web.watch import Surroundings, Watch
from tests.kit.recorded import FOLDER, PLACE
from tests.kit.replayed import Replay, salvaged

Section = Iterator[str]
METRICS_FILE = FOLDER / "metrics.txt"
"""Names of metrics that expressions are asked for: those of runs and populations, and after a
blank line those of monitors."""
OF_PLACE = {"run_directory", "ended"}
"""Parts of a result that its place and the time of its making decide."""
STATISTICS = (
    *(None, "mean", "min", "p50", "p90", "p95", "p99", "p999", "max"),
    *("first", "last", "increase", "rate", "fairness", "all"),
)
"""Statistics that expressions are asked for."""


def rendered(folder: Path) -> dict[str, list[str]]:
    """Returns the sections of a run by their names. The folder gets the result that they show."""
    stored, kept = _stored(folder), salvaged(folder)
    replay = Replay(folder)
    exact = replay.result()
    result = exact or kept
    whole = [*flat(result)]
    sections: dict[str, Iterable[str]] = {
        "result": whole,
        "stored result, where it differs": _differences(whole, stored) if exact else [],
        "salvaged result, where it differs": _differences(whole, [*flat(kept)]),
        "report": _report(result),
        "figures": figures(result),
        "plots": _plots(result, replay),
        "live page": _live(folder),
        "tables": _tables(result, folder),
        "histogram log": _log(result, folder),
        "samples of the load, where they differ": _samples(replay, folder),
        "exports halfway": _exports(replay.exports.run, replay.halfway),
        "exports": _exports(replay.exports.run, replay.exports.tally.families()),
    }

    def placeless(line: str) -> str:
        return line.replace(str(folder), "RUN").replace(f"{PLACE}/{folder.name}", "RUN")

    return {name: [*map(placeless, lines)] for name, lines in sections.items()}


def flat(value: object) -> Iterator[str]:
    """Yields a value as lines of a path and a scalar. Zeros and empty parts are left out, so that a
    field that a run does not use makes no line. Buckets of histograms are a checksum."""
    yield from (f"{path}: {text}" for path, text in _leaves("", _plain(value)))


def _leaves(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        if "buckets" in value:
            value = {**value, "buckets": _checksum(value["buckets"])}
        for name, part in value.items():
            yield from _leaves(f"{path}.{name}" if path else str(name), part)
    elif isinstance(value, list | tuple) and any(isinstance(p, Mapping | list) for p in value):
        for number, part in enumerate(value):
            yield from _leaves(f"{path}[{number}]", part)
    elif value not in (None, "", 0, [], ()):
        yield path, _text(value)


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def _text(value: object) -> str:
    """Returns a scalar as text. Sums of floats may be in any order."""
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    return str(value).replace("\n", "\\n")


def _checksum(value: object) -> str:
    return f"{zlib.crc32(json.dumps(value).encode()):08x}" if value else ""


def _differences(wanted: Sequence[str], found: Sequence[str]) -> Section:
    """Yields the lines that only one of two texts has."""
    for line in difflib.unified_diff(sorted(wanted), sorted(found), n=0, lineterm=""):
        if not line.startswith(("---", "+++", "@@")) and line[1:].split(":")[0] not in OF_PLACE:
            yield line


def _report(result: RunResult) -> Section:
    document = run_document(result)
    for figure in (*document.key_figures, *document.more_figures):
        yield f"key figure: {figure.name}: {figure.value} ({figure.note}) {figure.status or ''}"
    yield from markdown(document).splitlines()
    yield from junit(document).splitlines()


def figures(result: RunResult) -> Section:
    """Yields the value of each expression that the result may be asked, or why it has none: a line
    for each metric of a subject, with statistics and spans that have one value together."""
    names = [stage.name for stage in result.stages]
    names += [phase.name for phase in result.phases]
    names += [fault.name for fault in result.faults]
    spans = ["", *dict.fromkeys(f"@{name}" for name in names)]
    for subject, metrics in _subjects(result).items():
        for metric in metrics:
            outcomes: dict[str, list[str]] = defaultdict(list)
            for statistic in STATISTICS:
                body = ".".join(part for part in (subject, metric, statistic) if part)
                for span in spans:
                    outcome = _outcome(result, f"{body}{span}")
                    if outcome is not None:
                        outcomes[outcome].append(f"{statistic or ''}{span}")
                    elif span:
                        break
            for outcome, asked in outcomes.items():
                yield f"{subject or ''}.{metric}: {outcome}: {' '.join(asked)}"


def _subjects(result: RunResult) -> Mapping[str | None, Sequence[str]]:
    """Returns the metrics to ask of each subject, also those that it does not have."""
    names, others = map(str.split, METRICS_FILE.read_text(encoding="utf-8").split("\n\n"))
    monitored: dict[str, dict[str, None]] = defaultdict(dict)
    for each in result.monitors:
        for name in (each.source, each.group):
            monitored[name][each.metric] = None
    found: dict[str | None, Sequence[str]] = {None: [*names, *others]}
    for name in (*result.populations, *result.wholes, "target"):
        found[name] = [*names, *(n for n in monitored.pop(name, ()) if n not in names)]
    for bridge in result.bridges:
        monitored.setdefault(bridge.name, {})
    return {**found, **{name: (*metrics, "balance") for name, metrics in monitored.items()}}


def _outcome(result: RunResult, text: str) -> str | None:
    """Returns the value of an expression; None if there is no such expression."""
    try:
        expression = parse_expression(text)
        found = evaluate(result, expression)
    except (UnfitError, KeyError):  # only a scenario checks the statistics of monitors
        return None
    about = nothing_behind(result, expression)
    if isinstance(found, Missing):
        return " | ".join(part for part in (found.reason, found.word, about) if part)
    bound = f" ± {_text(found.bound)}" if found.bound else ""
    return f"{_text(found.value)} {found.unit}{bound}{f' | {about}' if about else ''}"


def grammar() -> Section:
    """Yields for each expression whether it can be parsed, with its unit or the refusal."""
    for name in METRICS_FILE.read_text(encoding="utf-8").split():
        for metric in (name, f"{name}_total"):
            for statistic in STATISTICS:
                for subject, span in product((None, "device"), (None, "load")):
                    body = ".".join(part for part in (subject, metric, statistic) if part)
                    text = body if span is None else f"{body}@{span}"
                    try:
                        yield f"{text}: {parse_expression(text).unit}"
                    except UnfitError as unfit:
                        yield f"{text}: {unfit} | {unfit.hint}"


def _plots(result: RunResult, replay: Replay) -> Section:
    tracks = replay.tracks
    played = {name: [Played(result, tracks)] for name in ("one", "other")}
    courses = [course(name, result, tracks) for name in played]
    percentiles = percentile_plot(result)
    plots: list[Plot] = [
        *timeline(result, tracks),
        *other_tracks(result, tracks),
        *([percentiles] if percentiles else []),
        *compared(courses),
        *overlaid(played),
    ]
    for plot in plots:
        yield f"{plot.key}: {plot.title} | {plot.caption} | {plot.part} {plot.is_flat}"
        yield f"{plot.key}: {json.dumps(plot.figure['layout'], ensure_ascii=False)}"
        for trace in plot.figure["data"]:
            yield f"{plot.key}: {json.dumps(trace, ensure_ascii=False)}"


def _live(folder: Path) -> Section:
    watch = Watch(folder, Surroundings())
    while watch.poll():
        pass
    whole = watch.whole()
    for chart in whole["charts"]:
        for line in chart.pop("lines"):
            values = json.dumps(whole["values"].get(line["id"]))
            yield f"{chart['key']}: {line['label']} {line['colour']}: {values}"
        yield f"chart: {json.dumps(chart)}"
    for part in ("run", "width", "events", "stages", "now"):
        yield f"{part}: {json.dumps(whole[part], ensure_ascii=False)}"


def _tables(result: RunResult, folder: Path) -> Section:
    """Yields a line with a checksum for each column of each table for programs."""
    for name in (*PARTS, "intervals", "samples"):
        for column, cells in data_table(result, folder, name).items():
            yield f"{name}.{column}: {len(cells)} {_checksum(cells)}"


def _log(result: RunResult, folder: Path) -> Section:
    for line in hdr_log(folder, result).splitlines():
        tag, _, histogram = line.rpartition(",")
        yield f"{tag}, {_checksum(histogram)}" if tag.startswith("Tag=") else line


def _samples(replay: Replay, folder: Path) -> Section:
    """Yields the samples of populations and agents that differ from the stored ones."""
    made = [line.rstrip("\n") for line in csv_lines(replay.samples)]
    lines = (folder / SAMPLES_FILE).read_text(encoding="utf-8").splitlines()
    tracks = {tuple(line.split(",")[1:4]) for line in made}
    stored = [line for line in lines if tuple(line.split(",")[1:4]) in tracks]
    yield from _differences(made, stored)


def _exports(run: Run, families: Sequence[Family]) -> Section:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Figures(families, has_native=False))
    buckets: dict[str, list[str]] = defaultdict(list)
    for line in generate_latest(registry).decode().splitlines():
        name, _, value = line.rpartition(" ")
        if "_bucket{" in name:
            buckets[re.sub(r'le="[^"]*",?', "", name)].append(value)
        else:
            yield line
    yield from (f"{name} {' '.join(values)}" for name, values in buckets.items())
    yield f"protobuf: {zlib.crc32(encoded(families)):08x}"
    for resource in json.loads(otlp._data(run, families).to_json())["resource_metrics"]:
        for metric in resource["scope_metrics"][0]["metrics"]:
            points = metric["data"].pop("data_points")
            yield f"OTLP {metric['name']}: {json.dumps(metric)}"
            for point in points:
                del point["time_unix_nano"]
                yield f"OTLP {metric['name']}: {json.dumps(point)}"


def _stored(folder: Path) -> list[str]:
    """Returns the result that the controller stored; empty if it was killed."""
    path = folder / RESULT_FILE
    return [*flat(json.loads(path.read_text(encoding="utf-8")))] if path.exists() else []
