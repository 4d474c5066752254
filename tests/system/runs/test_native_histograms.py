"""Native histograms in a real Prometheus: it asks for the protobuf format, and has the counts and
percentiles of the result."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.kit.ports import free_port
from tests.pure.deploy.test_dashboard import DASHBOARD
from tests.system.runs.test_exports import SCENARIO, WAIT_S, process, prometheus, result_of, until

NATIVE = "--enable-feature=native-histograms"
WIDTH = 2 ** (1 / 8)
"""Growth of the native buckets."""
ENGINE_WIDTH = 1 + 1 / 128
"""Growth of the engine's buckets. One that two native buckets share counts in the upper one."""
QUERIES = {
    "deliveries": "sum(histogram_count(pubstorm_latency_seconds))",
    "acknowledged": "sum(histogram_count(pubstorm_ack_latency_seconds))",
    "sum": "sum(histogram_sum(pubstorm_latency_seconds))",
    "p50": "histogram_quantile(0.5, sum(pubstorm_latency_seconds))",
    "p99": "histogram_quantile(0.99, sum(pubstorm_latency_seconds))",
    "received": "sum(pubstorm_received_total)",
    "connected": "sum(pubstorm_clients_connected)",
    "first": "sum(min_over_time(histogram_count(pubstorm_latency_seconds)[10m:100ms]))",
}


def p99_of_the_dashboard() -> str:
    """The query of the panel, for all populations."""
    queries = (target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"])
    found = next(query for query in queries if "(0.99" in query and "_latency_seconds" in query)
    for variable, text in (("$run", "out"), ("$population", ".*"), ("$__rate_interval", "10m")):
        found = found.replace(variable, text)
    return str(found)


def ranks_of_a_p99(missed: float) -> dict[str, float]:
    """The ranks in the whole run between which a p99 lies that misses a share of the deliveries.
    A rate counts from the first scrape that has the series, and misses what is in it."""
    above = 0.01 * (1 - missed)
    return {"lowest": 1 - above - missed, "highest": 1 - above}


def change(folder: Path, *words: str) -> None:
    command = [sys.executable, "-m", "pubstorm", "change", "out", *words]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=WAIT_S)


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float]]:
    """A run that publishes, and then is quiet until Prometheus has all of it: its folder, and
    answers of Prometheus."""
    folder = tmp_path_factory.mktemp("native")
    (folder / "s.yaml").write_text(SCENARIO.replace("publish: 1h]", "publish: 1h, hold: 1h]"))
    port = free_port()
    run = [sys.executable, "-m", "pubstorm", "run", "s.yaml", "--out", "out"]
    with (
        prometheus(folder, port, NATIVE) as ask,
        process(folder, *run, "--prometheus", f":{port}"),
    ):
        rated = "histogram_quantile(0.99, sum(rate(pubstorm_latency_seconds[10s]))) > 0"
        answers = {"rated": until(partial(ask, rated))}
        change(folder, "end", "stage")
        until(partial(ask, "pubstorm_stage_active{stage='hold'}"))
        # The drain was over before: figures of `publish` grow no more.
        answers |= {name: until(partial(ask, query)) for name, query in QUERIES.items()}
        answers["panel"] = until(partial(ask, p99_of_the_dashboard()))
        for name, rank in ranks_of_a_p99(answers["first"] / answers["deliveries"]).items():
            query = f"histogram_quantile({rank}, sum(pubstorm_latency_seconds))"
            answers[name] = until(partial(ask, query))
        change(folder, "stop")
        until(lambda: (folder / "out" / "result.json").exists())
    return folder, answers


Scraped = tuple[Path, dict[str, float]]


@pytest.mark.slow("a server scrapes a run for some seconds")
def test_prometheus_has_the_counts_of_the_result_in_native_histograms(scraped: Scraped) -> None:
    folder, answers = scraped
    populations: Any = result_of(folder)["populations"]
    deliveries = populations["backend"]["received_total"]
    assert answers["deliveries"] == answers["received"] == deliveries > 0
    assert answers["acknowledged"] == populations["device"]["acked_total"] > 0
    mean_us = populations["backend"]["latency_us"]["intended"]["mean"]
    assert answers["sum"] == pytest.approx(mean_us * deliveries / 1e6, rel=1e-3)


def test_percentiles_of_prometheus_are_those_of_the_result(scraped: Scraped) -> None:
    folder, answers = scraped
    latency_us: Any = result_of(folder)["populations"]["backend"]["latency_us"]["intended"]
    assert answers["lowest"] / WIDTH <= answers["panel"] <= answers["highest"] * WIDTH
    for percentile in ("p50", "p99"):
        ratio = answers[percentile] / (latency_us[percentile] / 1e6)
        assert 1 / WIDTH < ratio < WIDTH * ENGINE_WIDTH, percentile
    assert 0 < answers["rated"] <= latency_us["max"] / 1e6 * WIDTH * ENGINE_WIDTH


def test_numbers_are_the_same_in_this_format(scraped: Scraped) -> None:
    _, answers = scraped
    assert answers["connected"] == 21
