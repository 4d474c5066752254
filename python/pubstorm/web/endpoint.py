"""The endpoint for Prometheus, as an export: hands the present figures to the process that serves
them. Sums are made here, so that a page that is left out loses no count."""

from __future__ import annotations

import socket
import time

from pydantic import ConfigDict, TypeAdapter

from pubstorm.exports import Item, Run
from pubstorm.exports.tally import Family, Tally
from pubstorm.web.process import WebProcess, WebSettings

FAMILIES = TypeAdapter(
    tuple[Family, ...], config=ConfigDict(defer_build=True, ser_json_inf_nan="constants")
)
"""All metrics, as the process gets them."""
PAUSE_S = 0.5
"""Shortest time between two pages."""
SHARE = 1 / 20
"""Largest share of one core for pages, on average."""
SEND_S = 1.0
"""Longest time for the process to take a page."""


class ScrapeEndpoint:
    """The endpoint."""

    unit = ("page", "pages")
    dropped = 0
    problem = ""

    def __init__(self, name: str, listener: socket.socket, settings: WebSettings) -> None:
        """Serves at once, on a socket that listens."""
        self.name = name
        self._process = WebProcess(listener, settings.model_copy(update={"serves": "metrics"}))
        self._tally = Tally()
        self._is_new = False
        self._next_s = 0.0

    def take(self, run: Run, item: Item) -> None:
        """Adds an item to the sums."""
        self._tally.take(run, item)
        self._is_new = True

    def rest(self) -> None:
        """Hands over the figures that are new."""
        if self._is_new and time.monotonic() >= self._next_s:
            self._hand_over()

    def end(self) -> None:
        """Keeps the sums until the next run."""
        self._tally.end()
        self._hand_over()

    def close(self) -> None:
        """Stops listening."""
        self._process.close()

    def _hand_over(self) -> None:
        began_s = time.thread_time()
        page = FAMILIES.dump_json(self._tally.families())
        took_s = time.thread_time() - began_s
        self._next_s = time.monotonic() + max(PAUSE_S, took_s / SHARE)
        if not self._process.send(page, SEND_S) and not self.problem:
            self.dropped = 1
            self.problem = f"its process ended: {self._process.problem()}"
        self._is_new = self._process.is_behind
