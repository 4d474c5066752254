"""Options that several commands share: the targets, place and changes of a scenario, the addresses
of servers, and the programs that get the figures of a run while it is played."""

from __future__ import annotations

import functools
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from pubstorm.contract.capabilities import forms
from pubstorm.errors import UsageError
from pubstorm.experiment.invocation import Invocation
from pubstorm.exports import Exports, Sink
from pubstorm.host.listening import (
    TOKEN,
    TOKEN_HINT,
    Address,
    Options,
    address_of,
    check_open,
    listener_at,
    tls_of,
    token_in,
)
from pubstorm.output import warn
from pubstorm.play.display import Live
from pubstorm.quantities import UnfitError
from pubstorm.scenario.fleet import place
from pubstorm.web.process import WebSettings, page_of


def _targets(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> str | None:
    return " ".join(values) or None


TARGET = click.option(
    "--target",
    metavar="[NAME=]URL",
    multiple=True,
    callback=_targets,
    help=f"Address of the broker or publisher: {forms()}. Can be repeated: clients connect to the "
    "addresses in turn. With NAME it replaces the targets or brokers of that name.",
)
SET = click.option(
    "--set",
    "overrides",
    metavar="PATH=VALUE",
    multiple=True,
    help="Change a value of the scenario, for example populations.device.clients=10k.",
)


def _fleet_on(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> tuple[str, ...]:
    """The override that an --on stands for."""
    if value is None:
        return ()
    try:
        return (f"fleet.on={place(value)}",)
    except UnfitError as error:
        message = f"--on {value}: {error}"
        raise UsageError(
            message, "ray is the cluster that this host is in; an address is that of its head"
        ) from error


ON = click.option(
    "--on",
    metavar="PLACE",
    callback=_fleet_on,
    help="Where the agents run: local, ray, or ray://HOST:PORT. Short for --set fleet.on=PLACE.",
)


def asked_for(command: Callable[..., int]) -> Callable[..., int]:
    """Gives a command its scenario with --target, --on and --set as one value."""

    @TARGET
    @ON
    @SET
    @functools.wraps(command)
    def with_invocation(
        scenario: str | None,
        target: str | None,
        on: tuple[str, ...],
        overrides: tuple[str, ...],
        **others: object,
    ) -> int:
        return command(asked=Invocation(scenario or "", (*overrides, *on), target), **others)

    return with_invocation


PORT = 8780
DEFAULT = f"127.0.0.1:{PORT}"
TOKEN_VARIABLE = "PUBSTORM_WEB_TOKEN"
OF_RUN = Options("--web", "--web-token-file", "--web-cert", "--web-key", "always")
OF_VIEW = Options("--listen", "--token-file", "--cert", "--key", "outside")
OF_STARTS = Options("--listen", "--token-file", "--cert", "--key", "always")
FILE = click.Path(path_type=Path)
PAGE = "live page: {}/{}"
START_PAGE = "start page: {}/{}"


@dataclass(frozen=True)
class Serving:
    """Address of a server, and what opens it."""

    address: Address
    token: str | None
    """The token that a client must give; None: none is needed."""
    is_generated: bool
    """True if the token was made for this server."""
    cert: Path | None
    key: Path | None

    def listen(self, sentence: str = "") -> tuple[socket.socket, WebSettings]:
        """Takes the address, and prints a sentence with the URL and the token that was made;
        empty: none. Raises UsageError if the address cannot be had."""
        listener = listener_at(self.address)
        scheme = "http" if self.cert is None else "https"
        token = f"#token={self.token}" if self.is_generated else ""
        url = f"{scheme}://{self.address.shown(listener.getsockname()[1])}"
        if sentence:
            warn(sentence.format(url, token))
        return listener, WebSettings(
            descriptor=listener.fileno(),
            hosts=tuple(self.address.names),
            token=self.token,
            cert=None if self.cert is None else str(self.cert.absolute()),
            key=None if self.key is None else str(self.key.absolute()),
        )


@contextmanager
def shown_by(serving: Serving | None, live: Live) -> Iterator[Live]:
    """Serves the page of what is played while it is open. Yields the display of its runs."""
    if serving is None:
        yield live
        return
    with page_of(*serving.listen(PAGE), live) as shown:
        yield shown


def web_options(command: Callable[..., int]) -> Callable[..., int]:
    """Gives a command the options on the live page as one value: None without a page."""

    @click.option(
        "--web",
        is_flag=False,
        flag_value=DEFAULT,
        metavar="[HOST:PORT]",
        help=f"Serve a live page of the run. Default address: {DEFAULT}.",
    )
    @click.option("--web-token-file", type=FILE, metavar="FILE", help="Token that opens the page.")
    @click.option("--web-cert", type=FILE, metavar="FILE", help="Certificate of the page (PEM).")
    @click.option("--web-key", type=FILE, metavar="FILE", help="Private key of the page (PEM).")
    @functools.wraps(command)
    def with_serving(web: str | None, **others: object) -> int:
        files = files_in(others, "web_token_file", "web_cert", "web_key")
        if web is None and any(files):
            raise UsageError(
                "found --web-token-file, --web-cert or --web-key without --web", "add --web"
            )
        serving = None if web is None else _serving(web, files, OF_RUN)
        return command(serving=serving, **others)

    return with_serving


def listen_options(options: Options) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command that only serves a page the same value."""

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        @click.option(
            "--listen",
            default=DEFAULT,
            metavar="HOST:PORT",
            help=f"Address to listen on. Default: {DEFAULT}.",
        )
        @click.option("--token-file", type=FILE, metavar="FILE", help="Token that opens the page.")
        @click.option("--cert", type=FILE, metavar="FILE", help="Certificate of the page (PEM).")
        @click.option("--key", type=FILE, metavar="FILE", help="Private key of the page (PEM).")
        @functools.wraps(command)
        def with_serving(listen: str, **others: object) -> None:
            files = files_in(others, "token_file", "cert", "key")
            command(serving=_serving(listen, files, options), **others)

        return with_serving

    return decorated


def files_in(others: dict[str, object], *names: str) -> list[Path | None]:
    """Takes options that name files away from the others, and returns the files."""
    found = [others.pop(name) for name in names]
    return [file for file in found if file is None or isinstance(file, Path)]


def serving_at(listen: str, files: Sequence[Path | None], options: Options, hint: str) -> Serving:
    """Returns where a server listens, with files of a token, a certificate and its key. Raises
    UsageError."""
    token_file, cert, key = files
    address = address_of(listen, options.listen, hint)
    context = tls_of(cert, key, options)
    token = None if token_file is None else token_in(token_file)
    if token is None and options.makes_token != "never":
        token = _token_of_variable()
    check_open(address, options, has_token=token is not None, has_tls=context is not None)
    makes = {"always": True, "outside": not address.is_loopback, "never": False}
    is_generated = token is None and makes[options.makes_token]
    if is_generated:
        token = secrets.token_urlsafe(24)
    return Serving(address, token, is_generated, cert, key)


def _serving(listen: str, files: Sequence[Path | None], options: Options) -> Serving:
    """Returns where the page is served. Raises UsageError. A page with controls, and one on an
    address other than loopback, has a token: the one that is given, or a new one. The latter has
    TLS, too."""
    hint = f"for example {options.listen}={DEFAULT}"
    if options is OF_RUN:
        hint += f"; {options.listen} behind SCENARIO stands for this address"
    return serving_at(listen, files, options, hint)


def _token_of_variable() -> str | None:
    given = os.environ.get(TOKEN_VARIABLE)
    if given is not None and not TOKEN.fullmatch(given):
        raise UsageError(f"found no token in the variable {TOKEN_VARIABLE}", TOKEN_HINT)
    return given


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
            from pubstorm.web.process import ScrapeEndpoint

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
