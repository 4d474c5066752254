"""The plots that compare the runs of a series or a search, and the heat maps of a grid."""

from __future__ import annotations

from pathlib import Path

import plotly.graph_objects

from pubstorm.report.overlay import LINES_MAX, Course, compared, course
from pubstorm.report.plot import CAPTION, Plot, heat_map
from pubstorm.report.search_plots import KINDS
from pubstorm.result import RunResult
from pubstorm.result.samples import Track
from tests.kit import made


def test_a_run_is_the_sum_of_its_rates_and_its_slowest_latency(plain_run: RunResult) -> None:
    tracks = {
        (made.source("backend"), "received_per_s"): Track([1.0, 2.0], [10.0, 20.0]),
        (made.source("device-0"), "received_per_s"): Track([2.0, 3.0], [5.0, 7.0]),
        (made.source("backend"), "latency_p99_us"): Track([1.0, 2.0], [1000.0, 9000.0]),
        (made.source("device-0"), "latency_p99_us"): Track([2.0], [4000.0]),
        (made.source("broker-0"), "received_per_s"): Track([1.0], [999.0]),
    }
    found = course("1: ten", plain_run, tracks)
    assert found.values["compare-received"] == {1.0: 10, 2.0: 25, 3.0: 7}
    assert found.values["compare-p99"] == {1.0: 1, 2.0: 9}


def line(name: str, value: float = 3.0) -> Course:
    return Course(name, 20, {"compare-received": {1.0: value, 2.0: value}})


def test_each_run_has_a_line_of_its_own_look() -> None:
    (plot,) = compared([line(f"run {number}") for number in range(LINES_MAX)])
    drawn = plotly.graph_objects.Figure({k: plot.figure[k] for k in ("data", "layout")}).data
    assert len({(each.line.color, each.line.dash) for each in drawn}) == LINES_MAX
    assert plot.linked


def test_a_plot_of_many_runs_says_how_many_it_shows() -> None:
    (plot,) = compared([line(f"run {number}") for number in range(LINES_MAX + 3)])
    assert len(plot.figure["data"]) == LINES_MAX
    assert plot.caption.endswith(f"Shown are {LINES_MAX} of {LINES_MAX + 3} runs.")


def test_one_run_is_compared_with_nothing() -> None:
    assert list(compared([line("one"), line("still", 0.0), Course("bare")])) == []


def test_a_grid_has_a_cell_for_each_pair_and_a_hole_for_each_that_lacks() -> None:
    cells = {(str(x), str(y)): float(x * y) for x in (1, 2, 3) for y in (1, 2, 4) if x * y != 8}
    plot = heat_map(Plot("p99", "p99", CAPTION, {}), ("clients", "size"), " ms", cells)
    assert plot is not None
    (trace,) = plot.figure["data"]
    assert trace["z"] == [[1, 2, 3], [2, 4, 6], [4, None, 12]]
    assert plotly.graph_objects.Figure(plot.figure).data
    titles = [plot.figure["layout"][axis]["title"]["text"] for axis in ("xaxis", "yaxis")]
    assert titles == ["clients", "size"]


def test_a_grid_with_a_short_side_has_lines_only() -> None:
    cells = {(str(x), str(y)): 1.0 for x in range(9) for y in range(2)}
    assert heat_map(Plot("p", "p", "", {}), ("x", "y"), "", cells) is None


def test_outcomes_differ_by_shape_too() -> None:
    assert len({kind.symbol for kind in KINDS}) == len(KINDS)


def test_a_step_outside_the_series_is_not_compared(tmp_path: Path) -> None:
    from pubstorm.report.of_experiments import search_document
    from tests.kit.example_search import search_of

    search = search_of()
    outside = search.trials[0].model_copy(update={"folder": "../elsewhere"})
    document = search_document(search.model_copy(update={"trials": (outside,)}), tmp_path)
    assert document.plots[1].plots == ()
