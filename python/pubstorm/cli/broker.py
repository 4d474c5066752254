"""`pubstorm broker`: becomes the embedded broker."""

from __future__ import annotations

import os

import click

from pubstorm.host.binaries import broker_path


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=1883, show_default=True)
def broker(port: int) -> None:
    """Run the embedded broker on its own, until interrupted."""
    path = broker_path()
    os.execv(path, [path.name, "--port", str(port)])
