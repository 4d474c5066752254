"""Makes the folder of a comparison by hand: two runs of each side, and one run that is left out."""

from __future__ import annotations

from pathlib import Path

from pubstorm.result import Latency, LimitedBy, RunResult, Status
from pubstorm.result.comparison import Comparison, Group, compare, default_figures, unfit
from tests.kit.example_run import Shape, write_run

SIDES = {"baseline": (1, 2, 3), "candidate": (4, 5)}
"""Numbers of the runs. The last run of the baseline is invalid."""
INVALID = 3
SLOWER = 4.0
"""Factor between the latencies of both sides."""
SPREAD = 0.001
"""Difference between the latencies of a run and the next one, as a share."""


def write_comparison(folder: Path) -> Comparison:
    """Makes the folder."""
    groups = [_group(folder, name, numbers) for name, numbers in SIDES.items()]
    results = [result for group in groups for result in group.results]
    started = "2026-11-21T12:00:00+00:00"
    found = compare(groups[0], groups[1], default_figures(results), [], started)
    found = found.model_copy(update={"run_directory": str(folder)})
    (folder / "comparison.json").write_text(found.to_json())
    return found


def _group(folder: Path, name: str, numbers: tuple[int, ...]) -> Group:
    runs = [f"runs/{number:02}-{name}" for number in numbers]
    results = [_run(folder / run, name, number) for run, number in zip(runs, numbers, strict=True)]
    left_out = [f"run {n}: {unfit(r)}" for n, r in zip(numbers, results, strict=True) if unfit(r)]
    return Group(name, [result for result in results if unfit(result) is None], runs, left_out)


def _run(path: Path, name: str, number: int) -> RunResult:
    result = write_run(path, Shape(duration_s=40, seed=number))
    populations = {
        each: population.model_copy(
            update={
                "latency_us": population.latency_us.model_copy(
                    update={"intended": _slower(population.latency_us.intended, name, number)}
                )
            }
        )
        for each, population in result.populations.items()
    }
    changes: dict[str, object] = {"populations": populations}
    if number == INVALID:
        changes["verdict"] = result.verdict.model_copy(
            update={"status": Status.INVALID, "limited_by": LimitedBy.GENERATOR}
        )
    result = result.model_copy(update=changes)
    (path / "result.json").write_text(result.to_json())
    return result


def _slower(latency: Latency, name: str, number: int) -> Latency:
    factor = (SLOWER if name == "candidate" else 1.0) * (1 + SPREAD * number)
    return latency.model_copy(update={"p50": 300 * factor, "p99": 900 * factor})
