"""Steps of a series as lines: what stands on the axis, and which steps share a line."""

from __future__ import annotations

from itertools import product

import pytest

from pubstorm.report.series_plots import grid_of, overview
from pubstorm.result import (
    LimitedBy,
    RunResult,
    SeriesStep,
    StagePopulation,
    StageResult,
    Status,
    Verdict,
)
from tests.kit.measured import MeasuredMaker

CLIENTS, QOS = "populations.device.clients", "populations.device.publications.0.qos"
RATE = "populations.device.publications.0.rate"


def step(number: int, variant: str | None = None, **values: str) -> SeriesStep:
    paths = {"clients": CLIENTS, "qos": QOS, "rate": RATE}
    return SeriesStep(
        number=number,
        label=f"step {number}",
        base=f"base {number}" if variant else "",
        variant=variant,
        values={paths[name]: value for name, value in values.items()},
        folder=f"steps/{number:02}",
        command="",
        note="",
    )


def lines(steps: list[SeriesStep]) -> dict[str, list[str]]:
    grid = grid_of(steps)
    found: dict[str, list[str]] = {}
    for each in steps:
        found.setdefault(grid.group(each), []).append(grid.at(each))
    return found


def test_a_grid_has_a_line_for_each_value_of_its_second_variable() -> None:
    steps = [
        step(n, clients=clients, qos=qos)
        for n, (clients, qos) in enumerate(product(("500", "1000"), "012"), 1)
    ]
    assert grid_of(steps).title == "clients"
    assert lines(steps) == {f"qos {qos}": ["500", "1000"] for qos in "012"}


def test_a_grid_of_three_has_a_line_for_each_pair_of_the_others() -> None:
    played = product(("500", "1000"), "01", ("1/s", "2/s"))
    steps = [step(n, clients=c, qos=q, rate=r) for n, (c, q, r) in enumerate(played, 1)]
    assert list(lines(steps)) == [
        "qos 0, rate 1/s",
        "qos 0, rate 2/s",
        "qos 1, rate 1/s",
        "qos 1, rate 2/s",
    ]


def test_values_that_rise_together_are_one_line_of_steps() -> None:
    steps = [step(1, clients="500", rate="1/s"), step(2, clients="1000", rate="2/s")]
    assert lines(steps) == {"": ["step 1", "step 2"]}
    assert lines([step(1, clients="500")]) == {"": ["step 1"]}


def test_each_variant_has_a_line() -> None:
    steps = [
        step(1, "fast", clients="500", rate="9/s"),
        step(1, "slow", clients="500", rate="1/s"),
        step(2, "fast", clients="1000", rate="9/s"),
        step(2, "slow", clients="1000", rate="1/s"),
    ]
    assert lines(steps) == {"fast": ["base 1", "base 2"], "slow": ["base 1", "base 2"]}


@pytest.mark.parametrize("repeats", [1, 2])
def test_heat_maps_speak_of_repeats_only_if_there_are_some(
    plain_run: RunResult, repeats: int
) -> None:
    played = list(product(("1", "2", "3"), "012")) * repeats
    steps = [step(n, clients=c, qos=q) for n, (c, q) in enumerate(played, 1)]
    results: list[RunResult | None] = [plain_run for _ in steps]
    maps = [plot for plot in overview(steps, results) if plot.key.startswith("heat-")]
    assert len(maps) == 2
    assert {"repeats" in plot.caption for plot in maps} == {repeats > 1}


def test_a_heat_map_has_no_cell_for_an_invalid_step(plain_run: RunResult) -> None:
    played = list(product(("1", "2", "3"), "012"))
    steps = [step(n, clients=c, qos=q) for n, (c, q) in enumerate(played, 1)]
    steps[0] = steps[0].model_copy(update={"status": Status.INVALID})
    results: list[RunResult | None] = [plain_run for _ in steps]
    for plot in overview(steps, results)[:2]:
        (trace,) = plot.figure["data"]
        assert (trace["x"], trace["y"]) == (["1", "2", "3"], ["0", "1", "2"])
        holes = [place for row in trace["z"] for place, cell in enumerate(row) if cell is None]
        assert holes == [0]
        assert plot.caption.endswith("Steps that are invalid have no cell.")


def stage(name: str, connected: int, received_per_s: float) -> StageResult:
    load = StagePopulation(received_per_s=received_per_s)
    return StageResult(
        name=name,
        kind="publish",
        start_s=1,
        duration_s=10,
        steady_s=10,
        settled=True,
        connected=connected,
        populations={"backend": load},
    )


@pytest.mark.parametrize(
    ("stages", "shown"),
    [
        ((stage("ramp", 100, 20), stage("load", 100, 50)), 50),
        ((stage("load", 100, 50), stage("late", 200, 80)), 100),
        ((stage("ramp", 100, 20), stage("one", 100, 50), stage("two", 100, 60)), 55),
    ],
)
def test_the_plot_of_rates_leaves_a_ramp_out(
    measured: MeasuredMaker, stages: tuple[StageResult, ...], shown: float
) -> None:
    """A stage in which clients join before one in which none does. Without one it is the run."""
    verdict = Verdict(status=Status.PASS, limited_by=LimitedBy.NONE, evidence=(), thresholds=())
    result = RunResult.of(measured(stages=stages), verdict)
    played = step(1, clients="100").model_copy(update={"status": Status.PASS})
    plots = {plot.key: plot for plot in overview([played], [result])}
    (line,) = (e for e in plots["throughput"].figure["data"] if "received" in e["name"])
    assert line["y"] == [shown]
