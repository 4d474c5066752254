"""The command line: which words mean what, what goes to stdout, and which code it ends with. Data
goes to stdout, everything else to stderr. Every other module is beneath it and none imports it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from pubstorm import __version__
from pubstorm.binaries import broker_path, engine_path
from pubstorm.calibrate import QUICK_CLIENTS, QUICK_SECONDS, CalibrateOptions, calibrate, in_words
from pubstorm.calibration import store
from pubstorm.control_socket import ask
from pubstorm.errors import PubstormError, ScenarioError, UsageError
from pubstorm.host_files import check_host_files
from pubstorm.keys.command import keys
from pubstorm.live import live_for
from pubstorm.plan import compile_plan, planned_targets
from pubstorm.preflight import Host, agents_needed, broker_host_needs, needs, script
from pubstorm.preview import broker_needs_in_words, needs_in_words, plan_in_words
from pubstorm.report import render_directory, write_reports
from pubstorm.report.stored import SERIES_FILE
from pubstorm.report.text import render, render_verdict
from pubstorm.result import Status
from pubstorm.run import RunOptions, run_scenario
from pubstorm.run_directory import RunDirectory
from pubstorm.scenario import load_scenario
from pubstorm.shipped import find_scenario, shipped_scenarios

TARGET = click.option("--target", metavar="URL", help="Use this broker: mqtt[s]://HOST[:PORT].")
SET = click.option(
    "--set",
    "overrides",
    metavar="PATH=VALUE",
    multiple=True,
    help="Change a value of the scenario, for example populations.device.clients=10k.",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and gives its exit code."""
    try:
        code = pubstorm.main(
            None if arguments is None else list(arguments), "pubstorm", standalone_mode=False
        )
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except PubstormError as error:
        _complain(error)
        return error.exit_code
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        command = context.command_path if context else "pubstorm"
        _complain(UsageError(error.format_message(), f"{command} --help"))
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read stdout has seen enough; closing it again must not fail either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return BROKEN_PIPE


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pubstorm", message="%(prog)s %(version)s")
@click.pass_context
def pubstorm(context: click.Context) -> None:
    """Find out what an MQTT broker can take, in a way that can be trusted."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@pubstorm.command()
@click.argument("scenario")
@TARGET
@SET
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep the run in this new or empty folder. Default: runs/TIME-NAME.",
)
@click.option("--quiet", is_flag=True, help="Only print the verdict and the run directory.")
def run(
    scenario: str, target: str | None, overrides: tuple[str, ...], out: Path | None, quiet: bool
) -> int:
    """Run SCENARIO, a file or the name of a ready one.

    Ends with 0 where it passes, 1 where a threshold fails, 2 on a wrong scenario, 3 where the run
    is invalid, 130 when interrupted.
    """
    loaded = load_scenario(find_scenario(scenario), overrides, target)
    console = _console()
    result = run_scenario(loaded, RunOptions(out), live_for(console, quiet))
    (render_verdict if quiet else render)(result, console)
    return INTERRUPTED if result.interrupted else EXIT_CODES[result.verdict.status]


@pubstorm.command()
@click.argument("scenario")
@TARGET
@SET
@click.option(
    "--fixes",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the fixes of what is short to this file, as a shell script; nothing is applied.",
)
def check(scenario: str, target: str | None, overrides: tuple[str, ...], fixes: Path | None) -> int:
    """Check SCENARIO: print its plan in words, and what it needs from this host.

    Ends with 3 where this host has too little.
    """
    loaded = load_scenario(find_scenario(scenario), overrides, target)
    plan = compile_plan(loaded, planned_targets(loaded), run_tag=0)
    check_host_files(loaded, plan)
    host = Host.here()
    agents = loaded.fleet.agents or agents_needed(
        plan, descriptors=host.descriptors, cores=host.cores
    )
    brokers = sum(broker.count for broker in loaded.topology.brokers.values())
    needed = needs(plan, host, agents=agents, brokers=brokers)
    for line in (*plan_in_words(loaded, plan), *needs_in_words(needed, agents)):
        click.echo(line)
    if not brokers:
        for line in broker_needs_in_words(broker_host_needs(plan)):
            click.echo(line)
    if fixes is not None:
        _write(fixes, script(plan.name, needed))
    return 0 if all(need.is_met for need in needed) else HOST_SHORT


@pubstorm.command()
@click.argument("run_dir", type=click.Path(path_type=Path), metavar="RUN_DIR")
def report(run_dir: Path) -> None:
    """Render the stored run or series in RUN_DIR again, with every file that is made of it."""
    if not (run_dir / SERIES_FILE).exists():
        render_directory(run_dir, _console())
    directory = RunDirectory(run_dir)
    for problem in write_reports(run_dir, directory.write):
        click.echo(f"warning: {problem}", err=True)
    if directory.failure is not None:
        click.echo(f"warning: {directory.failure}", err=True)


@pubstorm.command()
@click.argument("run_dir", type=click.Path(path_type=Path), metavar="RUN_DIR")
@click.argument("words", nargs=-1, required=True, metavar="CHANGE")
def change(run_dir: Path, words: tuple[str, ...]) -> None:
    """Change a population of the run that goes on in RUN_DIR.

    CHANGE is add 500 POPULATION [over 5s], remove 500 POPULATION [over 5s] or rate 2 POPULATION.
    """
    click.echo(ask(run_dir, " ".join(words)))


@pubstorm.command()
def scenarios() -> None:
    """List the ready scenarios."""
    ready = shipped_scenarios()
    width = max((len(scenario.name) for scenario in ready), default=0)
    for scenario in ready:
        click.echo(f"{scenario.name:{width}}  {scenario.description}")


@pubstorm.command("calibrate")
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
def calibrate_host(seconds: float, clients: int | None, quick: bool) -> None:
    """Measure what an engine does on this host, against a peer that does nothing.

    What is found is stored for this host; runs then say how close they came to it.
    """
    options = CalibrateOptions(seconds, clients)
    if quick:
        options = CalibrateOptions(QUICK_SECONDS, clients or QUICK_CLIENTS, rounds=1)
    found = calibrate(engine_path(), options, lambda line: click.echo(line, err=True))
    for line in in_words(found):
        click.echo(line)
    click.echo(f"stored in {store(found)}", err=True)


@pubstorm.command()
@click.option("--port", type=click.IntRange(0, 65535), default=1883, show_default=True)
def broker(port: int) -> None:
    """Run the embedded broker on its own, until interrupted."""
    path = broker_path()
    os.execv(path, [path.name, "--port", str(port)])


pubstorm.add_command(keys)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", "name another file") from error


def _console() -> Console:
    """Standard output; where it is no terminal, wide enough for every table."""
    return Console(width=None if sys.stdout.isatty() else WIDE_COLUMNS)


def _complain(error: PubstormError) -> None:
    if isinstance(error, ScenarioError):
        for problem in error.problems:
            click.echo(f"error: {problem}", err=True)
            if problem.hint is not None:
                click.echo(f"  hint: {problem.hint}", err=True)
        if any(problem.hint is None for problem in error.problems):
            click.echo(f"hint: {REFERENCE_HINT}", err=True)
        return
    click.echo(f"error: {error.message}", err=True)
    if error.hint is not None:
        click.echo(f"  hint: {error.hint}", err=True)


REFERENCE_HINT = "every key, with its kind and default, is in docs/reference/scenario.md"
EXIT_CODES = {Status.PASS: 0, Status.FAIL: 1, Status.INVALID: 3}
WIDE_COLUMNS = 140
HOST_SHORT = 3
INTERRUPTED = 130
BROKEN_PIPE = 141
