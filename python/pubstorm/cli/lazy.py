"""Commands that are imported when they are called: the list of commands costs no import."""

from __future__ import annotations

import importlib
from typing import Any

import click


class LazyCommand(click.Command):
    """Stands for a command that is not imported yet; `help` is the first sentence of its help.

    `module` has the command under its name, with `_` for `-`.
    """

    def __init__(self, name: str, module: str, help: str) -> None:
        super().__init__(name, help=help)
        self.module = module

    def load(self) -> click.Command:
        """Imports the command."""
        name = str(self.name).replace("-", "_")
        found = getattr(importlib.import_module(self.module), name)
        assert isinstance(found, click.Command)
        return found

    def make_context(self, *arguments: Any, **settings: Any) -> click.Context:
        """Reads the arguments as the command itself does, and hands over to it."""
        return self.load().make_context(*arguments, **settings)
