"""Functions of the user: rows that they make before a run, and checks between stages. None of them
is called while messages are sent."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pubstorm.errors import UsageError
from pubstorm.play.stage_check import Check, PopulationFigures, StageFigures
from pubstorm.scenario import Scenario
from pubstorm.scenario.populations import Connecting

__all__ = ["Check", "PopulationFigures", "Rows", "StageFigures", "with_rows"]

Rows = Callable[[int], Mapping[str, object]]
"""Returns the row of a client by its number: values by column. Lists and mappings become JSON."""


def with_rows(read: Callable[..., Scenario], rows: Mapping[str, Rows], folder: Path) -> Scenario:
    """Reads a scenario, with the rows of populations from functions. Each function makes a file of
    rows in the folder, with a row for each client. `read` takes settings as in --set."""
    files = {name: folder / f"{name}.csv" for name in rows}
    settings = [
        f"populations.{name}.rows={json.dumps({'file': str(file), 'repeat': True})}"
        for name, file in files.items()
    ]
    for name, row in rows.items():
        # The number of clients is known once the scenario is read, which needs the columns.
        _write(files[name], name, [row(1)])
    loaded = read(*settings)
    for name, row in rows.items():
        _write(files[name], name, list(_made(row, loaded, name)))
    return read(*settings) if rows else loaded


def _made(row: Rows, scenario: Scenario, name: str) -> Iterator[Mapping[str, object]]:
    population = scenario.populations[name]
    first = population.first if isinstance(population, Connecting) else 0
    return (row(n) for n in range(first, first + population.clients))


def _write(file: Path, name: str, rows: list[Mapping[str, object]]) -> None:
    columns = list(rows[0])
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        for row in rows:
            if list(row) != columns:
                found, allowed = ", ".join(map(str, row)), ", ".join(map(str, columns))
                raise UsageError(
                    f"found the columns {found} in a row of {name}, allowed are {allowed}",
                    "every call of the function returns the same keys",
                )
            writer.writerow([_cell(value) for value in row.values()])


def _cell(value: object) -> object:
    is_json = isinstance(value, Mapping | list | tuple)
    return json.dumps(value, separators=(",", ":")) if is_json else value
