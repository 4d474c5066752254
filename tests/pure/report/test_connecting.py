"""The table of the phases of connecting."""

from __future__ import annotations

from pubstorm.report.tables import CONNECTING
from pubstorm.result import RunResult
from pubstorm.result.measures import Latency


def test_populations_with_phases_have_a_row_with_mean_and_p99(plain_run: RunResult) -> None:
    assert CONNECTING.table(plain_run).rows == []
    name, population = next(iter(plain_run.populations.items()))
    phases = {
        f"connect_{phase}_us": Latency(count=2, mean=mean, p99=2 * mean)
        for phase, mean in (("tcp", 1000.0), ("tls", 3000.0), ("accept", 500.0))
    }
    measured = plain_run.model_copy(
        update={"populations": {name: population.model_copy(update=phases)}}
    )
    table = CONNECTING.table(measured)
    heads = [column.name for column in table.columns]
    (cells,) = table.texts
    shown = dict(zip(heads, cells, strict=True))
    assert shown.pop("population") == name
    assert [*shown.items()] == [
        ("TCP mean", "1.00 ms"),
        ("TCP p99", "2.00 ms"),
        ("TLS mean", "3.00 ms"),
        ("TLS p99", "6.00 ms"),
        ("accept mean", "500 µs"),
        ("accept p99", "1.00 ms"),
        ("subscribe mean", "–"),
        ("subscribe p99", "–"),
    ]
