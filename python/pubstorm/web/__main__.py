"""`python -m pubstorm.web`: the process that serves the page or the metrics of a run that is
played, until its stdin closes. What it serves comes in lines."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys

from pubstorm.web.process import WebSettings

NICENESS = 10
"""The load comes first."""
LINE_BYTES_MAX = 64 << 20
"""Longest line of the controller."""


async def main() -> None:
    """Serves until stdin closes."""
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    settings = WebSettings.model_validate_json(await lines.readline())
    listener = socket.socket(fileno=settings.descriptor)
    # Either needs only its own libraries.
    if settings.serves == "metrics":
        from pubstorm.web.metrics import serve_lines

        await serve_lines(settings, listener, lines)
    else:
        from pubstorm.web.live import serve_run

        await serve_run(settings, listener, lines)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    asyncio.run(main())
