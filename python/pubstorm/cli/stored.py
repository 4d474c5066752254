"""`pubstorm report`: renders a stored run, series or search again. `pubstorm export`: what is
stored of a run as files for other programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import click

from pubstorm.cli.console import standard_output
from pubstorm.errors import StoredRunError, UsageError
from pubstorm.files import lies_in
from pubstorm.output import data_code, pour, say, warn
from pubstorm.play.directory import RunDirectory, is_played, player_of
from pubstorm.play.display import QuietLive
from pubstorm.report import SCENARIO_FILE, is_stored, load_stored, render_directory, write_reports
from pubstorm.report.data import FORMS, STORED, DataTable, Form, data_table, json_object, tables_of
from pubstorm.result import RunResult
from pubstorm.result.comparison import Comparison
from pubstorm.result.samples import START_FILE


@click.command()
@click.argument("run_dir", type=click.Path(path_type=Path), metavar="RUN_DIR")
def report(run_dir: Path) -> int:
    """Render the stored run, series or search in RUN_DIR again, with every file made of it.

    If the controller of the run was killed, the result is made from what was kept, and is invalid.
    The exit code is 2 if the folder cannot take a file.
    """
    if not is_stored(run_dir) and (run_dir / SCENARIO_FILE).exists():
        _salvage(run_dir)
    render_directory(run_dir, standard_output())
    directory = RunDirectory(run_dir)
    for problem in write_reports(run_dir, directory.write):
        warn(f"warning: {problem}")
    return 0 if directory.failure is None else StoredRunError.default_exit_code


def _salvage(run_dir: Path) -> None:
    """Makes the result of a run that has none. Imports what that takes here, since a stored result
    needs none of it."""
    if not (run_dir / START_FILE).exists():
        if player_of(run_dir):
            raise is_played(run_dir)
        text = f"found no measurement in {run_dir}: the run ended before its first stage"
        raise StoredRunError(text, "its logs are in the folder; run it again")
    from pubstorm.play.kept import salvage

    salvage(run_dir, QuietLive())


HDR_FILE = "latencies.hlog"
STREAM = Path("-")

File = tuple[str, bytes]
"""Name and content."""


@click.command()
@click.argument("run_dir", type=click.Path(path_type=Path), metavar="RUN_DIR")
@click.option(
    "--to",
    "form",
    type=click.Choice([*get_args(Form), "hdr"]),
    required=True,
    help="Format of the files; hdr: the log of HdrHistogram, with all latencies.",
)
@click.option(
    "--table",
    "names",
    multiple=True,
    metavar="NAME",
    help="Write this table, such as intervals. Default: all tables but parts of other tables.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the files to this folder; - writes to stdout. Default: RUN_DIR/export.",
)
def export(run_dir: Path, form: str, names: tuple[str, ...], out: Path | None) -> int:
    """Write the tables of the run, series or search in RUN_DIR as files for other programs.

    Prints the path of each file. A table without rows has no file.
    """
    is_stream = out == STREAM
    asked = _Asked(run_dir, names)
    files = asked.log() if form == "hdr" else asked.tables(form, is_stream=is_stream)
    if is_stream:
        for _, content in files:
            pour(content)
        return data_code()
    folder = out or run_dir / "export"
    if out is None and not lies_in(folder, run_dir):
        raise StoredRunError(f"{folder} is a link out of the run directory", "give --out")
    for file in files:
        say(str(_written(folder, file)))
    return 0


@dataclass(frozen=True)
class _Asked:
    """The words of the command line."""

    run_dir: Path
    names: tuple[str, ...]
    """Tables that were asked for by name."""

    def log(self) -> Iterator[File]:
        """Yields the log of HdrHistogram."""
        from pubstorm.report.latencies import hdr_log

        if self.names:
            raise UsageError("found --table with --to hdr, whose log has no tables")
        stored = load_stored(self.run_dir)
        if not isinstance(stored, RunResult):
            text = f"{self.run_dir} is no single run: it has no latencies of its own"
            raise UsageError(text, "name the folder of one of its runs")
        yield HDR_FILE, hdr_log(self.run_dir, stored).encode()

    def tables(self, form: str, *, is_stream: bool) -> Iterator[File]:
        """Yields a file for each table, or one of all for a stream. Raises UsageError if a stream
        cannot hold all."""
        found = self._found()
        if is_stream and len(self.names) != 1:
            if form != "json":
                raise UsageError(
                    f"stdout holds one table with --to {form}",
                    "name it with --table, such as --table intervals",
                )
            yield "", json_object(dict(found))
            return
        writer = next(write for each, write in FORMS.items() if each == form)
        for name, table in found:
            yield f"{name}.{form}", writer(table)

    def _found(self) -> Iterator[tuple[str, DataTable]]:
        """Yields the tables that have rows. A table that was asked for must exist."""
        stored = load_stored(self.run_dir)
        if isinstance(stored, Comparison):
            text = f"{self.run_dir} is a comparison, which has no tables"
            raise UsageError(text, "read its comparison.json")
        usual = STORED if isinstance(stored, RunResult) else tables_of(stored)
        for name in dict.fromkeys(self.names or usual):
            try:
                table = data_table(stored, self.run_dir, name)
            except UsageError as error:
                if self.names:
                    raise
                warn(f"warning: {error.message}")
                continue
            if any(table.values()):
                yield name, table
            elif self.names:
                warn(f"warning: the table {name} has no rows")


def _written(folder: Path, file: File) -> Path:
    """Puts a file in place and returns its path. Raises StoredRunError if that is impossible."""
    name, content = file
    path = folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        reason = RunDirectory(folder).write(name, content)
    except OSError as error:
        reason = error.strerror
    if reason is not None:
        raise StoredRunError(f"cannot write {path}: {reason}", "choose another folder with --out")
    return path
