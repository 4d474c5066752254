"""Makes the folder of a series by hand: three steps with run directories, one that came to no
measurement."""

from __future__ import annotations

from pathlib import Path

from pubstorm.result import (
    Cell,
    Estimate,
    LimitedBy,
    Series,
    SeriesCell,
    SeriesStep,
    SeriesTable,
    Status,
)
from tests.kit.example_run import Shape, write_run

CLIENTS = (2000, 3000, 4000, 5000)


def write_series(folder: Path, **changes: object) -> Series:
    """Makes the folder; `changes` are fields of the series."""
    steps = tuple(_step(folder, number, clients) for number, clients in enumerate(CLIENTS, 1))
    series = Series(
        name="fixed-rate",
        scenario="fixed-rate.yaml",
        run_directory=str(folder),
        started="2026-11-21T12:00:00+00:00",
        ended="2026-11-21T12:20:00+00:00",
        overrides=("broker.kind=mosquitto",),
        columns=("clients", "msg/s", "CPU of the broker", "result"),
        steps=steps,
        complete=True,
        stopped="verdict is fail",
        tables=(_table(),),
        text="It passed up to 3000 clients. At 4000 clients the broker was the limit.",
    ).model_copy(update=changes)
    (folder / "series.json").write_text(series.model_dump_json(indent=2))
    return series


def _table() -> SeriesTable:
    rate = Estimate(value=332, low=330, high=334, repeats=3, unit="per_s")
    most = Estimate(value=498, low=498, high=498, bound="at_least", unit="per_s")
    limited = SeriesCell(**dict(Cell.of(most)), remarks=("this host set the limit",))
    return SeriesTable(
        title="Most of all",
        columns=("Client Count", "msg/s (< 0.5 % lost)"),
        rows=(
            (SeriesCell(value=2000), SeriesCell(**dict(Cell.of(rate)))),
            (SeriesCell(value=3000), limited),
        ),
    )


def _step(folder: Path, number: int, clients: int) -> SeriesStep:
    path = f"steps/{number:02}"
    played = clients < max(CLIENTS)
    result = None
    if played:
        shape = Shape(duration_s=60, clients=clients, carries=clients < 4000, seed=number)
        result = write_run(folder / path, shape)
    return SeriesStep(
        number=number,
        label=f"clients {clients}",
        values={"populations.device-0.clients": str(clients)},
        repetition=1,
        folder=path,
        command=f"pubstorm run fixed-rate.yaml --set populations.device-0.clients={clients}",
        note="After a restart of the broker." if number == 1 else "",
        status=result.verdict.status if result else None,
        limited_by=result.verdict.limited_by if result else LimitedBy.NONE,
        evidence=result.verdict.evidence if result else (),
        problem=None if played else "the host has too few descriptors\nneeded are 5100",
        duration_s=result.duration_s if result else 0.0,
        cells=(
            Cell(value=clients),
            Cell(value=clients * 0.166, unit="per_s") if played else Cell(),
            Cell(value=clients / 4200, unit="share") if played else Cell(),
            Cell(word="held" if result and result.verdict.status is Status.PASS else "failed"),
        ),
    )
