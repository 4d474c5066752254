"""The registry is the only list of metrics: no other part of the package has one of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from pubstorm.contract.snapshot import Counters, FlowCounters, Gauges
from pubstorm.metrics import METRICS
from pubstorm.metrics.populations import POPULATIONS
from pubstorm.result.timeline.rows import COUNTS, GAUGES

PACKAGE = Path(__file__).parents[3] / "python" / "pubstorm"
NAMES = frozenset(
    name
    for metric in METRICS
    if not metric.is_pattern
    for name in (*metric.names, metric.field, f"{metric.name}_total", f"{metric.name}_max")
)
OTHERS = {
    "fleet/agents/receivers.py": "what became of one delivery",
    "measure/monitors/redis.py": "names of Redis, by those of the readings that the file makes",
    "measure/phases/collapse.py": "counts of ticks that are compared with the load due",
    "report/data.py": "names of tables",
    "result/comparison/__init__.py": "properties of a host",
    "result/datasheet.py": "sections of a data sheet",
    "result/figures/of_monitors.py": "parts of a fault",
    "result/machinery.py": "kinds of stale state",
    "result/timeline/rows.py": "columns of rows, which follow the contract",
}
"""Files with names beside each other that are others, or have a reason."""


def lists_in(tree: ast.Module) -> Iterator[tuple[int, list[str]]]:
    """Yields the line and the names of each list of metrics: a tuple, a list or a set of constants,
    or the keys of a constant. A function that makes values names each beside its value."""
    assigned = (each for each in tree.body if isinstance(each, ast.Assign | ast.AnnAssign))
    constants = {id(each.value) for each in assigned}
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            parts: list[ast.expr | None] = [*node.elts]
        elif isinstance(node, ast.Dict) and id(node) in constants:
            parts = node.keys
        else:
            continue
        found = [each.value for each in parts if isinstance(each, ast.Constant)]
        known = [name for name in found if isinstance(name, str) and name in NAMES]
        if len(known) > 1:
            yield node.lineno, known


def test_no_list_of_metrics_stands_beside_the_registry() -> None:
    found = {
        str(path.relative_to(PACKAGE)): lists
        for path in sorted(PACKAGE.rglob("*.py"))
        if not path.is_relative_to(PACKAGE / "metrics")
        if (lists := [*lists_in(ast.parse(path.read_text(encoding="utf-8")))])
    }
    assert {file: lists for file, lists in found.items() if file not in OTHERS} == {}
    assert {*OTHERS} <= {*found}


@pytest.mark.parametrize(
    "text",
    ['A = ("lost", "skipped")', 'def f(): return ["cpu", "busy"]', 'A: B = {"lost": 1, "loss": 2}'],
)
def test_a_second_list_is_found(text: str) -> None:
    assert [*lists_in(ast.parse(text))]


def test_columns_of_rows_follow_the_contract_and_the_registry() -> None:
    assert tuple(Gauges.model_fields) == GAUGES
    shown = {metric.name for metric in POPULATIONS if metric.lines}
    assert {*GAUGES} <= shown
    counted = {*Counters.model_fields, *FlowCounters.model_fields}
    assert {f"{count}_total" for count in COUNTS if not count.startswith("latency_")} <= counted
