"""`pubstorm completion`: the completion script of a shell, and the names that it offers."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class

from pubstorm.output import data_code, say

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_PUBSTORM_COMPLETE"
"""Environment variable by which a shell asks the program for words."""


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> int:
    """Print the completion script of a shell.

    For bash, put eval "$(pubstorm completion bash)" into ~/.bashrc; for zsh the same into ~/.zshrc.
    For fish, write the output to ~/.config/fish/completions/pubstorm.fish.
    """
    from pubstorm.cli import pubstorm

    kind = get_completion_class(shell)
    assert kind is not None, "click has completion for each of the shells"
    script = kind(pubstorm, {}, "pubstorm", VARIABLE)
    say((script.source_template % script.source_vars()).strip())
    return data_code()


def scenario_names(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Returns the names of ready scenarios that begin so, and asks the shell for files."""
    from pubstorm.scenario.shipped import scenario_files

    names = [path.stem for path in scenario_files() if path.stem.startswith(incomplete)]
    return [*map(CompletionItem, names), CompletionItem(incomplete, type="file")]
