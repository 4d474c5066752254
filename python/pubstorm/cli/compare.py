"""`pubstorm compare`: the differences between two groups of runs, or between two scenarios.
`pubstorm history`: a figure of many stored runs over time, with its changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from pubstorm.cli.console import standard_output
from pubstorm.cli.options import SET, TARGET
from pubstorm.cli.outcome import conclude, live_of
from pubstorm.errors import StoredRunError, UsageError
from pubstorm.experiment.comparison import Question, compare_stored, play_comparison
from pubstorm.experiment.history import stored_history
from pubstorm.experiment.invocation import Invocation
from pubstorm.metrics.expressions import parse_expression
from pubstorm.output import data_code, never_waiting, say
from pubstorm.play.directory import RunDirectory
from pubstorm.quantities import UnfitError
from pubstorm.report import SCENARIO_FILE
from pubstorm.result.comparison import parse_condition

MANY = ("--baseline", "--candidate")
"""Options that take every word up to the next option."""


class _Words(click.Command):
    """A command in which `--baseline A B C` stands for `--baseline A --baseline B --baseline C`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeats the options of MANY before each of their words."""
        return super().parse_args(ctx, list(_repeated(args)))


def _repeated(words: Sequence[str]) -> Iterator[str]:
    option: str | None = None
    for word in words:
        if word.startswith("-"):
            option = word if word in MANY else None
            if option is None:
                yield word
        else:
            yield from (word,) if option is None else (option, word)


@click.command(cls=_Words)
@click.argument("a", required=False)
@click.argument("b", required=False)
@click.option("--baseline", multiple=True, metavar="DIR…", help="Stored runs, instead of A.")
@click.option("--candidate", multiple=True, metavar="DIR…", help="Stored runs, instead of B.")
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    metavar="N",
    help="Play A and B in turn, each N times. A and B are scenarios, or folders of runs.",
)
@click.option(
    "--figure",
    "figures",
    multiple=True,
    metavar="FIGURE",
    help="Compare this figure, such as device.latency.p99, and no default ones.",
)
@click.option(
    "--fail-if",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help='End with 1 if this condition is fulfilled, such as "latency.p99 worse by 5%".',
)
@TARGET
@SET
@click.option(
    "--candidate-set",
    "own",
    metavar="PATH=VALUE",
    multiple=True,
    help="With --repeat: change a value of the candidate alone. B is then A, if it is left out.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep the comparison in this new or empty folder. Default with --repeat: "
    "runs/TIME-comparison; otherwise it is only printed.",
)
@click.option("--quiet", is_flag=True, help="Only print the outcome.")
def compare(
    a: str | None,
    b: str | None,
    out: Path | None,
    repeat: int | None,
    **options: object,
) -> int:
    """Compare the runs in the folders A and B, or play the scenarios A and B with --repeat.

    For each figure it prints both means, the difference with its interval, and the smallest
    difference that so many runs could have shown. One run shows no spread, so a difference needs
    two of each side. The intervals of all figures together hold with 95 %. The exit code is 0; with
    --fail-if it is 1 if a condition is fulfilled, and 3 if the runs do not decide one.
    """
    given = _Given(a, b, options)
    question = given.question()
    if repeat is None:
        baseline, candidate = given.folders()
        found = compare_stored(baseline, candidate, question, out)
    else:
        asked = given.scenarios()
        with never_waiting():
            live = live_of(is_quiet=given.is_quiet)
            found = play_comparison(asked, repeat, question, out, live)
    return conclude(found, quiet=given.is_quiet)


class _Given:
    """The words of a command line."""

    def __init__(self, a: str | None, b: str | None, options: dict[str, object]) -> None:
        self._a, self._b = a, b
        self._options = options

    @property
    def is_quiet(self) -> bool:
        return bool(self._options["quiet"])

    def _words(self, name: str) -> tuple[str, ...]:
        found = self._options[name]
        assert isinstance(found, tuple)
        return found

    def question(self) -> Question:
        """Returns what is asked. Raises UsageError for a wrong figure or condition."""
        try:
            figures = [parse_expression(each) for each in self._words("figures")]
            conditions = [parse_condition(each) for each in self._words("conditions")]
        except UnfitError as error:
            raise UsageError(str(error), error.hint) from error
        return Question(figures, conditions)

    def folders(self) -> tuple[list[Path], list[Path]]:
        """Returns the folders of both sides. Raises UsageError if a side has none, or two."""
        if self._words("own") or self._words("overrides") or self._options["target"]:
            raise UsageError(
                "--set, --candidate-set and --target change a scenario that is played",
                "give --repeat N too, which plays both sides",
            )
        sides = []
        for letter, word, name in (
            ("A", self._a, "baseline"),
            ("B", self._b, "candidate"),
        ):
            folders = [Path(each) for each in (*([word] if word else ()), *self._words(name))]
            if not folders or (word and self._words(name)):
                raise UsageError(
                    f"found {'both ' + letter if folders else 'no ' + letter} and "
                    f"{'' if folders else 'no '}--{name}, allowed is one of them",
                    "pubstorm compare RUN_DIR RUN_DIR, or --baseline DIR… --candidate DIR…",
                )
            sides.append(folders)
        return sides[0], sides[1]

    def scenarios(self) -> tuple[Invocation, Invocation]:
        """Returns the scenarios of both sides. Raises UsageError if there are none."""
        if self._words("baseline") or self._words("candidate"):
            raise UsageError("--baseline and --candidate are stored runs: --repeat plays A and B")
        if self._a is None:
            raise UsageError("found no A, allowed is a scenario or the folder of a run")
        if self._b is None and not self._words("own"):
            raise UsageError(
                "found no B and no --candidate-set: both sides would be the same",
                "name A twice to see what this host calls different",
            )
        common, target = self._words("overrides"), self._options["target"]
        assert target is None or isinstance(target, str)
        return (
            Invocation(_scenario(self._a), common, target),
            Invocation(_scenario(self._b or self._a), (*common, *self._words("own")), target),
        )


def _scenario(word: str) -> str:
    """Returns the scenario of a run's folder, or the word itself."""
    stored = Path(word) / SCENARIO_FILE
    return str(stored) if stored.is_file() else word


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
    from pubstorm.report.of_comparison import history_document

    beside = None if html is None else html.parent
    document = history_document(found, " ".join(map(str, folders)), beside)
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
