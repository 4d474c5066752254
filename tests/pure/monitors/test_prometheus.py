"""A real exposition over a real connection, and endpoints that are none."""

from __future__ import annotations

import math
import re
import socket
import threading
from collections.abc import Callable, Iterator
from fnmatch import translate
from typing import cast
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from pubstorm.measure.monitors import MonitorError, prometheus
from pubstorm.measure.monitors.prometheus import PrometheusMonitor, parse
from tests.kit import made

EXPOSITION = """\
# HELP emqx_messages_received Messages
# TYPE emqx_messages_received counter
emqx_messages_received{node="emqx@10.0.0.1",kind="qos \\"1\\""} 42 1700000000000
emqx_messages_received{node="emqx@10.0.0.2"} 1.5e3
go_gc_duration_seconds{quantile="0.5"} NaN
up 1
"""


@pytest.fixture
def exporter() -> Iterator[str]:
    """The address of an exporter with some metrics."""
    registry = CollectorRegistry()
    Gauge("node_load1", "Load", registry=registry).set(0.5)
    Gauge("node_memory_MemFree_bytes", "Free", registry=registry).set(2**30)
    counter = Counter("node_cpu_seconds", "CPU", ["cpu", "mode"], registry=registry)
    counter.labels("0", "user").inc(3)
    server, thread = start_http_server(0, "127.0.0.1", registry)
    yield f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def answering() -> Iterator[Callable[[bytes], str]]:
    """Starts servers that say some bytes to the first who asks, and then nothing."""
    sockets: list[socket.socket] = []

    def start(said: bytes) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        sockets.append(listener)

        def serve() -> None:
            connection, _ = listener.accept()
            sockets.append(connection)
            connection.recv(4096)
            connection.sendall(said)

        threading.Thread(target=serve, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}/"

    yield start
    for each in sockets:
        each.close()


def read(url: str, *include: str) -> dict[str, float]:
    monitor = PrometheusMonitor(made.source("it"), url, include or ("*",))
    return {reading.metric: reading.value for reading in monitor.read()}


def parsed(text: str, include: str) -> dict[str, float]:
    return dict(parse(text, re.compile(translate(include))))


def test_series_are_kept_by_the_wildcards_of_their_names(exporter: str) -> None:
    found = read(exporter, "node_load?", "node_cpu_*_total")
    assert found == {"node_load1": 0.5, 'node_cpu_seconds_total{cpu="0",mode="user"}': 3}
    assert "node_memory_MemFree_bytes" in read(exporter)


def test_labels_stay_as_they_are_written_and_only_numbers_count() -> None:
    assert parsed(EXPOSITION, "*") == {
        'emqx_messages_received{node="emqx@10.0.0.1",kind="qos \\"1\\""}': 42,
        'emqx_messages_received{node="emqx@10.0.0.2"}': 1500,
        "up": 1,
    }
    assert parsed(EXPOSITION, "go_*") == {}


@pytest.mark.parametrize("text", ["<html><body>Hello</body></html>", "a{b=c 1"])
def test_what_is_no_exposition_is_a_problem(text: str) -> None:
    with pytest.raises(MonitorError, match="does not speak Prometheus' text format"):
        parsed(text, "*")


def test_an_exporter_that_is_away_is_a_problem_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(MonitorError, match=r"cannot be read \(Connection refused\): check"):
        read(f"http://127.0.0.1:{port}/metrics")


def test_another_status_than_success_is_named(answering: Callable[[bytes], str]) -> None:
    url = answering(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
    with pytest.raises(MonitorError, match="answers 404 Not Found"):
        read(url)


def test_an_answer_that_is_no_http_is_a_problem(answering: Callable[[bytes], str]) -> None:
    with pytest.raises(MonitorError, match="cannot be read"):
        read(answering(b"SSH-2.0-OpenSSH\r\n\r\n"))


def test_an_answer_that_does_not_end_is_given_up(
    answering: Callable[[bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "DEADLINE_S", 0.1)
    with pytest.raises(MonitorError, match="timed out"):
        read(answering(b"HTTP/1.1 200 OK\r\n\r\nup 1\n"))


def test_an_answer_without_end_in_size_is_given_up(
    answering: Callable[[bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "BYTES_MAX", 10)
    with pytest.raises(MonitorError, match="answers with more than"):
        read(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + b"up 1\n" * 20))


def test_too_many_series_are_cut_with_a_word(
    exporter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "SERIES_MAX", 1)
    readings = PrometheusMonitor(made.source("it"), exporter, ("node_*",)).read()
    assert next(readings).metric == "node_load1"
    with pytest.raises(MonitorError, match=r"more than 1 series .* narrow include"):
        list(readings)


def test_names_that_fit_nothing_are_reported_at_the_end(exporter: str) -> None:
    monitor = PrometheusMonitor(made.source("it"), exporter, ("nod_*",))
    assert list(monitor.read()) == []
    with pytest.raises(MonitorError, match=r"no number that include \(nod_\*\) lets through"):
        monitor.stop()


LABELS = st.dictionaries(st.sampled_from(["a", "b_1", "quantile"]), st.text(max_size=8))


@given(st.lists(st.tuples(LABELS, st.floats()), max_size=4))
def test_what_the_library_writes_is_read_as_the_library_reads_it(
    series: list[tuple[dict[str, str], float]],
) -> None:
    metric = Metric("some", "words", "gauge")
    for labels, value in series:
        metric.add_sample("some", labels, value)
    text = generate_latest(cast("CollectorRegistry", Mock(collect=lambda: [metric]))).decode()
    read_by_it = next(iter(text_string_to_metric_families(text))).samples if series else []
    finite = [sample.value for sample in read_by_it if math.isfinite(sample.value)]
    assert [value for _, value in parse(text, re.compile("some"))] == finite
