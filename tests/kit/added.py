"""A copy of the package with one counter, one histogram and one monitor more. `python -m
tests.kit.added FOLDER`, with the copy as the package, prints as JSON where they appear in a
recorded run."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[2] / "python/pubstorm"
RUN = "qos"
"""The recorded run whose snapshots get the counter and the histogram."""
Files = Mapping[str, Mapping[str, str]]
"""Texts by file and by the text that each stands before; a new file has one text."""
COUNTER: Files = {
    "contract/snapshot.py": {
        "    left_total: Count = 0\n": """\
    throttled_total: Count = 0
    \"""Messages refused with quota exceeded.\"""
""",
    },
    "metrics/counters.py": {
        '    counter("connect_attempts"': """\
    counter(
        "throttled",
        basis=MESSAGES,
        columns=(ReportColumn("messages"), ReportColumn("live end"), ReportColumn("steps")),
        failures=Failures(99, "throttled", "messages were throttled", ("sent_total",)),
        export="Messages refused with quota exceeded",
    ),
""",
    },
}
HISTOGRAM: Files = {
    "contract/snapshot.py": {
        "    subscribe_time: Histogram = Histogram()\n": """\
    auth_time: Histogram = Histogram()
    \"""From AUTH to its answer.\"""
""",
    },
    "metrics/populations.py": {
        '    histogram(\n        "subscribe_time"': """\
    histogram(
        "auth_time",
        columns=(ReportColumn("connections", "AUTH", ("p50", "p99")),),
        export="From AUTH to its answer",
        tag="auth:{}",
    ),
""",
    },
    "result/measures.py": {
        "    subscribe_time_us: Latency = Latency()\n": """\
    auth_time_us: Latency = Latency()
    \"""Time from AUTH to its answer.\"""
""",
    },
}
MONITOR: Files = {
    "scenario/monitors.py": {
        "class MonitorSource(Part):\n": """\
class Valve(Monitorable):
    \"""A valve.\"""

    KIND: ClassVar[SourceKind] = "endpoint"
    METRICS: ClassVar[tuple[str, ...] | None] = ("flow_bytes_per_s",)

    url: Text


""",
        '''\
    process: Process | None = None
    """A process of this machine with its children."""
''': "    valve: Valve | None = None\n",
    },
    "metrics/monitors.py": {
        '    reading("used_memory_bytes"': """\
    reading("flow_bytes_per_s", "Bytes that pass.", lines=(page("process-disk", "flow"),)),
""",
    },
    "measure/monitors/valve.py": {
        "": """\
from pubstorm.measure.monitors import Reading


class ValveMonitor:
    def __init__(self, source):
        self.source = source

    def start(self):
        pass

    def read(self):
        yield Reading(1, "flow_bytes_per_s", 7.0)

    def stop(self):
        pass


def monitors_of(source, wanted, plan):
    yield ValveMonitor(source)
""",
    },
}


def add_to(folder: Path) -> None:
    """Copies the package into a folder, with the additions."""
    shutil.copytree(PACKAGE, folder / "pubstorm", ignore=shutil.ignore_patterns("__pycache__"))
    for name, texts in chain.from_iterable(each.items() for each in (COUNTER, HISTOGRAM, MONITOR)):
        path = folder / "pubstorm" / name
        found = path.read_text(encoding="utf-8") if path.exists() else ""
        for before, text in texts.items():
            assert not before or found.count(before) == 1, f"{name}: {before}"
            found = found.replace(before, text + before) if before else text
        path.write_text(found, encoding="utf-8")


def seen(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yields the places in which the additions appear, each with its content. `folder` gets the
    recorded run."""
    from pubstorm.contract.snapshot import SNAPSHOTS_FILE
    from tests.kit.recorded import unpack

    run = unpack(RUN, folder / RUN)
    lines = []
    for line in (run / SNAPSHOTS_FILE).read_text(encoding="utf-8").splitlines():
        snapshot = json.loads(line)
        for population in snapshot["populations"]:
            population["counters"]["throttled_total"] = 1
            population["auth_time"] = population["connect_time"]
        lines.append(f"{json.dumps(snapshot)}\n")
    (run / SNAPSHOTS_FILE).write_text("".join(lines), encoding="utf-8")
    yield from _in_run(run)
    yield from _in_scenario()


def _in_run(run: Path) -> Iterator[tuple[str, Any]]:
    from docs.generate import threshold_reference
    from pubstorm.experiment.series import DEFAULT_TABLE
    from pubstorm.metrics.expressions import parse_threshold
    from pubstorm.report.data import data_table
    from pubstorm.report.latencies import hdr_log
    from pubstorm.report.of_run import run_document
    from pubstorm.report.stored import RESULT_FILE
    from pubstorm.result.figures import evaluate
    from pubstorm.web.watch import Surroundings, Watch
    from tests.kit.replayed import Replay

    replay = Replay(run)
    result = replay.result()
    assert result is not None
    (run / RESULT_FILE).write_text(result.model_dump_json(), encoding="utf-8")
    stage = result.stages[-1].name
    for text in ("throttled > 0", f"throttled@{stage} > 0", "auth_time.p99 > 0ms"):
        yield text, str(evaluate(result, parse_threshold(text).expression))
    heads = {t.title: [c.name for c in t.columns] for t in run_document(result).tables}
    yield "tables", [*heads["Messages"], *heads["Connections"]]
    yield "problems", [problem.kind for problem in result.problems]
    yield (
        "data",
        [*data_table(result, run, "populations"), *data_table(result, run, "stage_populations")],
    )
    yield "exports", [family.name for family in replay.exports.tally.families()]
    yield "log", hdr_log(run, result).count("Tag=auth:")
    yield "series", [*DEFAULT_TABLE]
    watch = Watch(run, Surroundings())
    while watch.poll():
        pass
    yield "live page", watch.whole()["now"]["heads"]
    yield "reference", [line.split("|")[1].strip() for line in threshold_reference() if "|" in line]


def _in_scenario() -> Iterator[tuple[str, Any]]:
    from pubstorm.contract import Source
    from pubstorm.errors import PubstormError
    from pubstorm.measure.monitors.choice import maker_of
    from pubstorm.metrics.charts import lines_of
    from pubstorm.scenario import parse_scenario

    text = """
target: mqtt://localhost
populations: {a: {clients: 1, publications: [{topic: t, rate: 1/s}]}}
monitors: {sources: {main: {valve: {url: x}}}}
thresholds: [main.FLOW < 10MB/s]
"""
    scenario = parse_scenario(text.replace("FLOW", "flow"), file="s.yaml")
    wanted = scenario.monitors.sources["main"].wanted
    plan: Any = None
    (monitor,) = maker_of(type(wanted))(Source.single(wanted.KIND, "main"), wanted, plan)
    yield "readings", [(reading.metric, reading.value) for reading in monitor.read()]
    try:
        parse_scenario(text.replace("FLOW", "flaw"), file="s.yaml")
    except PubstormError as error:
        yield "error", str(error)
    yield "chart", [line.metric.name for line in lines_of("page", "process-disk")]


if __name__ == "__main__":
    json.dump(dict(seen(Path(sys.argv[1]))), sys.stdout)
