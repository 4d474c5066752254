"""Pushes to OpenTelemetry collectors, made of the protocol's own messages and services."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as service
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as rpc

from pubstorm.errors import UsageError
from pubstorm.exports.otlp import Collector
from tests.exports.made_run import LATENCIES_NS, UNIX_NS, a_run, interval
from tests.ports import free_port

Received = list[Any]


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


@pytest.mark.parametrize("collector", [over_grpc, over_http])
def test_a_collector_gets_sums_states_and_histograms(collector: Any) -> None:
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


@pytest.mark.parametrize("url", ["localhost:4317", "mqtt://localhost", "grpc://", "http:///x"])
def test_a_wrong_url_is_a_clear_message(url: str) -> None:
    with pytest.raises(UsageError, match="allowed is http"):
        Collector(url)
