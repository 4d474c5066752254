"""`pubstorm import`: prints the scenario of another tool's command lines or file. An option without
an equal becomes a comment, an unknown option an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from pubstorm.cli.imports import (
    emqtt_bench,
    jmeter,
    mosquitto,
    mqttx,
    omq,
    perf_test,
    stressers,
    swarm,
)
from pubstorm.cli.imports.scenario import ImportedScenario
from pubstorm.cli.imports.words import command_lines
from pubstorm.errors import UsageError
from pubstorm.output import data_code, say
from pubstorm.scenario.load import parse_scenario

COMMANDS: dict[str, Callable[[Sequence[str]], ImportedScenario]] = {
    "emqtt-bench": emqtt_bench.read,
    "mqttx": mqttx.read,
    "mosquitto": mosquitto.read,
    "mqtt-stresser": stressers.read_stresser,
    "mqtt-benchmark": stressers.read_benchmark,
    "omq": omq.read,
    "perf-test": perf_test.read,
}
"""Readers of the words of a command line, by tool."""
FILES: dict[str, Callable[[str], ImportedScenario]] = {
    "jmeter": jmeter.read,
    "hivemq-swarm": swarm.read,
}
"""Readers of a file, by tool."""


@click.command(
    "import", context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]}
)
@click.argument("tool", type=click.Choice((*COMMANDS, *FILES)))
@click.argument("words", nargs=-1, required=True, metavar="COMMAND...", type=click.UNPROCESSED)
def import_(tool: str, words: tuple[str, ...]) -> int:
    """Print the scenario of another tool's command lines, or of its file.

    TOOL is one of these, with a command line in quotes, or with its words after --: emqtt-bench,
    mqttx, mosquitto (mosquitto_pub and mosquitto_sub), mqtt-stresser, mqtt-benchmark, omq and
    perf-test. Several command lines become one scenario with a population for each.

    Or TOOL is jmeter or hivemq-swarm, with a test plan (.jmx) or a scenario (.xml).

    Options and parts without an equal become comments, unknown options are errors. So are values
    that a scenario must not have: the scenario is printed, and each error names its line.
    """
    text = "\n".join(imported(tool, words).lines())
    say(text)
    parse_scenario(text, "stdout", lenient=True)
    return data_code()


def imported(tool: str, arguments: Sequence[str]) -> ImportedScenario:
    """Returns the scenario of command lines. Raises UsageError."""
    if tool in FILES:
        if len(arguments) > 1:
            raise UsageError(
                f"found {len(arguments)} files, allowed is one", "import each by itself"
            )
        return FILES[tool](arguments[0])
    first, *others = command_lines(arguments)
    scenario = COMMANDS[tool](first)
    for words in others:
        scenario.add(COMMANDS[tool](words))
    return scenario
