"""Plots: thinned tracks, growth of counters, curves by percentile, stacks, colours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations, pairwise
from math import dist
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

import pubstorm.report
from pubstorm.contract.histogram import Histogram
from pubstorm.metrics.charts import PAGE
from pubstorm.quantities import shortened
from pubstorm.report.latencies import points
from pubstorm.report.page import flame_tree
from pubstorm.report.plot import (
    DASHES,
    LEGEND_MAX,
    NAME_CHARS_MAX,
    PALETTE,
    POINTS_MAX,
    START_MS,
    Plot,
    looks,
    plotted,
    thinned,
    time_axis,
)
from pubstorm.report.stored import load_run
from pubstorm.report.timeline import MARKS_MAX, marks, other_tracks, timeline
from pubstorm.result import Event, RunResult
from pubstorm.result.samples import Track, Tracks
from tests.kit import made
from tests.kit.example_run import Shape, write_run

STYLE = Path(pubstorm.report.__file__).parent / "templates" / "report.css"
values = some.lists(some.floats(-1e6, 1e6), min_size=1, max_size=5000)


@given(values)
def test_a_thinned_track_keeps_its_extremes_and_its_order(track: list[float]) -> None:
    places = thinned(track)
    kept = [track[place] for place in places]
    assert len(kept) <= POINTS_MAX
    assert (min(kept), max(kept)) == (min(track), max(track))
    assert all(before < after for before, after in pairwise(places))


def test_a_short_track_is_kept_whole() -> None:
    assert thinned([5, 5, 5]) == [0, 1, 2]


@pytest.mark.parametrize(
    ("value", "written"), [(0.0, 0), (1.0, 1), (1234567.8, 1234600), (0.123456789, 0.12346)]
)
def test_values_have_as_many_digits_as_can_be_seen(value: float, written: float) -> None:
    assert shortened(value) == written
    assert isinstance(shortened(value), type(written))


def test_names_in_plots_are_short_and_no_markup() -> None:
    assert plotted("<b>&x") == "&lt;b&gt;&amp;x"
    assert plotted("a" * 100 + "z" * 100) == "a" * 23 + "…" + "z" * 24
    assert plotted("n" * NAME_CHARS_MAX) == "n" * NAME_CHARS_MAX


@pytest.mark.parametrize(
    ("duration_s", "words"), [(20, "(min:s)"), (3600, "(h:min:s)"), (1e6, "(day, h:min)")]
)
def test_the_time_axis_says_how_its_ticks_are_read(duration_s: float, words: str) -> None:
    assert time_axis(duration_s)["title"]["text"].endswith(words)


def test_counters_of_the_broker_are_shown_as_growth_a_second(plain_run: RunResult) -> None:
    track = Track([0.0, 2.0, 4.0, 4.0, 6.0], [100.0, 300.0, 500.0, 500.0, 40.0])
    (plot,) = timeline(plain_run, {(made.source("broker-0"), "$SYS/messages/received"): track})
    (trace,) = plot.figure["data"]
    assert plot.key == "sys-messages"
    assert trace["y"] == [100, 100, 20]


def test_a_reading_that_repeats_the_last_one_is_no_growth(plain_run: RunResult) -> None:
    at_s = [0.0, 1.0, 2.0, 3.001, 3.145]
    track = Track(at_s, [100.0, 100.0, 500.0, 500.0, 729.0], held={1, 3})
    (plot,) = timeline(plain_run, {(made.source("broker-0"), "$SYS/messages/received"): track})
    (trace,) = plot.figure["data"]
    assert trace["y"] == [200, 200]


def test_a_counter_read_once_says_nothing(plain_run: RunResult) -> None:
    assert (
        timeline(plain_run, {(made.source("host"), "tcp_retransmits"): Track([1.0], [5.0])}) == []
    )


def population(name: str, **metrics: dict[int, float]) -> Tracks:
    """Panels of a population over some seconds."""
    return {
        (made.source(name), metric): Track([float(at_s) for at_s in found], [*found.values()])
        for metric, found in metrics.items()
    }


def drawn(plot: Plot, number: int = 0) -> list[tuple[float, float | None]]:
    trace = plot.figure["data"][number]
    return [((x - START_MS) / 1000, y) for x, y in zip(trace["x"], trace["y"], strict=True)]


def test_no_line_is_drawn_through_seconds_without_deliveries(plain_run: RunResult) -> None:
    tracks = population(
        "device-0",
        connected=dict.fromkeys(range(10), 1.0),
        latency_p99_us={0: 1e3, 1: 2e3, 3: 4e3, 4: 4e3},
    )
    plot = next(plot for plot in timeline(plain_run, tracks) if plot.key == "latency")
    assert [y for _, y in drawn(plot)] == [1, 2, None, 4, 4]
    assert plot.figure["data"][0]["connectgaps"] is False


def test_the_band_of_a_latency_ends_at_its_gaps(plain_run: RunResult) -> None:
    tracks = population(
        "device-0",
        connected=dict.fromkeys(range(10), 1.0),
        latency_p50_us={0: 1e3, 1: 1e3, 3: 1e3, 4: 1e3},
        latency_p99_us={0: 2e3, 1: 2e3, 3: 4e3, 4: 4e3},
    )
    plot = next(plot for plot in timeline(plain_run, tracks) if plot.key == "latency")
    (band,) = [trace for trace in plot.figure["data"] if "fill" in trace]
    assert band["y"] == [2, 2, 1, 1, None, 4, 4, 1, 1, None]
    assert band["fill"] == "toself"


def test_a_point_between_two_gaps_is_a_dot(plain_run: RunResult) -> None:
    ready, slow = dict.fromkeys(range(10), 1.0), {1: 1e3, 2: 1e3, 4: 5e3, 8: 2e3}
    tracks = population("device-0", connected=ready, latency_p99_us=slow)
    plot = next(plot for plot in timeline(plain_run, tracks) if plot.key == "latency")
    (trace,) = plot.figure["data"]
    assert trace["mode"] == "lines+markers"
    dots = dict(zip(trace["y"], trace["marker"]["size"], strict=True))
    assert (dots[1], dots[5], dots[2]) == (0, 5, 5)


def test_what_is_read_rarely_is_a_line_until_its_source_is_away(tmp_path: Path) -> None:
    result = write_run(tmp_path, Shape(duration_s=300))
    reports = [11.0 * n for n in range(8)] + [220.0, 231.0]
    counts = [float(100 * n) for n in range(10)]
    tracks = {
        (made.source("broker-0"), "$SYS/messages/received"): Track(reports, counts),
        (made.source("broker-0"), "cpu"): Track([1.0, 2.0, 3.0, 60.0, 61.0], [0.5] * 5),
    }
    plots = {plot.key: plot for plot in timeline(result, tracks)}
    assert [y for _, y in drawn(plots["process-cpu"])] == [50, 50, 50, None, 50, 50]
    # Growth over the time in which the broker was silent is known, and drawn where it ended.
    found = [y for _, y in drawn(plots["sys-messages"])]
    assert found.count(None) == 1
    assert found[0] == found[6] == pytest.approx(100 / 11, rel=1e-4)


def test_each_line_has_a_look_of_its_own(plain_run: RunResult) -> None:
    names = ("connected", "disconnected", "total", "active", "inactive")
    for sources in (1, 3):
        tracks = {
            (made.source(f"broker-{n}"), f"$SYS/clients/{name}"): Track([1.0, 2.0], [1.0, 2.0])
            for n in range(sources)
            for name in names
        }
        (plot,) = timeline(plain_run, tracks)
        drawn = [trace for trace in plot.figure["data"] if trace["x"] != [None]]
        lines = [trace["line"] for trace in drawn]
        assert len({(line["color"], line["dash"]) for line in lines}) == len(lines) == 5 * sources
    wanted = [(n // 5, n % 5) for n in range(60)]
    assert len({*looks(wanted), *looks(wanted)}) == 60
    pairs = len(PALETTE) * len(DASHES)
    assert len({*looks([(0, 0)] * pairs)}) == pairs
    repeated = looks([(0, 0)] * (2 * pairs + 1))
    assert repeated == [*repeated[:pairs], *repeated[:pairs], repeated[0]]


def test_the_pointer_shows_the_unit(plain_run: RunResult) -> None:
    found = {}
    for key in (
        ("broker-0", "cpu"),
        ("host", "memory_used_bytes"),
        ("host", "tcp_retransmits"),
        ("device-0", "latency_p99_us"),
        ("device-0", "connected"),
    ):
        place = made.source(key[0]), key[1]
        (plot,) = timeline(plain_run, {place: Track([1.0, 2.0, 3.0], [5.0, 2e6, 3e6])})
        found[key[1]] = plot.figure["data"][0]["hovertemplate"].partition("~r}")[2]
    assert found == {
        "cpu": " %<extra></extra>",
        "memory_used_bytes": " MB<extra></extra>",
        "tcp_retransmits": "/s<extra></extra>",
        "latency_p99_us": " ms<extra></extra>",
        "connected": "<extra></extra>",
    }


def test_what_is_zero_throughout_is_named_and_not_drawn(plain_run: RunResult) -> None:
    tracks = {
        (made.source("device-0"), "sent_per_s"): Track([1.0, 2.0], [5.0, 6.0]),
        (made.source("backend"), "sent_per_s"): Track([1.0, 2.0], [0.0, 0.0]),
        (made.source("host"), "tcp_retransmits"): Track([1.0, 2.0], [7.0, 7.0]),
    }
    load, trouble = timeline(plain_run, tracks)
    assert [trace["name"] for trace in load.figure["data"]] == ["device-0 sent"]
    assert load.caption.endswith("Zero throughout: backend sent.")
    assert not load.is_flat
    assert trouble.is_flat


def test_ticks_of_short_runs_have_fractions_of_a_second() -> None:
    stops = time_axis(5)["tickformatstops"]
    assert [(*stop["dtickrange"], stop["value"]) for stop in stops] == [
        (None, 99, "%-M:%S.%3f"),
        (100, 999, "%-M:%S.%1f"),
    ]


def test_units_are_those_that_the_axis_names(plain_run: RunResult) -> None:
    found = {}
    for key in (("broker-0", "cpu"), ("host", "memory_used_bytes"), ("device-0", "latency_p99_us")):
        place = made.source(key[0]), key[1]
        (plot,) = timeline(plain_run, {place: Track([1.0, 2.0], [5.0, 2e6])})
        found[plot.figure["layout"]["yaxis"]["title"]["text"]] = plot.figure["data"][0]["y"]
    assert found == {
        "CPU (% of one core)": [500, 200_000_000],
        "memory (MB)": [5e-06, 2],
        "latency (ms, logarithmic)": [0.005, 2000],
    }


def test_phases_of_connecting_have_a_plot_with_a_line_each(plain_run: RunResult) -> None:
    phases = {"connect_tcp": "TCP", "connect_tls": "TLS", "connect_subscribe": "subscribe"}
    tracks = {
        (made.source("device-0"), f"{phase}_p99_us"): Track([1.0, 2.0], [5000.0, 2e6])
        for phase in phases
    }
    (plot,) = timeline(plain_run, tracks)
    assert plot.key == "connecting"
    assert {trace["name"] for trace in plot.figure["data"]} == {
        f"device-0 {head}" for head in phases.values()
    }
    assert plot.figure["data"][0]["y"] == [5, 2000]


def test_what_cannot_stand_on_a_logarithmic_axis_is_a_gap(plain_run: RunResult) -> None:
    tracks = {(made.source("device-0"), "latency_p50_us"): Track([1.0, 2.0], [0.0, 1000.0])}
    assert timeline(plain_run, tracks)[0].figure["data"][0]["y"] == [None, 1]


def still_lines(caption: str) -> int:
    """Lines that a caption names in place of drawing them."""
    found = re.search(r"Zero throughout: ([^.]*)\.", caption)
    assert found is None or " more" not in found[1]
    return len(found[1].split(", ")) if found else 0


def test_every_track_is_shown_once(failed_run: Path) -> None:
    run = load_run(failed_run)
    plots = [*timeline(run.result, run.tracks), *other_tracks(run.result, run.tracks)]
    named = sum(still_lines(plot.caption) for plot in plots)
    lines = [trace for plot in plots for trace in plot.figure["data"] if "fill" not in trace]
    assert len(lines) + named == len(run.tracks)
    keys = {plot.key for plot in timeline(run.result, run.tracks)}
    missing = {"each", "qos", "round-trip", "agent-clock", "process-disk", "host-disk"}
    missing |= {"process-unsent", "process-round-trip", "host-unsent", "host-udp", "connecting"}
    without = "of publishers, requests, other hosts, disks, connections, QUIC"
    assert keys == {chart.key for chart in PAGE} - missing, without


def test_deliveries_of_several_qos_have_a_plot(plain_run: RunResult) -> None:
    first, second, *_ = plain_run.populations
    levels = {first: (0,), second: (1,)}
    populations = {
        name: each.model_copy(update={"delivery_qos": levels.get(name, ())})
        for name, each in plain_run.populations.items()
    }
    tracks = {
        (made.source(name), "received_per_s"): Track([1.0, 2.0], [5.0, 7.0]) for name in levels
    }
    plots = timeline(plain_run.model_copy(update={"populations": populations}), tracks)
    (plot,) = (plot for plot in plots if plot.key == "qos")
    assert [trace["y"] for trace in plot.figure["data"]] == [[5, 7], [5, 7]]
    assert [plot.key for plot in timeline(plain_run, tracks)] == ["load"]


def test_of_too_many_tracks_the_largest_are_shown(plain_run: RunResult) -> None:
    tracks = {
        (made.source(f"broker-{n}"), "cpu"): Track([1.0], [n / 1000])
        for n in range(1, LEGEND_MAX + 2)
    }
    (plot,) = timeline(plain_run, tracks)
    assert len(plot.figure["data"]) == LEGEND_MAX
    assert plot.figure["data"][-1]["name"] == f"broker-{LEGEND_MAX + 1} all"
    assert f"Shown are the {LEGEND_MAX} of {LEGEND_MAX + 1} tracks" in plot.caption


def test_what_happened_comes_before_warnings_about_the_scenario(tmp_path: Path) -> None:
    kinds = (("scenario", 0.0), ("fault", 5.0), ("host", 0.0), ("agent", 2.0))
    events = tuple(Event.model_validate({"at_s": t, "kind": k, "text": k}) for k, t in kinds)
    result = write_run(tmp_path, Shape(duration_s=100), events=events)
    found = [mark.text for mark in marks(result)]
    assert found == ["agent", "fault", "host", "scenario"]


def test_happenings_are_numbered_in_order_and_too_many_are_not_drawn(tmp_path: Path) -> None:
    events = tuple(Event(at_s=100 - n, kind="target", text=str(n)) for n in range(100))
    result = write_run(tmp_path, Shape(duration_s=100), events=events)
    assert [(mark.number, mark.text) for mark in marks(result)][:2] == [(1, "99"), (2, "98")]
    tracks = {(made.source("host"), "cpu"): Track([1.0], [0.5])}
    shapes = timeline(result, tracks)[0].figure["layout"]["shapes"]
    assert len(shapes) == len(result.stages) + MARKS_MAX


def test_lines_too_close_for_their_numbers_share_a_label(tmp_path: Path) -> None:
    events = tuple(Event(at_s=at_s, kind="target", text="x") for at_s in (10, 10.5, 50, 99, 99.5))
    result = write_run(tmp_path, Shape(duration_s=100), events=events)
    notes = timeline(result, {(made.source("host"), "cpu"): Track([1.0], [0.5])})[0].figure[
        "layout"
    ]
    texts = [note["text"] for note in notes["annotations"] if note["text"].startswith("<b>")]
    assert texts == ["<b>1–2</b>", "<b>3</b>", "<b>4–5</b>"]


@given(some.lists(some.integers(0, 10**10), min_size=1, max_size=300))
def test_a_curve_by_percentile_agrees_with_the_histogram(durations_ns: list[int]) -> None:
    histogram = Histogram.of(durations_ns)
    rarities, latencies = points(histogram)
    assert latencies[-1] == max(histogram.max_ns, 1)
    assert rarities[-1] <= histogram.count
    assert all(before <= after for before, after in pairwise(latencies))
    for rarity, latency in list(zip(rarities, latencies, strict=True))[1:-1]:
        quantile = 1 - 1 / rarity - 1e-9
        assert latency == pytest.approx(histogram.quantile_ns(quantile), rel=1 / 64, abs=1)


def test_stacks_add_up_to_a_tree() -> None:
    tree = flame_tree("main;a;b 6\nmain;a 3\nmain;c 1\nnonsense\nmain;d 0\nmain;e -1\n")
    a = {"n": "a", "v": 9, "c": [{"n": "b", "v": 6}]}
    main = {"n": "main", "v": 10, "c": [a, {"n": "c", "v": 1}]}
    assert tree == {"n": "all", "v": 10, "c": [main]}


def test_a_function_may_have_spaces_in_its_name() -> None:
    tree = flame_tree("main;operator new(unsigned long) 4\n")
    assert tree is not None
    assert tree["c"][0]["c"] == [{"n": "operator new(unsigned long)", "v": 4}]


@pytest.mark.parametrize("folded", ["", "\n", "nonsense", "a;b 0"])
def test_without_samples_there_is_no_tree(folded: str) -> None:
    assert flame_tree(folded) is None


def test_very_deep_stacks_are_cut() -> None:
    assert flame_tree(";".join(f"f{n}" for n in range(10_000)) + " 1\n") is not None


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 has it."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    """Contrast ratio as WCAG 2 has it."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def themes() -> dict[str, tuple[str, str]]:
    found = re.findall(r"--(\w+): light-dark\((#\w+), (#\w+)\)", STYLE.read_text())
    return {name: (light, dark) for name, light, dark in found}


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize("name", ["ink", "soft", "link", "pass", "fail", "invalid"])
def test_text_can_be_read_on_both_grounds(name: str, theme: int) -> None:
    for ground in ("ground", "raised"):
        assert contrast(themes()[name][theme], themes()[ground][theme]) >= 4.5


@pytest.mark.parametrize("colour", PALETTE)
def test_lines_can_be_seen_on_both_grounds(colour: str) -> None:
    assert min(contrast(colour, ground) for ground in themes()["ground"]) >= 3


SEEN = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "without red": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "without green": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
}
"""Linear RGB as people see it (Machado, Oliveira and Fernandes 2009)."""
WHITE = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
"""From linear RGB to CIE XYZ."""


def lab(colour: str, vision: str) -> tuple[float, ...]:
    """A colour in CIELAB, as people of this vision see it."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    seen = [min(1, max(0, sumprod(row, linear))) for row in SEEN[vision]]
    x, y, z = (sumprod(row, seen) / sum(row) for row in WHITE)
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def sumprod(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("vision", SEEN)
def test_the_first_lines_differ_for_colour_blind_people(vision: str) -> None:
    for one, other in combinations(PALETTE[:6], 2):
        assert dist(lab(one, vision), lab(other, vision)) > 20, (one, other)
