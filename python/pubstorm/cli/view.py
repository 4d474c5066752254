"""`pubstorm view`: shows a stored or active run on the live page. `pubstorm web`: a page that
starts runs, and shows those of a folder. `pubstorm monitor`: serves the monitors of this host to
runs on other hosts."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import click

from pubstorm.cli.options import (
    FILE,
    OF_STARTS,
    OF_VIEW,
    PAGE,
    START_PAGE,
    Serving,
    listen_options,
    serving_at,
)
from pubstorm.errors import UsageError
from pubstorm.host.children import run_loop
from pubstorm.host.listening import Options
from pubstorm.host.signals import ending_signals
from pubstorm.output import warn
from pubstorm.report import is_stored
from pubstorm.web.live import OPEN, RunFollower, serve
from pubstorm.web.monitors import LIMITS, LONG, HostPages
from pubstorm.web.server import Guard, guard_of, serving
from pubstorm.web.watch import Surroundings, run_in


@click.command()
@click.argument("run_dir", type=click.Path(path_type=Path), metavar="RUN_DIR")
@listen_options(OF_VIEW)
def view(run_dir: Path, serving: Serving) -> None:
    """Show the run in RUN_DIR on the live page, until interrupted.

    The run may be over, or be played by another process. Of a series or search, it is the newest
    run. The page has no controls.
    """
    folder = run_in(run_dir)
    listener, settings = serving.listen(PAGE)
    asyncio.run(_serve(folder, guard_of(settings, open=OPEN), listener))


async def _serve(folder: Path, guard: Guard, listener: socket.socket) -> None:
    follower, ended = RunFollower(Surroundings()), asyncio.Event()
    follower.show(folder)
    loop = asyncio.get_running_loop()
    for number in ending_signals():
        loop.add_signal_handler(number, ended.set)
    await serve(follower, guard, listener, ended)


@click.command()
@click.argument("runs", type=click.Path(path_type=Path), metavar="[RUNS]", default="runs")
@listen_options(OF_STARTS)
def web(runs: Path, serving: Serving) -> None:
    """Serve a page that starts runs, and shows those in the folder RUNS, until interrupted.

    Default RUNS: runs. The page has a form for the kinds of `pubstorm bench`, plays one run at a
    time, and lists the stored runs, which can be repeated and compared. The active run ends with
    the page, as with Ctrl-C.
    """
    if is_stored(runs) or (runs.exists() and not runs.is_dir()):
        hint = f"pubstorm view {runs} shows one run; name the folder that contains it"
        raise UsageError(f"found no folder of runs at {runs}", hint)
    asyncio.run(_serve_starts(runs, serving))


async def _serve_starts(runs: Path, asked: Serving) -> None:
    # The page of one stored run needs neither.
    from pubstorm.web.start import Starter, serve_starter

    starter, ended = Starter(runs, _compare), asyncio.Event()
    loop = asyncio.get_running_loop()

    def interrupted() -> None:
        if ended.is_set():
            starter.interrupt()
        elif starter.active is not None:
            warn(f"ending the run in {starter.active.folder}")
        ended.set()

    for number in ending_signals():
        loop.add_signal_handler(number, interrupted)
    listener, settings = asked.listen(START_PAGE)
    await serve_starter(starter, guard_of(settings, open=OPEN), listener, ended)


def _compare(baseline: Path, candidate: Path, out: Path) -> None:
    """Compares two stored runs. Imports the comparison here, since few pages ask for one."""
    from pubstorm.experiment.comparison import Question, compare_stored

    compare_stored([baseline], [candidate], Question(), out)


OPTIONS = Options("--listen", "--token-file", "--cert", "--key", "never")
EXAMPLE = "for example --listen 127.0.0.1:9700, or [::1]:9700"
SENTENCE = "serving the monitors of this host at {}{}, until interrupted"


@click.command()
@click.option("--listen", required=True, metavar="HOST:PORT", help="Address to listen on.")
@click.option("--token-file", type=FILE, metavar="FILE", help="Token that clients must send.")
@click.option("--cert", type=FILE, metavar="FILE", help="Certificate chain of this host (PEM).")
@click.option("--key", type=FILE, metavar="FILE", help="Private key of the certificate (PEM).")
def monitor(listen: str, token_file: Path | None, cert: Path | None, key: Path | None) -> None:
    """Serve the monitors of this host to runs on other hosts, read-only, until interrupted.

    Pages are /host, /process?port=1883 (or pid, or name) and /profile?port=1883&for=20s. The first
    two are in Prometheus' text format. An address that is not loopback needs a token and TLS. A
    scenario reads the pages with monitors.sources.NAME.remote.
    """
    asked = serving_at(listen, (token_file, cert, key), OPTIONS, EXAMPLE)
    run_loop(_serve_pages(asked, HostPages()))


async def _serve_pages(asked: Serving, pages: HostPages) -> None:
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in ending_signals():
        loop.add_signal_handler(number, ended.set)
    listener, settings = asked.listen(SENTENCE)
    guard = guard_of(settings, long=LONG)
    async with serving(pages.application(guard), LIMITS, guard.tls, listener):
        await ended.wait()
