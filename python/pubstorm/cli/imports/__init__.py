"""`pubstorm import`: prints the scenario of another tool's command lines or file. An option without
an equal becomes a comment, an unknown option an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from pubstorm.cli.imports import emqtt_bench, mosquitto, mqttx, rabbitmq, stressers
from pubstorm.cli.imports.scenario import ImportedScenario
from pubstorm.cli.imports.words import command_lines
from pubstorm.output import data_code, say

COMMANDS: dict[str, Callable[[Sequence[str]], ImportedScenario]] = {
    "emqtt-bench": emqtt_bench.read,
    "mqttx": mqttx.read,
    "mosquitto": mosquitto.read,
    "mqtt-stresser": stressers.read_stresser,
    "mqtt-benchmark": stressers.read_benchmark,
    "omq": rabbitmq.read_omq,
    "perf-test": rabbitmq.read_perf_test,
}
"""Readers of the words of a command line, by tool."""


@click.command(
    "import", context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]}
)
@click.argument("tool", type=click.Choice(tuple(COMMANDS)))
@click.argument("words", nargs=-1, required=True, metavar="COMMAND...", type=click.UNPROCESSED)
def import_(tool: str, words: tuple[str, ...]) -> int:
    """Print the scenario of another tool's command line.

    TOOL is emqtt-bench. COMMAND is its command line, in quotes or as words after --.
    """
    say("\n".join(imported(tool, words).lines()))
    return data_code()


def imported(tool: str, arguments: Sequence[str]) -> ImportedScenario:
    """Returns the scenario of command lines. Raises UsageError."""
    first, *others = command_lines(arguments)
    scenario = COMMANDS[tool](first)
    for words in others:
        scenario.add(COMMANDS[tool](words))
    return scenario
