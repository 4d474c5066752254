"""The command line: commands, exit codes and errors. Data goes to stdout, all else to stderr.
A command is imported when it is called, so that each call loads only what it needs."""

from __future__ import annotations

import errno
import importlib
import keyword
import re
from collections.abc import Sequence
from typing import Any

import click

from pubstorm.errors import PubstormError, ScenarioError, UsageError, meant
from pubstorm.host.signals import INTERRUPTED
from pubstorm.output import say, warn


class LazyCommand(click.Command):
    """Stands for a command that is not imported yet; `help` is the first sentence of its help.

    `module` has the command under its name, with `_` for `-` and after a word of Python.
    """

    def __init__(self, name: str, module: str, help: str) -> None:
        super().__init__(name, help=help)
        self.module = module

    def load(self) -> click.Command:
        """Imports the command."""
        name = str(self.name).replace("-", "_") + "_" * keyword.iskeyword(str(self.name))
        found = getattr(importlib.import_module(self.module), name)
        assert isinstance(found, click.Command)
        return found

    def make_context(self, *arguments: Any, **settings: Any) -> click.Context:
        """Reads the arguments as the command itself does, and hands over to it."""
        return self.load().make_context(*arguments, **settings)


class CommandLine(click.Group):
    """Commands, of which a wrong name gets the one that is most alike as a hint."""

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the command that the first word names, and the others. Raises UsageError."""
        if not args[0].startswith("-") and self.get_command(context, args[0]) is None:
            hint = meant(args[0], self.commands, "pubstorm --help lists them")
            raise UsageError(f"found no command {args[0]!r}", hint)
        return super().resolve_command(context, args)


COMMANDS = (
    LazyCommand("run", "pubstorm.cli.run", "Run SCENARIO, a file or the name of a ready one."),
    LazyCommand(
        "bench",
        "pubstorm.cli.run",
        "Run a common load against TARGET, or against the embedded broker.",
    ),
    LazyCommand(
        "datasheet",
        "pubstorm.cli.datasheet",
        "Characterise a broker: TARGET is a recipe, or the address of a broker that runs.",
    ),
    LazyCommand("init", "pubstorm.cli.init", "Write a commented scenario to FILE."),
    LazyCommand(
        "check",
        "pubstorm.cli.check",
        "Check SCENARIO: print its plan in words, and what it needs from this host.",
    ),
    LazyCommand(
        "report",
        "pubstorm.cli.stored",
        "Render the stored run, series or search in RUN_DIR again, with every file made of it.",
    ),
    LazyCommand(
        "view", "pubstorm.cli.view", "Show the run in RUN_DIR on the live page, until interrupted."
    ),
    LazyCommand(
        "web",
        "pubstorm.cli.view",
        "Serve a page that starts runs, and shows those in the folder RUNS, until interrupted.",
    ),
    LazyCommand(
        "compare",
        "pubstorm.cli.compare",
        "Compare the runs in the folders A and B, or play the scenarios A and B with --repeat.",
    ),
    LazyCommand(
        "history",
        "pubstorm.cli.compare",
        "Show a figure of all runs in DIR over time, and the runs since which it changed.",
    ),
    LazyCommand(
        "export",
        "pubstorm.cli.stored",
        "Write the tables of the run, series or search in RUN_DIR as files for other programs.",
    ),
    LazyCommand(
        "change",
        "pubstorm.cli.change",
        "Change the active run in RUN_DIR: its load, a fault, its end.",
    ),
    LazyCommand(
        "down",
        "pubstorm.cli.change",
        "Take down what the run, series or search in RUN_DIR has left on this host.",
    ),
    LazyCommand("scenarios", "pubstorm.cli.init", "List the ready scenarios."),
    LazyCommand(
        "calibrate",
        "pubstorm.cli.broker",
        "Measure how much load an agent makes on this host, against a peer that does nothing.",
    ),
    LazyCommand(
        "broker", "pubstorm.cli.broker", "Run the embedded broker on its own, until interrupted."
    ),
    LazyCommand(
        "monitor",
        "pubstorm.cli.view",
        "Serve the monitors of this host to runs on other hosts, read-only, until interrupted.",
    ),
    LazyCommand(
        "keys",
        "pubstorm.cli.keys",
        "Make keys for TLS: pre-shared ones, or certificates of an authority of your own.",
    ),
    LazyCommand(
        "ray-keys",
        "pubstorm.cli.keys",
        "Make the keys of a Ray cluster: a token, an authority, and a certificate for each node.",
    ),
    LazyCommand(
        "seed",
        "pubstorm.cli.broker",
        "Write the users of SCENARIO, their passwords and their rights to TARGET.",
    ),
    LazyCommand(
        "import",
        "pubstorm.cli.imports",
        "Print the scenario of another tool's command lines, or of its file.",
    ),
    LazyCommand(
        "record",
        "pubstorm.cli.record",
        "Record clients and messages as a scenario, and compare its runs with them.",
    ),
    LazyCommand(
        "schema",
        "pubstorm.cli.init",
        "Print the JSON Schema of scenarios, or of the file that NAME names.",
    ),
    LazyCommand("completion", "pubstorm.cli.init", "Print the completion script of a shell."),
)
REFERENCE_HINT = 'every key, with its kind and default, is on the page "scenario" of the reference'


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and gives its exit code."""
    try:
        code = pubstorm.main(
            None if arguments is None else list(arguments), "pubstorm", standalone_mode=False
        )
        return code if isinstance(code, int) else 0
    except PubstormError as error:
        _complain(error)
        return error.exit_code
    except click.ClickException as error:
        _complain(UsageError(error.format_message(), _hint_for(error)))
        return error.exit_code
    except OSError as error:
        # Any path of the command line can be so long that a question about it fails.
        if error.errno != errno.ENAMETOOLONG:
            raise
        _complain(UsageError(f"{error.filename}: {error.strerror}", "name a shorter path"))
        return UsageError.default_exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED


def _hint_for(error: click.ClickException) -> str:
    """Returns the word that is most alike where one of some was asked for; else the help."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    helps = f"{context.command_path if context else 'pubstorm'} --help"
    if isinstance(error, click.NoSuchOption) and context and context.info_name == "bench":
        return HABITS.get(error.option_name, helps)
    parameter = error.param if isinstance(error, click.BadParameter) else None
    wrong = _NO_CHOICE.match(error.message)
    if parameter is None or wrong is None or not isinstance(parameter.type, click.Choice):
        return helps
    return meant(wrong[1], map(str, parameter.type.choices), helps)


HABITS = {
    "-I": "the interval of a client is a rate here: -I 100 (ms) is --rate 10/s",
    "-i": "client identifiers are the key client_id of a population",
    "-t": "write --topic; {n} is the number of a client",
    "-q": "write --qos",
    "-p": "the port is part of the address: mqtt://HOST:1883",
    "-s": "write --size",
    "-L": "write -n, the number of messages of all publishers, or --for with a time",
    "-V": "write --v5 for MQTT 5; 3.1.1 is the default",
    "-P": "write --password",
    "-u": "write --username",
    "-S": "write mqtts://HOST:8883 as address",
}
"""Options of other tools, with the way to say the same to `bench`."""
_NO_CHOICE = re.compile(r"'(.+)' is not one of ")


def _print_version(context: click.Context, _parameter: click.Parameter, is_asked: bool) -> None:
    """Prints the version, which takes a while to read."""
    if is_asked and not context.resilient_parsing:
        from pubstorm import __version__

        say(f"pubstorm {__version__}")
        context.exit()


@click.group(
    cls=CommandLine,
    commands=COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.pass_context
def pubstorm(context: click.Context) -> None:
    """Find out what an MQTT broker can take, in a way that can be trusted."""
    if context.invoked_subcommand is None:
        say(context.get_help())


def _complain(error: PubstormError) -> None:
    if isinstance(error, ScenarioError):
        for problem in error.problems:
            warn(f"error: {problem}")
            if problem.hint is not None:
                warn(f"  hint: {problem.hint}")
        if any(problem.hint is None for problem in error.problems):
            warn(f"hint: {REFERENCE_HINT}")
        return
    warn(f"error: {error.message}")
    if error.hint is not None:
        warn(f"  hint: {error.hint}")
