"""The metrics of a run for Prometheus, at `/metrics`."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from pubstorm.exports.prometheus import page
from pubstorm.exports.tally import Family
from pubstorm.web.endpoint import FAMILIES
from pubstorm.web.guard import Guard, Guarded, guard_of
from pubstorm.web.process import WebSettings
from pubstorm.web.server import Limits, serving

LIMITS = Limits(trusted_max=8, idle_s=60)


@dataclass
class HandedOver:
    """The metrics that the controller handed over last."""

    families: tuple[Family, ...] = ()


def application(figures: HandedOver, guard: Guard) -> ASGIApp:
    """Returns the application, behind the guard."""

    def metrics(request: Request) -> Response:
        kind, content = page(figures.families, request.headers.get("accept", ""))
        return Response(content, headers={"Content-Type": kind})

    routes = [Route("/metrics", metrics)]
    return Guarded(Starlette(routes=routes, middleware=[Middleware(GZipMiddleware)]), guard)


async def serve_lines(
    settings: WebSettings, listener: socket.socket, lines: asyncio.StreamReader
) -> None:
    """Serves the metrics that the lines of a controller have, until the lines end."""
    figures, guard = HandedOver(), guard_of(settings)
    async with serving(application(figures, guard), LIMITS, guard.tls, listener):
        while line := await lines.readline():
            # A figure that JSON does not have leaves the page as it was.
            with contextlib.suppress(ValueError):
                figures.families = FAMILIES.validate_json(line)
