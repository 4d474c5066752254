"""Makes a folder of nightly runs by hand, and the page of their history. Since one of the nights
the clients connect slower."""

from __future__ import annotations

from pathlib import Path

from pubstorm import cli
from pubstorm.report import load_result
from tests.kit.example_run import Shape, write_run

NIGHTS = 20
STEP = 12
"""Number of the first slow night."""
OUT = 5
"""Number of a night whose run was interrupted."""


def write_history(folder: Path) -> Path:
    """Makes the runs and returns the page, with a plot of two figures."""
    write_run(folder / "first", Shape(duration_s=20))
    good = load_result(folder / "first")
    device = good.populations["device-0"]
    for night in range(NIGHTS):
        p99 = 1000.0 + night % 3 + (400 if night >= STEP else 0)
        times = device.connect_time_us.model_copy(update={"p99": p99})
        populations = {"device-0": device.model_copy(update={"connect_time_us": times})}
        changes = {
            "started": f"2026-11-{night + 1:02}T02:30:00+00:00",
            "populations": {**good.populations, **populations},
            "interrupted": night == OUT,
        }
        path = folder / "runs" / f"{night:02}"
        path.mkdir(parents=True)
        (path / "result.json").write_text(good.model_copy(update=changes).to_json())
    page = folder / "report.html"
    figures = ("--figure", "device-0.connect_time.p99", "--figure", "latency.p99")
    assert cli.main(["history", str(folder / "runs"), *figures, "--html", str(page)]) == 0
    return page
