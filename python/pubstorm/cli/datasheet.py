"""`pubstorm datasheet`: a broker characterised, and sheets of several brokers side by side."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from pubstorm.cli.outcome import Output, output_options
from pubstorm.errors import UsageError
from pubstorm.experiment.datasheet import compare_stored_sheets, run_datasheet
from pubstorm.experiment.datasheet.asked import Asked, BrokerTerms
from pubstorm.output import warn
from pubstorm.play.directory import new_path
from pubstorm.play.one_run import RUNS
from pubstorm.quantities import SECOND_NS, UnfitError, duration_ns, size_bytes
from pubstorm.scenario.recipes import recipe_names
from pubstorm.scenario.sheets import DIALECTS

COMPARE = "compare"
FOR_S = 1800.0
"""Time of a sheet by default."""
WILL = (
    "the sheet connects thousands of clients to it, publishes as fast as it takes, and leaves "
    "sessions and retained messages for some seconds"
)


def _words(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> object:
    return tuple(word.strip() for value in values for word in value.split(",") if word.strip())


@click.command()
@click.argument("words", nargs=-1, metavar="[TARGET | compare SHEET...]")
@click.option("--for", "length", metavar="TIME", help="Time to spend. Default: 30min.")
@click.option(
    "--only", multiple=True, callback=_words, metavar="NAMES", help="Cells or sections to measure."
)
@click.option(
    "--skip",
    multiple=True,
    callback=_words,
    metavar="NAMES",
    help="Cells or sections to leave out.",
)
@click.option(
    "--plan",
    metavar="PLAN",
    help="Cells of the sheet: default, soak, or a file of yours. Default: default.",
)
@click.option(
    "--protocol",
    type=click.Choice(("mqtt", *(each.protocol for each in DIALECTS.values()))),
    help="Protocol of the clients of a recipe. Default: mqtt.",
)
@click.option("--soak", metavar="TIME", help="Look for drift and leaks for this time, such as 8h.")
@click.option("--persistent", is_flag=True, help="The broker keeps its state on the disk.")
@click.option("--cpus", metavar="LIST", default="", help="Processors of the broker, such as 0,1.")
@click.option("--memory", metavar="SIZE", default="", help="Memory of the broker, such as 2GB.")
@click.option(
    "--restart-command",
    "restart",
    metavar="LINE",
    default="",
    help="A line for the shell that restarts a broker that runs, such as 'ssh HOST reboot'.",
)
@click.option("--yes", is_flag=True, help="Do not ask before a broker that runs is loaded.")
@click.option("--page", is_flag=True, help="With compare: keep its page and tables in a folder.")
@output_options
def datasheet(words: tuple[str, ...], output: Output, page: bool, **given: Any) -> int:
    """Characterise a broker: TARGET is a recipe, or the address of a broker that runs.

    A recipe is a broker that Pubstorm starts, such as mosquitto, or a file with one. The sheet has
    capacity, memory of sessions and messages, latency, recovery, features and limits, each figure
    with its interval and what set the limit. It plays the cells of its plan that fit into its
    time. The exit code is 0 if a cell was measured, 3 if none was, 130 if interrupted.

    `compare SHEET...` shows the sheets in these folders side by side. Several of one broker are
    passes of one column. Of each figure it says which brokers differ, with 95 % for all pairs.
    """
    if words[:1] == (COMPARE,):
        named = new_path(RUNS, "datasheets", datetime.now().astimezone()) if page else None
        sheets = [*map(Path, words[1:])]
        return output.conclude(compare_stored_sheets(sheets, output.folder or named))
    target = words[0] if words else None
    if len(words) > 1 or page:
        found = "--page" if page else f"{len(words)} words"
        raise UsageError(f"found {found}, allowed is one TARGET", "compare SHEET... takes several")
    if target is None:
        allowed = ", ".join(recipe_names())
        raise UsageError("found no TARGET", f"give mqtt://HOST:PORT, or a recipe: {allowed}")
    asked = _asked(target, given)
    if asked.target is not None and not given["yes"]:
        _confirm(asked)
    with output.shown() as live:
        played = run_datasheet(asked, output.folder, live)
    return output.conclude(played)


def _asked(target: str, given: Mapping[str, Any]) -> Asked:
    """Returns what the options ask for. Raises UsageError."""
    soak = given["soak"]
    soak_s = None if soak is None else _seconds("--soak", soak)
    default_s = FOR_S if soak_s is None else 2 * soak_s
    return Asked(
        subject=target,
        for_s=default_s if given["length"] is None else _seconds("--for", given["length"]),
        plan=given["plan"] or ("default" if soak is None else "soak"),
        soak_s=soak_s,
        only=given["only"],
        skip=given["skip"],
        restart=_here(given["restart"]),
        protocol=None if given["protocol"] is None else given["protocol"].upper(),
        terms=BrokerTerms(given["persistent"], _cpus(given["cpus"]), _bytes(given["memory"])),
    )


def _seconds(option: str, length: str) -> float:
    try:
        return duration_ns(length) / SECOND_NS
    except UnfitError as unfit:
        raise UsageError(f"{option}: {unfit}", unfit.hint or "write 5min or 1h") from unfit


def _here(line: str) -> str:
    """Returns a line for the shell that runs in the current directory, also when the sheet is
    continued from another one."""
    return f"cd {shlex.quote(str(Path.cwd()))} && {{ {line}; }}" if line else ""


def _bytes(memory: str) -> int | None:
    try:
        return size_bytes(memory) if memory else None
    except UnfitError as unfit:
        raise UsageError(f"--memory: {unfit}", unfit.hint or "write 2GB") from unfit


def _cpus(cpus: str) -> tuple[int, ...]:
    words = [word.strip() for word in cpus.split(",") if word.strip()]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise UsageError(f"--cpus: found {cpus!r}, allowed are numbers", "write 0 or 0,1")
    return tuple(map(int, words))


def _confirm(asked: Asked) -> None:
    """Asks a user at a terminal. Raises UsageError without a terminal, or a yes."""
    last = "restarts it by --restart-command" if asked.restart else "kills nothing"
    warn(f"{asked.target} runs already: {WILL}; it {last}")
    hint = "give --yes if it may be loaded"
    if not sys.stdin.isatty():
        raise UsageError("found no terminal to ask at", hint)
    if not click.confirm("load it?", err=True):
        raise UsageError("the broker may not be loaded", hint)
