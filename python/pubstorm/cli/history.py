"""`pubstorm history`: a figure of many stored runs over time, with its changes."""

from __future__ import annotations

from pathlib import Path

import click

from pubstorm.cli.console import standard_output
from pubstorm.errors import StoredRunError, UsageError
from pubstorm.experiment.history import stored_history
from pubstorm.metrics.expressions import parse_expression
from pubstorm.output import data_code, say
from pubstorm.play.directory import RunDirectory
from pubstorm.quantities import UnfitError


@click.command()
@click.argument("folders", type=click.Path(path_type=Path), metavar="DIR…", nargs=-1, required=True)
@click.option(
    "--figure",
    "figures",
    multiple=True,
    default=("latency.p99",),
    show_default=True,
    metavar="FIGURE",
    help="Show this figure, such as device.latency.p99.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write a page with a plot of each figure too.",
)
def history(
    folders: tuple[Path, ...], figures: tuple[str, ...], as_json: bool, html: Path | None
) -> int:
    """Show a figure of all runs in DIR over time, and the runs since which it changed.

    A DIR is a run, or contains runs at any depth. Each scenario has a table of its own. Invalid
    and interrupted runs are marked, and no change is computed with them. A change needs eight
    runs.
    """
    try:
        asked = [parse_expression(each) for each in dict.fromkeys(figures)]
    except UnfitError as error:
        raise UsageError(str(error), error.hint) from error
    if html is not None and not html.parent.is_dir():
        raise _unwritten(html, "No such file or directory")
    found = stored_history(folders, asked)
    from pubstorm.report.of_history import history_document

    document = history_document(found, " ".join(map(str, folders)))
    if as_json:
        say(found.model_dump_json(indent=2))
    else:
        from pubstorm.report.text import render

        render(document, standard_output())
    if html is not None:
        from pubstorm.report.page import page

        reason = RunDirectory(html.parent).write(html.name, page(document))
        if reason is not None:
            raise _unwritten(html, reason)
    return data_code() if as_json else 0


def _unwritten(html: Path, reason: str) -> StoredRunError:
    hint = "name a file in a folder that exists, with --html"
    return StoredRunError(f"cannot write {html}: {reason}", hint)
