"""The dashboard of Grafana asks for metrics and labels that exports have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pubstorm.contract import Sample
from pubstorm.exports import FaultState, Samples
from pubstorm.exports.tally import METRICS, Tally
from tests.kit import made
from tests.kit.made_run import a_run, interval

FILE = Path(__file__).parents[3] / "deploy" / "grafana-dashboard.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))


def queries() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from (each["expr"] for each in DASHBOARD["annotations"]["list"])
    variables = DASHBOARD["templating"]["list"]
    yield from (each["query"]["query"] for each in variables if each["type"] == "query")


def asked() -> dict[str, set[str]]:
    """The metrics of all queries, each with the labels that select its series."""
    found: dict[str, set[str]] = {}
    for query in queries():
        for name, selector in re.findall(r"(pubstorm_\w+)(?:\{([^}]*)\})?", query):
            found.setdefault(name, set()).update(re.findall(r"(\w+)=~?\"", selector))
    return found


def test_every_metric_of_the_dashboard_is_exported() -> None:
    classic = {f"{name}_bucket" for name, (kind, _) in METRICS.items() if kind == "histogram"}
    assert len(asked()) > 15
    assert asked().keys() - METRICS.keys() - classic == set()


def test_percentiles_come_from_native_buckets_or_else_from_classic_ones() -> None:
    of_histograms = [query for query in queries() if "histogram_quantile" in query]
    assert len(of_histograms) > 5
    for query in of_histograms:
        native, classic = query.split(" or ")
        assert classic == native.replace("sum(", "sum by (le) (").replace(
            "_seconds{", "_seconds_bucket{"
        )


def test_every_label_of_the_dashboard_is_one_of_the_metric() -> None:
    tally, run = Tally(), a_run()
    for item in (
        interval(0),
        FaultState("cut", True),
        Samples([Sample(made.source("host"), "cpu", 1, 1)]),
    ):
        tally.take(run, item)
    labels = {
        family.name: {key for point, _ in family.points for key, _ in point}
        for family in tally.families()
    }
    for name, keys in asked().items():
        of_metric = labels.get(name.removesuffix("_bucket"))
        assert of_metric is None or keys <= of_metric, name
    assert labels.keys() & asked().keys() >= {"pubstorm_sent_total", "pubstorm_fault_active"}


def test_panels_have_a_place_of_their_own_and_variables_exist() -> None:
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in DASHBOARD["panels"]]
    assert len({*places}) == len(places) == len({p["id"] for p in DASHBOARD["panels"]})
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]} | {"__rate_interval"}
    assert {*re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD))} - {"__all"} <= variables
