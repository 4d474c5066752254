"""An endpoint for Prometheus: classic histograms in every format, native ones in the protobuf
format and in OpenMetrics 2.0."""

from __future__ import annotations

import errno
import math
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import BucketSpan, NativeHistogram
from prometheus_client.samples import Sample as Line

from pubstorm.contract.histogram import Histogram
from pubstorm.errors import UsageError
from pubstorm.exports import Item, Run
from pubstorm.exports.families import CONTENT_TYPE, SCHEMA, are_preferred, encoded
from pubstorm.exports.tally import Family, Labels, Tally, cumulative, exponential


class _Figures(Collector):
    """The present run, as the library renders it."""

    def __init__(self, tally: Tally, *, has_native: bool) -> None:
        self._tally = tally
        self._has_native = has_native

    def collect(self) -> Iterator[Metric]:
        """Yields all metrics."""
        for family in self._tally.families():
            yield self._metric(family)

    def _metric(self, family: Family) -> Metric:
        metric = Metric(family.name.removesuffix("_total"), family.text, family.kind)
        for labels, value in family.points:
            if not isinstance(value, Histogram):
                metric.add_sample(family.name, dict(labels), value)
                continue
            if self._has_native:
                line = Line(family.name, dict(labels), 0.0, native_histogram=_native(value))
                metric.samples.append(line)
            metric.samples.extend(_classic(family.name, labels, value))
        return metric


def _classic(name: str, labels: Labels, histogram: Histogram) -> Iterator[Line]:
    for bound, below in cumulative(histogram):
        end = "+Inf" if bound == math.inf else str(bound)
        yield Line(f"{name}_bucket", {**dict(labels), "le": end}, below)
    yield Line(f"{name}_count", dict(labels), histogram.count)
    yield Line(f"{name}_sum", dict(labels), histogram.sum_ns / 1e9)


def _native(histogram: Histogram) -> NativeHistogram:
    zeros, first, counts = exponential(histogram, SCHEMA)
    deltas = [after - before for before, after in zip([0, *counts], counts, strict=False)]
    spans = [BucketSpan(first + 1, len(counts))] if counts else None
    total, sum_s = histogram.count, histogram.sum_ns / 1e9
    return NativeHistogram(total, sum_s, SCHEMA, 0.0, zeros, spans, None, deltas or None)


NO_ADDRESS = "HOST is an address of this machine; without it the endpoint is on loopback"


class ScrapeEndpoint:
    """The endpoint, as an export."""

    unit = ("record", "records")
    dropped = 0
    problem = ""

    def __init__(self, host: str, port: int) -> None:
        """Listens at once. Raises UsageError if that is impossible."""
        self.name = f"--prometheus {host}:{port}"
        self._tally = Tally()
        classic, native = (self._app(has_native=each) for each in (False, True))

        def app(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            accept = environ.get("HTTP_ACCEPT", "")
            if are_preferred(accept):
                body = encoded(self._tally.families())
                start(
                    "200 OK", [("Content-Type", CONTENT_TYPE), ("Content-Length", str(len(body)))]
                )
                return [body]
            chosen = native if "version=2.0" in accept else classic
            try:
                return chosen(environ, start)
            except (TypeError, ValueError):  # a version that is no number
                return chosen({**environ, "HTTP_ACCEPT": ""}, start)

        try:
            kind = _ServerOfIpv6 if ":" in host else _MetricsServer
            self._server = make_server(host, port, app, kind, _Silent)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            is_of_port = getattr(error, "errno", None) in {errno.EADDRINUSE, errno.EACCES}
            hint = "choose another port, such as :9465" if is_of_port else NO_ADDRESS
            raise UsageError(f"{self.name}: cannot listen: {reason}", hint) from error
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port."""
        return int(self._server.server_port)

    def _app(self, *, has_native: bool) -> Callable[..., Iterable[bytes]]:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Figures(self._tally, has_native=has_native))
        app: Callable[..., Iterable[bytes]] = make_wsgi_app(registry)
        return app

    def take(self, run: Run, item: Item) -> None:
        """Adds an item to the sums."""
        self._tally.take(run, item)

    def rest(self) -> None:
        """Does nothing: Prometheus asks."""

    def end(self) -> None:
        """Keeps the sums until the next run."""
        self._tally.end()

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()


class _MetricsServer(ThreadingWSGIServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores a scraper that leaves."""


class _ServerOfIpv6(_MetricsServer):
    address_family = socket.AF_INET6


class _Silent(WSGIRequestHandler):
    timeout = 10

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing."""
