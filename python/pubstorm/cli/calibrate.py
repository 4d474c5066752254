"""`pubstorm calibrate`: measures what an engine does on this host, and stores it."""

from __future__ import annotations

import click

from pubstorm.experiment.calibrate import QUICK_CLIENTS, QUICK_SECONDS, CalibrateOptions, in_words
from pubstorm.experiment.calibrate import calibrate as measure_host
from pubstorm.host.binaries import engine_path
from pubstorm.host.calibration import store
from pubstorm.output import say, warn


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(0.5, 600),
    default=5.0,
    show_default=True,
    help="How long each load is played.",
)
@click.option(
    "--clients", type=click.IntRange(1), help="Clients to connect. Default: as limits allow."
)
@click.option("--quick", is_flag=True, help="One short round with few clients: a rough figure.")
def calibrate(seconds: float, clients: int | None, quick: bool) -> None:
    """Measure what an engine does on this host, against a peer that does nothing.

    What is found is stored for this host; runs then say how close they came to it.
    """
    options = CalibrateOptions(seconds, clients)
    if quick:
        options = CalibrateOptions(QUICK_SECONDS, clients or QUICK_CLIENTS, rounds=1)
    found = measure_host(engine_path(), options, warn)
    for line in in_words(found):
        say(line)
    warn(f"stored in {store(found)}")
