"""One run that is exported in every way while it is played: one Prometheus scrapes its text,
another its native histograms, a real InfluxDB reads its lines, and a collector gets pushes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.kit.ports import free_port, free_ports
from tests.kit.runs import Run, RunMaker
from tests.pure.deploy.test_dashboard import DASHBOARD
from tests.system.exports.test_otlp import Received, label, over_grpc
from tests.system.runs.underway import end_stage, tracks_of

pytestmark = pytest.mark.xdist_group("exports")

SCENARIO = """\
topology: {brokers: {broker: {kind: embedded}}}
populations:
  device:
    clients: 20
    publications: [{topic: "t/{n}", rate: 20/s, size: 100B, qos: 1}]
  backend:
    clients: 1
    subscriptions: [{topic: "t/#", qos: 1}]
stages: [connect, publish: 1h, hold: 1h]
"""
WAIT_S = 120
"""Longest wait for a server."""
NATIVE = "--enable-feature=native-histograms"
WIDTH = 2 ** (1 / 8)
"""Growth of the native buckets."""
ENGINE_WIDTH = 1 + 1 / 128
"""Growth of the engine's buckets. One that two native buckets share counts in the upper one."""
WHILE_PUBLISHING = {
    "sent": "sum(pubstorm_sent_total{qos='1',stage='publish',population='device'})",
    "p99": "histogram_quantile(0.99, sum by (le) (pubstorm_latency_seconds_bucket))",
    "rate": "sum(rate(pubstorm_received_total[5s]))",
    "connected": "sum(pubstorm_clients_connected)",
    "stage": "pubstorm_stage_active{stage='publish'}",
    "broker": "pubstorm_monitor{source='broker-0',metric='rss_bytes'}",
}
AFTERWARDS = {
    "deliveries": "sum(histogram_count(pubstorm_latency_seconds))",
    "acknowledged": "sum(histogram_count(pubstorm_ack_latency_seconds))",
    "sum": "sum(histogram_sum(pubstorm_latency_seconds))",
    "p50": "histogram_quantile(0.5, sum(pubstorm_latency_seconds))",
    "p99": "histogram_quantile(0.99, sum(pubstorm_latency_seconds))",
    "received": "sum(pubstorm_received_total)",
    "connected": "sum(pubstorm_clients_connected)",
    "first": "sum(min_over_time(histogram_count(pubstorm_latency_seconds)[10m:100ms]))",
}
Ask = Callable[[str], float | None]


def found(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed (scripts/install-test-tools)")
    return path


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def until(ask: Callable[[], Any]) -> Any:
    """Asks until there is an answer."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            if answer := ask():
                return answer
        except OSError:
            pass
        assert time.monotonic() < deadline, "there is no answer"
        time.sleep(0.2)


@contextmanager
def process(folder: Path, *command: str) -> Iterator[None]:
    with (folder / f"{Path(command[0]).name}.log").open("wb") as log:
        running = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            yield
        finally:
            running.kill()
            running.wait()


@contextmanager
def prometheus(folder: Path, endpoint: int, *features: str) -> Iterator[Ask]:
    """A Prometheus that scrapes an endpoint each second. Yields the value of a query, if the
    answer has one."""
    folder.mkdir()
    port = free_port()
    target = f"targets: ['127.0.0.1:{endpoint}']"
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s}\n"
        f"scrape_configs: [{{job_name: pubstorm, static_configs: [{{{target}}}]}}]\n"
    )
    options = ("--config.file=prometheus.yml", "--storage.tsdb.path=tsdb")
    address = f"--web.listen-address=127.0.0.1:{port}"

    def value(query: str) -> float | None:
        words = urllib.parse.urlencode({"query": query})
        series = get(f"http://127.0.0.1:{port}/api/v1/query?{words}")["data"]["result"]
        return float(series[0]["value"][1]) if series else None

    with process(folder, found("prometheus"), *options, address, *features):
        yield value


def asked(ask: Ask, queries: dict[str, str]) -> dict[str, float]:
    return {name: until(partial(ask, query)) for name, query in queries.items()}


def p99_of_the_dashboard(run: str) -> str:
    """The query of the panel, for all populations of a run."""
    queries = (target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"])
    found = next(query for query in queries if "(0.99" in query and "_latency_seconds" in query)
    for variable, text in (("$run", run), ("$population", ".*"), ("$__rate_interval", "10m")):
        found = found.replace(variable, text)
    return str(found)


def ranks_of_a_p99(missed: float) -> dict[str, float]:
    """The ranks in the whole run between which a p99 lies that misses a share of the deliveries.
    A rate counts from the first scrape that has the series, and misses what is in it."""
    above = 0.01 * (1 - missed)
    return {"lowest": 1 - above - missed, "highest": 1 - above}


@dataclass(frozen=True)
class Exported:
    """A run, and what other programs have of it."""

    run: Run
    result: dict[str, Any]
    text: dict[str, float]
    """Answers of the Prometheus that scrapes text, while the run publishes."""
    native: dict[str, float]
    """Answers of the Prometheus with native histograms, once it has all that was published."""
    received: Received
    """Pushes that the collector got."""


@pytest.fixture(scope="module")
def exported(shared_start: RunMaker, shared_folder: Path) -> Exported:
    """A run that publishes until all have seen it, and then is quiet until they have all of it."""
    received: Received = []
    port = free_port()
    points, lines = (str(shared_folder / name) for name in ("points.txt", "lines.jsonl"))
    files = ("--influx", points, "--json-lines", lines)
    with (
        over_grpc(received) as collector,
        prometheus(shared_folder / "text", port) as ask_text,
        prometheus(shared_folder / "native", port, NATIVE) as ask,
    ):
        run = shared_start(SCENARIO, "--prometheus", f":{port}", "--otlp", collector, *files)
        text = asked(ask_text, WHILE_PUBLISHING)
        rated = "histogram_quantile(0.99, sum(rate(pubstorm_latency_seconds[10s]))) > 0"
        native = asked(ask, {"rated": rated})
        end_stage(run.directory)
        until(partial(ask, "pubstorm_stage_active{stage='hold'}"))
        # The drain was over before: figures of `publish` grow no more.
        panel = p99_of_the_dashboard(run.directory.name)
        native |= asked(ask, {**AFTERWARDS, "panel": panel})
        ranks = ranks_of_a_p99(native["first"] / native["deliveries"])
        quantile = "histogram_quantile({}, sum(pubstorm_latency_seconds))"
        native |= asked(ask, {name: quantile.format(rank) for name, rank in ranks.items()})
        run.process.send_signal(signal.SIGINT)
        assert run.finish() == 130
    return Exported(run, run.result(), text, native, received)


@pytest.mark.slow("servers scrape a run for some seconds")
def test_prometheus_answers_queries_about_the_run(exported: Exported) -> None:
    answers, device = exported.text, exported.result["populations"]["device"]
    assert 0 < answers["sent"] <= device["sent_total"]
    assert answers["p99"] > 0 and answers["rate"] > 0
    assert (answers["connected"], answers["stage"]) == (21, 1)
    assert answers["broker"] > 1e6


def test_prometheus_has_the_counts_of_the_result_in_native_histograms(exported: Exported) -> None:
    answers, populations = exported.native, exported.result["populations"]
    deliveries = populations["backend"]["received_total"]
    assert answers["deliveries"] == answers["received"] == deliveries > 0
    assert answers["acknowledged"] == populations["device"]["acked_total"] > 0
    assert answers["connected"] == 21
    mean_us = populations["backend"]["latency_us"]["intended"]["mean"]
    assert answers["sum"] == pytest.approx(mean_us * deliveries / 1e6, rel=1e-3)


def test_percentiles_of_prometheus_are_those_of_the_result(exported: Exported) -> None:
    answers = exported.native
    latency_us = exported.result["populations"]["backend"]["latency_us"]["intended"]
    assert answers["lowest"] / WIDTH <= answers["panel"] <= answers["highest"] * WIDTH
    for percentile in ("p50", "p99"):
        ratio = answers[percentile] / (latency_us[percentile] / 1e6)
        assert 1 / WIDTH < ratio < WIDTH * ENGINE_WIDTH, percentile
    assert 0 < answers["rated"] <= latency_us["max"] / 1e6 * WIDTH * ENGINE_WIDTH


def test_the_last_push_has_the_sums_of_the_result(exported: Exported) -> None:
    metrics = exported.received[-1].resource_metrics[0].scope_metrics[0].metrics
    sent = next(each.sum for each in metrics if each.name == "pubstorm_sent")
    total = sum(p.as_int for p in sent.data_points if label(p, "population") == "device")
    assert total == exported.result["populations"]["device"]["sent_total"]


def test_json_lines_are_the_samples_of_the_run(exported: Exported) -> None:
    text = (exported.run.directory.parent / "lines.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    exported_values = sorted(
        (line["source"], metric, value)
        for line in lines
        if line["kind"] == "sample"
        for metric, value in line["fields"].items()
    )
    tracks = tracks_of(exported.run.directory)
    stored = sorted(
        (source.name, metric, value)
        for (source, metric), track in tracks.items()
        for value in track.values
    )
    assert exported_values == stored
    begun = [line["fields"]["text"] for line in lines if line.get("event") == "stage begins"]
    assert begun == ["connect", "publish", "hold"]


def test_nothing_was_lost(exported: Exported) -> None:
    events = exported.result["events"]
    assert [event for event in events if event["kind"] == "export"] == []


def test_influxdb_reads_the_points(exported: Exported, tmp_path: Path) -> None:
    points = (exported.run.directory.parent / "points.txt").read_bytes()
    http, rpc = free_ports(2)
    (tmp_path / "influxdb.conf").write_text(
        f'bind-address = "127.0.0.1:{rpc}"\nreporting-disabled = true\n'
        f'[meta]\ndir = "{tmp_path}/meta"\n'
        f'[data]\ndir = "{tmp_path}/data"\nwal-dir = "{tmp_path}/wal"\n'
        f'[http]\nbind-address = "127.0.0.1:{http}"\n'
    )
    url = f"http://127.0.0.1:{http}"
    with process(tmp_path, found("influxd"), "-config", "influxdb.conf"):

        def query(text: str) -> Any:
            words = urllib.parse.urlencode({"q": text, "db": "load"})
            request = urllib.request.Request(f"{url}/query?{words}", method="POST")
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)

        until(lambda: query("CREATE DATABASE load"))
        request = urllib.request.Request(f"{url}/write?db=load", points, method="POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 204
        (series,) = query("SELECT max(connected) FROM pubstorm_sample WHERE source='device'")[
            "results"
        ][0]["series"]
        assert series["values"][0][1] == 20
        (series,) = query("SELECT count(text) FROM pubstorm_event WHERE event='stage begins'")[
            "results"
        ][0]["series"]
        assert series["values"][0][1] == 3


def test_a_run_says_what_did_not_arrive(start: RunMaker, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    collector = f"http://127.0.0.1:{free_port()}"
    options = ("--otlp", collector, "--json-lines", str(pipe), "--influx", "/dev/full")
    run = start(SCENARIO.replace("publish: 1h, hold: 1h", "publish: 1s"), *options)
    run.finish()
    result = run.result()
    texts = [event["text"] for event in result["events"] if event["kind"] == "export"]
    named = (f"--otlp {collector}", "--influx /dev/full", f"--json-lines {pipe}")
    assert [name in text for name, text in zip(named, texts, strict=True)] == [True] * 3
    assert result["populations"]["device"]["sent_total"] > 0
