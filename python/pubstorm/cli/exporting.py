"""The options that hand the figures of a run to other programs while it is played."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from pubstorm.cli.serving import FILE, files_in, serving_at
from pubstorm.errors import UsageError
from pubstorm.exports import Exports, Sink
from pubstorm.host.listening import Options

OF_PROMETHEUS = Options(
    "--prometheus", "--prometheus-token-file", "--prometheus-cert", "--prometheus-key", "never"
)
EXAMPLE = ":9464 listens on this host alone"


@dataclass(frozen=True, slots=True)
class Exporting:
    """The exports that a user asks for."""

    prometheus: str | None
    otlp: str | None
    influx: Path | None
    json_lines: Path | None
    prometheus_files: tuple[Path | None, ...] = (None, None, None)
    """Token, certificate and its key of the endpoint for Prometheus."""

    @contextmanager
    def begun(self) -> Iterator[Exports]:
        """Exports runs while it is open. Yields the exports for their display. Raises UsageError if
        an export cannot begin."""
        sinks: list[Sink] = []
        try:
            for sink in self._sinks():
                sinks.append(sink)
        except UsageError:
            for sink in sinks:
                sink.close()
            raise
        exports = Exports(sinks)
        try:
            yield exports
        finally:
            exports.close()

    def _sinks(self) -> Iterator[Sink]:
        """Yields the exports, each begun. Imports the libraries of each here."""
        if self.prometheus is not None:
            from pubstorm.web.endpoint import ScrapeEndpoint

            serving = serving_at(self.prometheus, self.prometheus_files, OF_PROMETHEUS, EXAMPLE)
            yield ScrapeEndpoint(f"--prometheus {self.prometheus}", *serving.listen())
        if self.otlp is not None:
            from pubstorm.exports.otlp import Collector

            yield Collector(self.otlp)
        if self.influx is None and self.json_lines is None:
            return
        from pubstorm.exports.lines import Lines, influx_line, json_line

        if self.influx is not None:
            yield Lines("--influx", self.influx, influx_line)
        if self.json_lines is not None:
            yield Lines("--json-lines", self.json_lines, json_line)


def export_options(command: Callable[..., int]) -> Callable[..., int]:
    """Gives a command the options of exports as one value."""
    file = click.Path(path_type=Path, dir_okay=False)

    @click.option(
        "--prometheus",
        metavar="[HOST]:PORT",
        help="Serve metrics for Prometheus at /metrics, such as :9464. Default HOST: 127.0.0.1.",
    )
    @click.option(
        "--prometheus-token-file",
        type=FILE,
        metavar="FILE",
        help="Token that scrapers must send.",
    )
    @click.option(
        "--prometheus-cert", type=FILE, metavar="FILE", help="Certificate of the metrics (PEM)."
    )
    @click.option(
        "--prometheus-key", type=FILE, metavar="FILE", help="Private key of the metrics (PEM)."
    )
    @click.option(
        "--otlp",
        metavar="URL",
        help="Push metrics to an OpenTelemetry collector: http[s]:// or grpc[s]://HOST:PORT.",
    )
    @click.option(
        "--influx",
        type=file,
        metavar="FILE",
        help="Append samples and events in InfluxDB's line protocol; FILE may be a named pipe.",
    )
    @click.option(
        "--json-lines",
        type=file,
        metavar="FILE",
        help="Append samples and events as JSON, one object on a line.",
    )
    @functools.wraps(command)
    def with_exports(
        prometheus: str | None,
        otlp: str | None,
        influx: Path | None,
        json_lines: Path | None,
        **others: object,
    ) -> int:
        files = files_in(others, "prometheus_token_file", "prometheus_cert", "prometheus_key")
        if prometheus is None and any(files):
            raise UsageError("found files of --prometheus without it", "add --prometheus")
        exporting = Exporting(prometheus, otlp, influx, json_lines, tuple(files))
        return command(exporting=exporting, **others)

    return with_exports
