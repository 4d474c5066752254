"""One run that is exported in every way while it is played: a real Prometheus scrapes it, a real
InfluxDB reads its lines, and a collector gets pushes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pubstorm.result.samples import read_samples
from tests.kit.ports import free_port, free_ports
from tests.system.exports.test_otlp import Received, label, over_grpc

SCENARIO = """\
topology: {brokers: {broker: {kind: embedded}}}
populations:
  device:
    clients: 20
    publications: [{topic: "t/{n}", rate: 20/s, size: 100B, qos: 1}]
  backend:
    clients: 1
    subscriptions: [{topic: "t/#", qos: 1}]
stages: [connect, publish: 1h]
validity: {lateness_p99: 1min, busy: 100%}
"""
WAIT_S = 120
"""Longest wait for a server."""


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
def process(folder: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / f"{Path(command[0]).name}.log").open("wb") as log:
        running = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            yield running
        finally:
            running.kill()
            running.wait()


@contextmanager
def prometheus(
    folder: Path, endpoint: int, *features: str
) -> Iterator[Callable[[str], float | None]]:
    """A Prometheus that scrapes an endpoint each second. Yields the value of a query, if the
    answer has one."""
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


def run_options(folder: Path, port: int, collector: str) -> list[str]:
    command = [sys.executable, "-m", "pubstorm", "run", "s.yaml", "--out", str(folder / "out")]
    command += ["--prometheus", f":{port}", "--otlp", collector]
    return [*command, "--influx", "points.txt", "--json-lines", "lines.jsonl"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float], Received]:
    """A run that ends once Prometheus has seen it: its folder, answers of Prometheus, and what the
    collector got."""
    folder = tmp_path_factory.mktemp("exports")
    (folder / "s.yaml").write_text(SCENARIO)
    received: Received = []
    port = free_port()
    with (
        over_grpc(received) as collector,
        prometheus(folder, port) as ask,
        process(folder, *run_options(folder, port, collector)) as run,
    ):
        queries = {
            "sent": "sum(pubstorm_sent_total{qos='1',stage='publish',population='device'})",
            "p99": "histogram_quantile(0.99, sum by (le) (pubstorm_latency_seconds_bucket))",
            "rate": "sum(rate(pubstorm_received_total[5s]))",
            "connected": "sum(pubstorm_clients_connected)",
            "stage": "pubstorm_stage_active{stage='publish'}",
            "broker": "pubstorm_monitor{source='broker-0',metric='rss_bytes'}",
        }
        answers = {name: until(partial(ask, query)) for name, query in queries.items()}
        run.send_signal(signal.SIGINT)
        assert run.wait(WAIT_S) == 130
    return folder, answers, received


Exported = tuple[Path, dict[str, float], Received]


def result_of(folder: Path) -> dict[str, Any]:
    stored: dict[str, Any] = json.loads((folder / "out" / "result.json").read_text())
    return stored


@pytest.mark.slow("a server scrapes a run for some seconds")
def test_prometheus_answers_queries_about_the_run(exported: Exported) -> None:
    folder, answers, _ = exported
    device = result_of(folder)["populations"]["device"]
    assert 0 < answers["sent"] <= device["sent_total"]
    assert 0 < answers["p99"] <= 60 and answers["rate"] > 0
    assert (answers["connected"], answers["stage"]) == (21, 1)
    assert answers["broker"] > 1e6


def test_the_last_push_has_the_sums_of_the_result(exported: Exported) -> None:
    folder, _, received = exported
    metrics = received[-1].resource_metrics[0].scope_metrics[0].metrics
    sent = next(each.sum for each in metrics if each.name == "pubstorm_sent")
    total = sum(p.as_int for p in sent.data_points if label(p, "population") == "device")
    assert total == result_of(folder)["populations"]["device"]["sent_total"]


def test_json_lines_are_the_samples_of_the_run(exported: Exported) -> None:
    folder, _, _ = exported
    lines = [json.loads(line) for line in (folder / "lines.jsonl").read_text().splitlines()]
    exported_values = sorted(
        (line["source"], metric, value)
        for line in lines
        if line["kind"] == "sample"
        for metric, value in line["fields"].items()
    )
    tracks = read_samples(folder / "out" / "samples.csv")
    stored = sorted((*key, value) for key, track in tracks.items() for value in track.values)
    assert exported_values == stored
    begun = [line["fields"]["text"] for line in lines if line.get("event") == "stage begins"]
    assert begun == ["connect", "publish"]


def test_nothing_was_lost(exported: Exported) -> None:
    events = result_of(exported[0])["events"]
    assert [event for event in events if event["kind"] == "export"] == []


def test_influxdb_reads_the_points(exported: Exported, tmp_path: Path) -> None:
    folder, _, _ = exported
    points = (folder / "points.txt").read_bytes()
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
        assert series["values"][0][1] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--prometheus", "127.0.0.1:{taken}"), "cannot listen: Address already in use"),
        (("--prometheus", "9464"), "allowed is [HOST]:PORT"),
        (("--otlp", "localhost:4317"), "allowed is http[s]://HOST:PORT"),
        (("--otlp", "http://localhost:port"), "allowed is http[s]://HOST:PORT"),
        (("--otlp", "grpc://localhost:99999"), "allowed is http[s]://HOST:PORT"),
        (("--otlp", "http://[localhost"), "allowed is http[s]://HOST:PORT"),
        (("--influx", "missing/points"), "cannot open it: No such file"),
        (("--json-lines", "/dev/full/x"), "cannot open it: Not a directory"),
    ],
)
def test_an_export_that_cannot_begin_ends_before_the_run(
    words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO)
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        command = [sys.executable, "-m", "pubstorm", "run", "s.yaml", "--out", "out"]
        done = subprocess.run(
            [*command, *(word.format(taken=taken) for word in words)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
    assert done.returncode == 2
    assert message in done.stderr and "hint:" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_run_says_what_did_not_arrive(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO.replace("1h", "1s"))
    os.mkfifo(tmp_path / "pipe")
    command = [sys.executable, "-m", "pubstorm", "run", "s.yaml", "--out", "out", "--quiet"]
    command += ["--otlp", f"http://127.0.0.1:{free_port()}"]
    command += ["--json-lines", "pipe", "--influx", "/dev/full"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert "Traceback" not in done.stderr
    events = result_of(tmp_path)["events"]
    texts = [event["text"] for event in events if event["kind"] == "export"]
    assert len(texts) == 3
    assert "--otlp http://127.0.0.1" in texts[0] and "the collector did not take" in texts[0]
    assert "--influx /dev/full" in texts[1] and "No space left on device" in texts[1]
    assert "--json-lines pipe" in texts[2] and "no reader took them" in texts[2]
    assert result_of(tmp_path)["populations"]["device"]["sent_total"] > 0
