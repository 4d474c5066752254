"""Scenarios that `pubstorm import` makes: each is read, and a path finds a value in it."""

from __future__ import annotations

from typing import Any

import yaml

from pubstorm.cli.imports import imported
from pubstorm.scenario import parse_scenario


def scenario_of(tool: str, *lines: str) -> str:
    """The scenario of command lines or of a file, which can be read."""
    text = "\n".join(
        imported(tool, [f"{line} " if len(lines) > 1 else line for line in lines]).lines()
    )
    parse_scenario(text, "imported.yaml")
    return text


def at(text: str, path: str) -> Any:
    """The value at a path such as `populations.pub.publications.0`; None if there is none."""
    found: Any = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    for step in filter(None, path.split(".")):
        if isinstance(found, list):
            found = found[int(step)] if int(step) < len(found) else None
        else:
            found = found.get(step) if isinstance(found, dict) else None
    return found
