"""The command line: which words mean what, what goes to stdout, and which code it ends with. Data
goes to stdout, everything else to stderr. Every other module is beneath it and none imports it.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import click
from rich.console import Console

from pubstorm import __version__
from pubstorm.binaries import broker_path, engine_path
from pubstorm.calibrate import QUICK_CLIENTS, QUICK_SECONDS, CalibrateOptions, calibrate, in_words
from pubstorm.calibrate.calibration import Fingerprint, find, store
from pubstorm.control_socket import ask
from pubstorm.down import take_down
from pubstorm.environment import read_environment
from pubstorm.errors import PubstormError, ScenarioError, UsageError
from pubstorm.host_files import check_host_files
from pubstorm.identities.command import seed
from pubstorm.invocation import Invocation
from pubstorm.keys.command import keys, ray_keys
from pubstorm.live import live_for
from pubstorm.offered import peak_per_s
from pubstorm.plan import Plan, provisional_plan
from pubstorm.preflight import (
    Host,
    agents_needed,
    broker_host_needs,
    broker_kinds,
    needs,
    network_needs_here,
    script,
)
from pubstorm.preview import (
    broker_needs_in_words,
    needs_in_words,
    plan_in_words,
    sweep_in_words,
)
from pubstorm.report import SEARCH_FILE, render_directory, write_reports
from pubstorm.report.search import render_answer, render_search
from pubstorm.report.series import render_series, render_verdicts
from pubstorm.report.text import render, render_verdict
from pubstorm.result import SearchResult, Series, SeriesStep, Status
from pubstorm.run import RunOptions, run_scenario
from pubstorm.run_directory import RunDirectory
from pubstorm.scenario import Scenario
from pubstorm.scenario.fleet import place
from pubstorm.scenario.load import largest, smallest
from pubstorm.scenario.roles import is_zeromq
from pubstorm.search import resume_search, run_search
from pubstorm.search.forecast import search_in_words
from pubstorm.series import resume_series, run_series
from pubstorm.shipped import shipped_scenarios
from pubstorm.sizes import sizes_of
from pubstorm.sizes.costs import Costs
from pubstorm.sizes.words import sizes_in_words
from pubstorm.topology.ports import check_ports, fixed_ports
from pubstorm.units import UnfitError

TARGET = click.option("--target", metavar="URL", help="Use this broker: mqtt[s]://HOST[:PORT].")
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
    help="Where the engines run: local, ray, or ray://HOST:PORT. Short for --set fleet.on=PLACE.",
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
@click.argument("scenario", required=False)
@asked_for
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep the run in this new or empty folder. Default: runs/TIME-NAME.",
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Instead of SCENARIO: continue the series or search in this folder.",
)
@click.option("--quiet", is_flag=True, help="Only print the verdict and the run directory.")
def run(asked: Invocation, out: Path | None, resume: Path | None, quiet: bool) -> int:
    """Run SCENARIO, a file or the name of a ready one.

    A scenario with a sweep is played as a series, step after step, one with a search until the
    answer is found. Ends with 0 where it passes, 1 where a threshold fails, 2 on a wrong scenario,
    3 where the run is invalid, 130 when interrupted; a series ends with the highest of its steps, a
    search with 0 where there is an answer, 1 where no value holds, 3 where nothing could be
    counted.
    """
    console = _console()
    live = live_for(console, quiet)
    if resume is not None:
        if asked != Invocation("") or out is not None:
            raise UsageError(
                "--resume goes with no SCENARIO, --set, --on, --target or --out",
                "the folder holds them",
            )
        if (resume / SEARCH_FILE).exists():
            return _told_search(resume_search(resume, live), console, quiet)
        return _told_series(resume_series(resume, live), console, quiet)
    if not asked.scenario:
        raise click.UsageError("Missing argument 'SCENARIO'.", click.get_current_context())
    loaded = asked.load()
    if loaded.steps:
        return _told_series(run_series(loaded, asked, out, live), console, quiet)
    if loaded.search is not None:
        return _told_search(run_search(loaded, asked, out, live), console, quiet)
    result = run_scenario(loaded, RunOptions(out, asked.command()), live)
    (render_verdict if quiet else render)(result, console)
    return INTERRUPTED if result.interrupted else EXIT_CODES[result.verdict.status]


@pubstorm.command()
@click.argument("scenario")
@asked_for
@click.option(
    "--fixes",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the fixes of what is short to this file, as a shell script; nothing is applied.",
)
def check(asked: Invocation, fixes: Path | None) -> int:
    """Check SCENARIO: print its plan in words, and what it needs from this host.

    Of a sweep, the plan of the first step is printed, of a search that of its first value, and what
    the largest one needs. Ends with 3 where this host has too little. Where the engines are on a
    cluster, it prints how many hosts such as fleet.host they need, and ends with 0.
    """
    loaded = asked.load()
    steps = [step.scenario for step in loaded.steps] or [loaded]
    played_times = len(steps) * (loaded.sweep.repeat if loaded.sweep is not None else 1)
    played = [largest(each) for each in steps]
    first = smallest(steps[0])
    plans = [provisional_plan(each) for each in played]
    for each, plan in zip(played, plans, strict=True):
        check_host_files(each, plan)
        check_ports(fixed_ports(each.topology))
    heaviest, plan = max(
        zip(played, plans, strict=True), key=lambda pair: (pair[1].clients, peak_per_s(pair[1]))
    )
    for line in (
        *plan_in_words(first, provisional_plan(first)),
        *sweep_in_words(loaded),
        *search_in_words(steps[0], played_times),
    ):
        click.echo(line)
    if heaviest.fleet.on != "local":
        return _checked_cluster(heaviest, plan, fixes)
    return _checked_host(heaviest, plan, fixes)


@pubstorm.command()
@click.argument("run_dir", type=click.Path(path_type=Path), metavar="RUN_DIR")
def report(run_dir: Path) -> None:
    """Render the stored run, series or search in RUN_DIR again, with every file made of it."""
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
@click.argument("run_dir", type=click.Path(path_type=Path), metavar="RUN_DIR")
@click.option("--force", is_flag=True, help="End the run as well if it still goes on.")
def down(run_dir: Path, force: bool) -> None:
    """Take down what the run, series or search in RUN_DIR has left on this host.

    That is for runs that were killed or cut off by a power failure: it ends processes that are
    surely theirs, removes network namespaces, and deletes keys and passwords. Results stay.
    """
    take_down(run_dir, force=force, say=click.echo)


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
pubstorm.add_command(ray_keys)
pubstorm.add_command(seed)


def _checked_host(scenario: Scenario, plan: Plan, fixes: Path | None) -> int:
    """Prints what the plan needs from this host."""
    host, brokers = Host.here(), broker_kinds(scenario.topology)
    agents = scenario.fleet.agents or agents_needed(
        plan, descriptors=host.descriptors, cores=host.cores
    )
    needed = needs(plan, host, agents=agents, brokers=brokers)
    needed += network_needs_here(scenario.topology.networks)
    for line in (*needs_in_words(needed, agents), *_broker_lines(scenario, plan)):
        click.echo(line)
    if fixes is not None:
        _write(fixes, script(plan.name, needed))
    return 0 if all(need.is_met for need in needed) else HOST_SHORT


def _checked_cluster(scenario: Scenario, plan: Plan, fixes: Path | None) -> int:
    """Prints the sizes of the cluster that the plan needs; this host is not in question."""
    if fixes is not None:
        raise UsageError(
            "--fixes is for engines on this host, and fleet.on names a cluster",
            "leave it out; deploy/README.md has the settings of a cluster's hosts",
        )
    here = Fingerprint.of(read_environment(__version__, ()))
    ports = Host.here().ports
    sizes = sizes_of(plan, scenario.fleet, Costs.of(*find(here)), ports)
    for line in (*sizes_in_words(sizes, ports), *_broker_lines(scenario, plan)):
        click.echo(line)
    return 0


def _broker_lines(scenario: Scenario, plan: Plan) -> Iterable[str]:
    """What a broker elsewhere ought to have."""
    if not scenario.target or scenario.topology.brokers or is_zeromq(scenario):
        return ()
    return broker_needs_in_words(broker_host_needs(plan))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", "name another file") from error


def _told_series(series: Series, console: Console, quiet: bool) -> int:
    (render_verdicts if quiet else render_series)(series, console)
    return INTERRUPTED if series.interrupted else max(map(_code, series.steps))


def _told_search(search: SearchResult, console: Console, quiet: bool) -> int:
    (render_answer if quiet else render_search)(search, console)
    return INTERRUPTED if search.interrupted else EXIT_CODES[search.status]


def _code(step: SeriesStep) -> int:
    """The exit code of a step; one that came to no measurement tells nothing, as an invalid one."""
    if step.status is None:
        return EXIT_CODES[Status.INVALID] if step.problem is not None else 0
    return EXIT_CODES[step.status]


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
