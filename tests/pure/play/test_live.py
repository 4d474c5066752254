"""Live display of a run."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from pubstorm.contract.histogram import Histogram
from pubstorm.contract.plan import PublishAction
from pubstorm.contract.sums import RunSum
from pubstorm.fleet.programs import Assignment
from pubstorm.play.display import PopulationSummary, StageTime, Summary, live_for
from pubstorm.play.display.summary import PlainLive, line_of, summary_of
from pubstorm.play.display.terminal import COLUMNS, TerminalLive
from pubstorm.play.progress import Progress, wills_wait_ns
from pubstorm.quantities import SECOND_NS
from pubstorm.result import Latency
from tests.kit import made
from tests.kit.agents import planned

SCENARIO = """\
target: mqtt://127.0.0.1
populations:
  device: {clients: 3, publications: [{topic: d, rate: 1/s}]}
  backend: {clients: 3, subscriptions: [d]}
stages: [connect, publish: 1s, hold: 1s, disconnect]
"""
STARTING = Summary(
    elapsed_s=0,
    time=StageTime("connect", 1, 3, share=0, connected_share=0, left_s=None, rest_s=600),
    populations=(PopulationSummary("device", 1000),),
)
UNDER_WAY = replace(
    STARTING,
    elapsed_s=12.3,
    time=StageTime("publish", 2, 3, share=0.58, connected_share=1, left_s=4.2, rest_s=6.2),
    populations=(
        PopulationSummary(
            "device", 1000, {"connected": 1000, "sent_per_s": 10_000, "acked_per_s": 9_999.6}
        ),
        PopulationSummary("backend", 1, {"connected": 1, "received_per_s": 9_999.6, "missing": 3}),
    ),
    totals={"sent": 98_765, "acked": 98_764, "received": 98_763},
    latency=Latency.of(Histogram.of([1_000_000, 2_000_000])),
    outcomes={"connect_refused": 2},
    busy_share=0.123,
)


def test_a_summary_has_every_figure_that_is_shown() -> None:
    plan = planned("well", PublishAction(duration_ns=10**7))
    progress = Progress(plan, Assignment.among(plan, 1), RunSum())
    each = made.population(connected=3, sent_total=5)
    progress.take(made.snapshot(*[each for _ in plan.populations], from_ns=0, to_ns=SECOND_NS))
    for population in summary_of(progress, 0, SECOND_NS).populations:
        assert {metric.name for metric, _ in COLUMNS} <= {*population.figures}
        assert (population.figures["connected"], population.figures["sent_per_s"]) == (3, 5)


def test_plain_lines_show_the_state() -> None:
    assert line_of(STARTING) == (
        "0.0 s  connect 0 %  connected 0/1\u202f000  busy 0 %  about 10:00 left in all"
    )
    assert line_of(UNDER_WAY) == (
        "12.3 s  publish 58 %  connected 1\u202f001/1\u202f001  "
        "sent 10\u202f000/s (98\u202f765)  acked 10\u202f000/s (98\u202f764)  "
        "received 10\u202f000/s (98\u202f763)  p99 2.00 ms  missing 3  connect_refused 2  "
        "busy 12 %  about 6.2 s left in all"
    )


def test_a_line_has_rates_of_zero_only_where_clients_publish() -> None:
    """A publish stage in which nothing is sent says so."""
    assert "  sent 0/s  acked 0/s  received 0/s  " in line_of(replace(STARTING, publishes=True))
    plan = made.compiled(SCENARIO)
    progress = Progress(plan, Assignment.among(plan, 1), RunSum())
    each = made.population(connected=3, foreign_total=5)
    progress.take(made.snapshot(*[each for _ in plan.populations], from_ns=0, to_ns=SECOND_NS))
    for stage, action in enumerate(stage.action for stage in plan.stages):
        progress.enter(stage, 0)
        summary = summary_of(progress, 0, SECOND_NS)
        assert summary.publishes == isinstance(action, PublishAction)
        rates = [part for part in line_of(summary).split("  ") if "/s" in part]
        zeros = ["sent 0/s", "acked 0/s", "received 0/s"] if summary.publishes else []
        assert rates == [*zeros, "foreign 10.0/s (10)"], action


def test_messages_of_other_programs_are_shown_where_there_are_some() -> None:
    heads = "connected  sent/s  acked/s  received/s"
    others = PopulationSummary("sub", 9, {"connected": 9, "foreign_per_s": 510})
    for populations, expected in (
        (STARTING.populations, f"{heads}  missing"),
        ((others,), f"{heads}  foreign/s  missing"),
    ):
        file = StringIO()
        console = Console(file=file, force_terminal=True, width=120, color_system=None)
        live = TerminalLive(console)
        live.begin("quickstart", Path("run"))
        live.show(replace(STARTING, populations=populations))
        live.end()
        lines = [line.strip("│ \r") for line in file.getvalue().splitlines()]
        header = next(line for line in lines if line.startswith("population"))
        assert header.split()[1:] == expected.split()


def test_round_trips_are_shown_where_there_are_some() -> None:
    trips = replace(UNDER_WAY, round_trip=Latency.of(Histogram.of([5_000_000, 8_000_000])))
    assert "p99 2.00 ms  round trip p99 8.00 ms  " in line_of(trips)
    file = StringIO()
    live = TerminalLive(Console(file=file, force_terminal=True, width=100, color_system=None))
    live.begin("quickstart", Path("run"))
    live.show(trips)
    live.end()
    assert "round trip p50 5.01 ms  p99 8.00 ms   latency p50 1.00 ms" in file.getvalue()


def test_plain_lines_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    live = PlainLive(10 * SECOND_NS)
    live.begin("quickstart", Path("run"))
    live.starting("7 of 9 brokers up")
    live.show(STARTING)
    live.note("something happened")
    live.step("step 2 of 3")
    live.end()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "run quickstart",
        "7 of 9 brokers up",
        line_of(STARTING),
        "! something happened",
        "step 2 of 3",
    ]


def test_runs_of_an_experiment_warn_once_of_what_they_lack(
    capsys: pytest.CaptureFixture[str],
) -> None:
    live = PlainLive(10 * SECOND_NS)
    for files in (1200, 2400):
        live.begin("trial", Path("run"))
        live.warn_once(f"short of open files: {files} of 500", "short of open files")
        live.warn_once("short of ports: 9 of 5", "short of ports")
        live.end()
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("! ")]
    assert lines == ["! short of open files: 1200 of 500", "! short of ports: 9 of 5"]


def test_a_log_has_a_line_for_each_interval_and_for_each_stage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now_ns = 0
    live = PlainLive(10 * SECOND_NS, lambda: now_ns)
    live.begin("quickstart", Path("run"))
    for second in range(40):
        now_ns = second * SECOND_NS
        live.show(replace(STARTING if second < 15 else UNDER_WAY, elapsed_s=second))
    starts = [line.split("  ")[:2] for line in capsys.readouterr().err.splitlines()[1:]]
    assert starts == [
        ["0.0 s", "connect 0 %"],
        ["10.0 s", "connect 0 %"],
        ["15.0 s", "publish 58 %"],
        ["20.0 s", "publish 58 %"],
        ["30.0 s", "publish 58 %"],
    ]


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (30, ["connected"]),
        (60, ["connected", "sent/s", "received/s"]),
        (80, ["connected", "sent/s", "received/s", "missing"]),
        (90, ["connected", "sent/s", "acked/s", "received/s", "missing"]),
    ],
)
def test_a_narrow_terminal_leaves_out_columns_and_no_names(width: int, columns: list[str]) -> None:
    file = StringIO()
    live = TerminalLive(Console(file=file, force_terminal=True, width=width, color_system=None))
    live.begin("quickstart", Path("run"))
    live.show(UNDER_WAY)
    live.end()
    lines = [line.strip("│ \r") for line in file.getvalue().splitlines()]
    header = next(line for line in lines if line.startswith("population"))
    assert header.split() == ["population", *columns]
    for name in ("device", "backend"):
        assert any(line.startswith(f"{name} ") for line in lines), name


def test_the_terminal_shows_stage_populations_and_errors() -> None:
    file = StringIO()
    console = Console(file=file, force_terminal=True, width=100, color_system=None)
    live = TerminalLive(console)
    live.begin("quick[b]start", Path("run"))
    live.starting("7 of 9 brokers up")
    live.after_s = 60
    live.show(UNDER_WAY)
    live.note("something [b]happened")
    live.end()
    live.end()
    drawn = file.getvalue()
    for words in (
        "quick[b]start: 7 of 9 brokers up",
        "2/3",
        "publish",
        "58 %",
        "4.2 s left",
        "12.3 s, about 1:06 left in all",
        "1\u202f000 / 1\u202f000",
        "so far sent 98\u202f765   acked 98\u202f764   received 98\u202f763",
        "latency p50 1.00 ms",
        "p99 2.00 ms",
        "agent busy 12 %",
        "connect_refused 2",
        "quick[b]start",
        "! something [b]happened",
    ):
        assert words in drawn, words


def test_the_display_fits_the_place_it_is_shown_in() -> None:
    terminal = Console(file=StringIO(), force_terminal=True)
    pipe = Console(file=StringIO())
    assert isinstance(live_for([pipe, terminal], SECOND_NS), TerminalLive)
    assert isinstance(live_for([pipe, pipe], SECOND_NS), PlainLive)


LEAVING = """
target: mqtt://127.0.0.1
populations:
  phone: {{clients: 10, keep_alive: 10s, end: {end}, will: {{topic: gone, payload: bye}}}}
stages: [connect, {{disconnect: {{rate: 10/s}}}}]
"""


@pytest.mark.parametrize(
    ("end", "gone_s", "share", "left_s", "rest_s"),
    [
        # The wills come when a keep-alive and a half is over.
        ("vanish", 1, 1 / 16, 15, 15),
        ("vanish", 8, 0.5, 8, 8),
        ("vanish", 17, 1.0, 0, 0),
        # Wills that come at once.
        ("abort", 1, 1.0, None, 0),
        ("disconnect", 1, 1.0, None, 0),
    ],
)
def test_a_stage_that_waits_for_wills_is_not_done_when_all_have_left(
    end: str, gone_s: int, share: float, left_s: float | None, rest_s: float
) -> None:
    plan = made.compiled(LEAVING.format(end=end))
    progress = Progress(plan, Assignment(engines=1), RunSum(), clock=lambda: 0)
    progress.enter(1, 0)
    time = summary_of(progress, 0, gone_s * SECOND_NS).time
    assert (time.share, time.left_s, time.rest_s) == (share, left_s, rest_s)


@pytest.mark.parametrize(
    ("keep_alive", "delay", "wait_s"),
    [("10s", "5s", 20), ("10s", "1000h", 600), ("18h", "0s", 600)],
)
def test_a_stage_waits_ten_minutes_for_wills_at_most(
    keep_alive: str, delay: str, wait_s: int
) -> None:
    text = LEAVING.format(end="vanish").replace("keep_alive: 10s", f"keep_alive: {keep_alive}")
    text = text.replace("clients: 10", "clients: 10, version: 5, session_expiry: 1000h")
    plan = made.compiled(text.replace("payload: bye", f"payload: bye, delay: {delay}"))
    assert wills_wait_ns(plan.populations) == wait_s * SECOND_NS
