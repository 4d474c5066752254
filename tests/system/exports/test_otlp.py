"""Pushes to OpenTelemetry collectors: made of the protocol's own messages and services, and
Rotel, which hands on what it decoded."""

from __future__ import annotations

import gzip
import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as service
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as rpc

from pubstorm.exports import otlp
from pubstorm.exports.otlp import Collector
from tests.kit.made_run import LATENCIES_NS, UNIX_NS, a_run, interval
from tests.kit.ports import free_port
from tests.kit.serving import until

Received = list[Any]
ROTEL = Path("/opt/rotel-0.0.1a15/rotel-agent")
PATIENCE_S = 60
"""Longest wait for a collector that is healthy: for its answer, and for its end."""


@contextmanager
def over_grpc(received: Received) -> Iterator[str]:
    class Service(rpc.MetricsServiceServicer):
        def Export(self, request: Any, _context: Any) -> Any:  # noqa: N802 -- the protocol's
            received.append(request)
            return service.ExportMetricsServiceResponse()

    server = grpc.server(ThreadPoolExecutor(1))
    rpc.add_MetricsServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"grpc://127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


@contextmanager
def over_http(received: Received) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/metrics"
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            received.append(service.ExportMetricsServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def rotel(received: Received, scheme: str) -> Iterator[str]:
    """Rotel, which forwards what it receives to a collector of the tests. It forwards the rest when
    it ends."""
    if not ROTEL.exists():
        pytest.skip("Rotel is not installed (scripts/install-test-tools)")
    ports = {"grpc": free_port(), "http": free_port()}
    with over_grpc(received) as url, tempfile.TemporaryDirectory() as folder:
        options = {
            "ROTEL_OTLP_GRPC_ENDPOINT": f"127.0.0.1:{ports['grpc']}",
            "ROTEL_OTLP_HTTP_ENDPOINT": f"127.0.0.1:{ports['http']}",
            "ROTEL_EXPORTER": "otlp",
            "ROTEL_OTLP_EXPORTER_ENDPOINT": url.replace("grpc:", "http:"),
            "ROTEL_PID_FILE": f"{folder}/pid",
            "ROTEL_LOG_FILE": f"{folder}/log",
        }
        process = subprocess.Popen(
            [ROTEL, "start"], env={**os.environ, **options}, stdout=subprocess.DEVNULL
        )
        try:
            until(lambda: is_listening(ports[scheme]))
            yield f"{scheme}://127.0.0.1:{ports[scheme]}"
            process.terminate()
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
            process.wait()


def is_listening(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def rotel_over_grpc(received: Received) -> AbstractContextManager[str]:
    return rotel(received, "grpc")


def rotel_over_http(received: Received) -> AbstractContextManager[str]:
    return rotel(received, "http")


@pytest.mark.parametrize("collector", [over_grpc, over_http, rotel_over_grpc, rotel_over_http])
def test_a_collector_gets_sums_states_and_histograms(
    collector: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "TIMEOUT_S", PATIENCE_S)
    received: Received = []
    with collector(received) as url:
        export, run = Collector(url), a_run()
        export.take(run, interval(0))
        export.take(run, interval(1))
        export.end()
        export.close()
    assert (export.dropped, export.problem) == (0, "")
    (resource,) = received[-1].resource_metrics
    attributes = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert attributes["service.name"] == "pubstorm" and attributes["pubstorm.scenario"] == "s"
    metrics = {each.name: each for each in resource.scope_metrics[0].metrics}
    sent = metrics["pubstorm_sent"].sum
    assert sent.is_monotonic and sent.aggregation_temporality == 2, "cumulative"
    points = {label(point, "population"): point for point in sent.data_points}
    assert points["device"].as_int == 200
    assert points["device"].start_time_unix_nano == UNIX_NS
    assert (label(points["device"], "stage"), label(points["device"], "qos")) == ("publish", "1")
    connected = metrics["pubstorm_clients_connected"].gauge.data_points
    assert {label(point, "population"): point.as_double for point in connected} == {
        "device": 10,
        "backend": 1,
    }
    latency = metrics["pubstorm_latency_seconds"]
    (point,) = latency.exponential_histogram.data_points
    assert latency.unit == "s"
    (sent_bytes,) = [p for p in metrics["pubstorm_sent_bytes"].sum.data_points if p.as_int]
    assert (sent_bytes.as_int, metrics["pubstorm_sent_bytes"].unit) == (10_000, "By")
    assert point.count == sum(point.positive.bucket_counts) == 200
    assert point.sum == pytest.approx(2 * sum(LATENCIES_NS) / 1e9)
    last = point.positive.offset + len(point.positive.bucket_counts)
    assert 2 ** (last / 2**point.scale) == pytest.approx(0.1, rel=0.1)


def label(point: Any, key: str) -> str:
    return next(str(each.value.string_value) for each in point.attributes if each.key == key)


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_a_collector_that_is_gone_costs_pushes(scheme: str) -> None:
    export = Collector(f"{scheme}://127.0.0.1:{free_port()}")
    export.take(a_run(), interval(0))
    export.end()
    export.close()
    assert (export.dropped, export.problem) == (1, "the collector did not take them")
