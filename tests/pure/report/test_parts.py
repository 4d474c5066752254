"""Parts of latencies in reports: a bar and its shares for p50 and p99 of each stage."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest

from pubstorm.report import document_of, text
from pubstorm.report.files import markdown, run_files
from pubstorm.report.stored import load_run
from pubstorm.report.tables import BAR_WIDTH, PARTS, PARTS_MAX
from pubstorm.report.text import PlainConsole
from pubstorm.result import Latency, LatencyPair, LatencyParts, Parts, RunResult, StageResult
from tests.kit.example_run import Shape, write_run
from tests.kit.reading import Page

FAST = Parts(generator=10, rest=990)
SLOW = Parts(generator=100, window=6_000, socket=1_000, connection=900, rest=2_000)
NONE = Parts()


STARVED = Parts(rest=1_000, host_most=1_000)
RAN = Parts(rest=1_000, host_most=250)


def pair(p50: Parts, p99: Parts, scale: float = 1) -> LatencyPair:
    """A latency with these parts; from the send, it is the rest."""
    of = [scale * (p.generator + p.window + p.socket + p.connection + p.rest) for p in (p50, p99)]
    return LatencyPair(
        intended=Latency(count=9, p50=of[0], p99=of[1]),
        actual=Latency(count=9, p50=p50.rest, p99=p99.rest),
        parts=LatencyParts(p50=p50, p99=p99),
    )


def with_stages(run: RunResult, *stages: dict[str, dict[str, Any]]) -> RunResult:
    """The run with a publish stage for each of these: changes of its populations."""
    (publish, *_) = [stage for stage in run.stages if stage.kind == "publish"]
    some = next(iter(publish.populations.values())).model_copy(
        update={"latency_us": LatencyPair(), "ack_latency_us": LatencyPair()}
    )
    made: list[StageResult] = []
    for number, changes in enumerate(stages):
        populations = {name: some.model_copy(update=each) for name, each in changes.items()}
        update = {"name": f"stage {number}", "populations": populations}
        made.append(publish.model_copy(update=update))
    return run.model_copy(update={"stages": tuple(made)})


def test_a_run_without_known_parts_has_no_table(plain_run: RunResult) -> None:
    assert not PARTS.table(with_stages(plain_run, {"backend": {}})).rows


def test_each_stage_has_a_bar_for_p50_and_p99(plain_run: RunResult) -> None:
    trip = {
        "round_trip_us": Latency(count=9, p50=1000, p99=1000),
        "round_trip_parts": LatencyParts(p50=FAST, p99=FAST),
    }
    run = with_stages(
        plain_run,
        {"backend": {"latency_us": pair(FAST, SLOW)}},
        {"device": {"ack_latency_us": pair(SLOW, SLOW), **trip}},
    )
    table = PARTS.table(run)
    fast, slow = "·" * 20, "W" * 12 + "S" * 2 + "C" * 2 + "·" * 4
    assert [column.name for column in table.columns] == [
        *("stage", "population", "latency", "percentile", "time", "bar"),
        *("generator", "own window", "own socket", "own connection", "after send", "from send"),
    ]
    assert [(*row[:4], row[5]) for row in table.rows] == [
        ("stage 0", "backend", "delivery", "p50", fast),
        ("stage 0", "backend", "delivery", "p99", slow),
        ("stage 1", "device", "ack", "p50", slow),
        ("stage 1", "device", "ack", "p99", slow),
        ("stage 1", "device", "round trip", "p50", fast),
        ("stage 1", "device", "round trip", "p99", fast),
    ]
    assert table.rows[1][6:] == (0.01, 0.6, 0.1, 0.09, 0.2, 2_000)
    assert table.rows[5][-1] is None


def test_the_share_of_the_host_is_shown_where_it_has_a_bound(plain_run: RunResult) -> None:
    run = with_stages(plain_run, {"backend": {"latency_us": pair(STARVED, RAN)}})
    table = PARTS.table(run)
    assert [column.name for column in table.columns[-2:]] == ["host at most", "from send"]
    assert [row[-2] for row in table.rows] == [None, 0.25]


@pytest.mark.parametrize(
    "parts", [FAST, SLOW, Parts(window=1), Parts(generator=1, window=1, socket=1)]
)
def test_a_bar_has_one_width(plain_run: RunResult, parts: Parts) -> None:
    run = with_stages(plain_run, {"backend": {"latency_us": pair(parts, NONE)}})
    first, second = (str(row[5]) for row in PARTS.table(run).rows)
    assert (len(first), len(second)) == (BAR_WIDTH, 0)


def test_terminal_markdown_and_page_have_the_bar(
    plain_run: RunResult, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stages = with_stages(plain_run, {"backend": {"latency_us": pair(SLOW, SLOW)}}).stages
    folder = tmp_path_factory.mktemp("parts")
    stored = write_run(folder, Shape(duration_s=20), stages=stages)
    document = document_of(stored)
    bar = "W" * 12 + "S" * 2 + "C" * 2 + "·" * 4
    shown = StringIO()
    text.render(document, PlainConsole(file=shown, width=200))
    assert shown.getvalue().count(bar) == 2
    assert markdown(document).count(bar) == 2
    page = Page(run_files(load_run(folder))["report.html"]())
    assert page.texts.count(bar) == 2
    assert page.attributes("class").count("bar") == 3


def test_of_many_populations_the_slowest_is_shown(plain_run: RunResult) -> None:
    many = {
        f"device-{n}": {"ack_latency_us": pair(FAST, SLOW, scale=1 + n % 7)}
        for n in range(PARTS_MAX)
    }
    rows = PARTS.table(with_stages(plain_run, many, many)).rows
    assert [row[:4] for row in rows] == [
        (f"stage {stage}", "device-6", "ack", percentile)
        for stage in (0, 1)
        for percentile in ("p50", "p99")
    ]
