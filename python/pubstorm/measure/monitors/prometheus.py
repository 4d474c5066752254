"""Endpoints in Prometheus' text format. Only lines of wanted metrics are parsed, so that exporters
with thousands of metrics cost little."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Sequence
from fnmatch import translate
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener

from pubstorm.contract import Source
from pubstorm.contract.plan import Plan
from pubstorm.measure.monitors import MonitorError, Reading
from pubstorm.scenario.monitors import Prometheus

DEADLINE_S = 5.0
"""Longest time for an endpoint to answer in full."""
BYTES_MAX = 16 << 20
"""Longest answer that is read."""
CHUNK_BYTES = 1 << 16
SERIES_MAX = 1000
"""Series that are kept of one endpoint."""


def monitors_of(source: Source, wanted: Prometheus, _: Plan) -> Iterator[PrometheusMonitor]:
    """Yields the monitor of an endpoint."""
    yield PrometheusMonitor(source, wanted.url, wanted.include)


class PrometheusMonitor:
    """Watches one endpoint."""

    def __init__(self, source: Source, url: str, include: Sequence[str]) -> None:
        self.source = source
        self._url = url
        self._include = include
        self._wanted = re.compile("|".join(translate(pattern) for pattern in include))
        # An endpoint is near: a proxy for the internet would not find it.
        self._opener: OpenerDirector = build_opener(ProxyHandler({}))
        self._found = False
        self._failed = False

    def start(self) -> None:
        """Does nothing: the monitor holds no resource."""

    def read(self) -> Iterator[Reading]:
        """The wanted series, as they are now."""
        text, at_ns = self._text(), time.monotonic_ns()
        series = 0
        for metric, value in parse(text, self._wanted):
            series += 1
            if series > SERIES_MAX:
                text = f"{self._url} has more than {SERIES_MAX} series that are wanted"
                raise MonitorError(f"{text}, the others are left out: narrow include")
            yield Reading(at_ns, metric, value)
        self._found = self._found or series > 0

    def stop(self) -> None:
        """Raises MonitorError where it answered and nothing was wanted."""
        if not (self._found or self._failed):
            patterns = ", ".join(self._include)
            raise MonitorError(f"{self._url} has no number that include ({patterns}) lets through")

    def _text(self) -> str:
        try:
            return self._fetched()
        except HTTPError as error:
            self._failed = True
            raise MonitorError(f"{self._url} answers {error.code} {error.reason}") from error
        except (OSError, HTTPException, ValueError) as error:
            self._failed = True
            reason = error.reason if isinstance(error, URLError) else error
            words = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
            text = f"{self._url} cannot be read ({words})"
            raise MonitorError(f"{text}: check that the exporter runs and the address") from error

    def _fetched(self) -> str:
        request = Request(self._url, headers={"Accept": "text/plain;version=0.0.4"})
        deadline_s = time.monotonic() + DEADLINE_S
        body = bytearray()
        with self._opener.open(request, timeout=DEADLINE_S) as answer:
            while chunk := answer.read1(CHUNK_BYTES):
                body += chunk
                if len(body) > BYTES_MAX:
                    raise MonitorError(f"{self._url} answers with more than {BYTES_MAX >> 20} MiB")
                if time.monotonic() > deadline_s:
                    raise TimeoutError(f"no full answer in {DEADLINE_S:.0f} s")
        return body.decode("utf-8", errors="replace")


def parse(text: str, wanted: re.Pattern[str]) -> Iterator[tuple[str, float]]:
    """Series and value of every wanted line that is a number; MonitorError where it is no such
    text."""
    for line in text.split("\n"):
        name = _NAME.match(line)
        if name is None or wanted.match(name[1]) is None:
            continue
        found = _SERIES.fullmatch(line)
        try:
            value = float(found["value"] if found else "")
        except ValueError:
            message = "the endpoint does not speak Prometheus' text format: check its address"
            raise MonitorError(message) from None
        if math.isfinite(value):
            labels = _LABEL.findall(found["labels"] or "") if found else ()
            inner = ",".join(f'{label}="{written}"' for label, written in labels)
            yield f"{name[1]}{{{inner}}}" if inner else name[1], value


_NAME = re.compile(r"\s*([^\s{#]+)")
_LABEL = re.compile(r'\s*(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?', re.ASCII)
_SERIES = re.compile(
    rf"{_NAME.pattern}(\s*\{{(?P<labels>({_LABEL.pattern})*)\s*\}}\s*|\s+)"
    r"(?P<value>\S+)(\s+-?\d+)?\s*",
    re.ASCII,
)
"""A line of the text format, perhaps with a timestamp. The library of Prometheus would take more
than a megabyte and a hundredth of a second at each start."""
