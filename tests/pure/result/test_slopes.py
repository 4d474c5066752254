"""Slopes over hours, with their intervals: noise rarely crosses a limit, a leak is found."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from types import SimpleNamespace

import pytest

from pubstorm.contract import Sample, Source
from pubstorm.metrics.expressions import parse_threshold
from pubstorm.report.layout import listed
from pubstorm.result import Cell, Statistics, ThresholdOutcome, Watched
from pubstorm.result.figures import evaluate_threshold
from pubstorm.result.interval import BLOCKS, INDEPENDENT_MIN, SLOPE_MIN_S, slope
from pubstorm.result.samples import Keeper, Span, watched
from pubstorm.result.verdict import evaluate_run
from tests.kit.measured import measured_run

BROKER = Source.member("broker", "broker", 0)
HOUR_S = 3600
Readings = list[tuple[float, float, int]]


def noise(random: Random, hours: float, step_s: float, time_s: float) -> Readings:
    """Readings of a stationary process of the first order: two that are `time_s` apart have a
    correlation of 1/e. Their deviation is 1."""
    share = math.exp(-step_s / time_s) if time_s else 0.0
    value, found = random.gauss(0, 1), Readings()
    for number in range(round(hours * HOUR_S / step_s) + 1):
        found.append((number * step_s, value, 1))
        value = share * value + math.sqrt(1 - share**2) * random.gauss(0, 1)
    return found


def leaking(readings: Readings, per_h: float) -> Readings:
    return [(at_s, value + per_h * at_s / HOUR_S, count) for at_s, value, count in readings]


@pytest.mark.parametrize("time_s", [0, 30, 120, 400, 1200])
def test_stationary_noise_rarely_has_a_slope(time_s: float) -> None:
    random, runs, crossed = Random(7), 300, 0
    for _ in range(runs):
        found = slope(noise(random, 4, 60, time_s))
        crossed += found is not None and abs(found.per_h) > found.bound_per_h
    # 5 % of exact intervals do: 15 of 300, and 30 are three standard deviations more.
    assert crossed <= 30


def test_a_walk_by_chance_has_no_slope_or_rarely_one() -> None:
    random, runs, crossed = Random(8), 200, 0
    for _ in range(runs):
        value, walk = 0.0, Readings()
        for number in range(240):
            walk.append((60.0 * number, value, 1))
            value += random.gauss(0, 1)
        found = slope(walk)
        crossed += found is not None and abs(found.per_h) > found.bound_per_h
    assert crossed <= runs / 10


@pytest.mark.parametrize("time_s", [0, 60, 300])
def test_the_interval_has_the_slope_of_a_leak(time_s: float) -> None:
    random, runs, inside, seen = Random(9), 200, 0, 0
    for _ in range(runs):
        found = slope(leaking(noise(random, 6, 60, time_s), 1.0))
        assert found is not None
        inside += abs(found.per_h - 1.0) <= found.bound_per_h
        seen += found.per_h - found.bound_per_h > 0
    assert inside >= 0.9 * runs
    assert seen >= 0.95 * runs


def test_an_exact_line_has_an_exact_slope() -> None:
    found = slope([(30.0 * n, 500 + 2.0 * n, 1) for n in range(241)])
    assert found is not None
    assert found.per_h == pytest.approx(240)
    assert found.bound_per_h == pytest.approx(0, abs=1e-9)
    flat = slope([(30.0 * n, 7.0, 1) for n in range(241)])
    assert flat is not None
    assert (flat.per_h, flat.bound_per_h) == (0, 0)


@pytest.mark.parametrize(
    "readings",
    [
        [],
        [(0.0, 1.0, 1)],
        [(n, n % 7, 1) for n in range(round(SLOPE_MIN_S))],
        [(n * 7200 / (BLOCKS / 3), n % 3, 1) for n in range(BLOCKS // 3 + 1)],
    ],
    ids=["none", "one", "too short", "too few"],
)
def test_too_little_has_no_slope(readings: Readings) -> None:
    assert slope(readings) is None


def test_merged_readings_have_the_slope_of_all() -> None:
    values = noise(Random(3), 5, 10, 60)
    whole = slope(leaking(values, 2.0))
    minutes = [values[n : n + 6] for n in range(0, len(values) - 5, 6)]
    merged = [
        ((part[0][0] + part[-1][0]) / 2, sum(value for _, value, _ in part) / len(part), len(part))
        for part in minutes
    ]
    found = slope(leaking(merged, 2.0))
    assert whole is not None and found is not None
    assert found.per_h == pytest.approx(whole.per_h, rel=0.02)


def memory(per_h: float, spread: float) -> tuple[Watched, ...]:
    """The memory of a broker over 4 hours of load, after 10 minutes in which it started."""
    kept, random = Keeper(), Random(5)
    for number in range(4 * 120 + 20):
        at_s = 30.0 * number
        start = min(at_s / 600, 1.0) * 4e8
        value = start + per_h * at_s / HOUR_S + spread * random.gauss(0, 1)
        kept.take([Sample(BROKER, "rss_bytes", at_s, value)])
    load = Span("load", 600, 30.0 * (4 * 120 + 20))
    return watched(kept.tracks, (load,), (load,))


def outcome(line: str, monitors: tuple[Watched, ...]) -> ThresholdOutcome:
    return evaluate_threshold(measured_run(monitors=monitors), parse_threshold(line))


@pytest.mark.parametrize(
    ("per_h", "spread", "passed", "undecided"),
    [
        (0.0, 1e5, True, False),
        (-5e6, 1e5, True, False),
        (3e6, 1e5, False, False),
        (1e6, 3e6, False, True),
    ],
    ids=["steady", "shrinks", "leaks", "noisy"],
)
def test_a_threshold_decides_by_the_interval_of_a_slope(
    per_h: float, spread: float, passed: bool, undecided: bool
) -> None:
    for line in ("broker.rss.slope < 1MB/h", "broker-0.rss_bytes.slope@load < 24MB/d"):
        found = outcome(line, memory(per_h, spread))
        assert (found.passed, found.undecided, found.unit) == (passed, undecided, "bytes_per_h")
        assert found.found == pytest.approx(per_h, abs=2e5 + spread)
        assert "/h ±" in found.text
        assert found.text.endswith("the readings vary too much to decide") == undecided


def test_a_slope_of_too_short_a_time_meets_no_threshold() -> None:
    short = Statistics(count=9, mean=5)
    monitor = memory(0.0, 1e5)[0].model_copy(update={"load": short})
    found = outcome("broker.rss.slope < 1MB/h", (monitor,))
    assert (found.passed, found.undecided, found.found) == (False, False, None)
    assert "an hour or more" in found.text


def test_a_verdict_says_that_readings_vary_too_much() -> None:
    line = parse_threshold("broker.rss.slope < 1MB/h")
    verdict = evaluate_run(measured_run(monitors=memory(1e6, 3e6)), [line])
    assert verdict.status == "invalid"
    assert "readings vary too much" in verdict.headline


def test_the_table_of_processes_has_slopes_of_long_runs() -> None:
    (monitor,) = memory(3e6, 1e5)
    row = SimpleNamespace(found={"rss_bytes": monitor})
    (column,) = (each for each in listed("processes") if each.head == "mem slope")
    table = column.of([("broker-0", row)])
    assert column.is_shown(table)
    assert [str(cell.text)[:3] for cell in table if isinstance(cell, Cell)] == ["3.0"]
    short = monitor.model_copy(update={"load": Statistics(count=9)})
    assert not column.is_shown(
        column.of([("broker-0", SimpleNamespace(found={"rss_bytes": short}))])
    )


def test_few_independent_means_have_no_slope() -> None:
    wave: Callable[[int], float] = lambda n: math.sin(math.pi * n / 120)  # noqa: E731
    assert slope([(60.0 * n, wave(n), 1) for n in range(241)]) is None
    assert INDEPENDENT_MIN > 2
