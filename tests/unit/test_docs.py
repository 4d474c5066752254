"""Checks the examples in the documents: each YAML is read, each command line has known options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from pubstorm import cli
from pubstorm.cli.lazy import LazyCommand
from pubstorm.scenario import Scenario, parse_scenario
from pubstorm.scenario.checks.brokers import EMBEDDED_OPTIONS
from pubstorm.scenario.document import read_document
from pubstorm.scenario.shape import shape_of

ROOT = Path(__file__).parents[2]
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
BY_THE_RUN = {"port", "metrics-port", "auth", "follow-stdin", "help", "version"}
"""Options of the embedded broker that are no settings."""


def yaml_blocks() -> Iterator[tuple[str, str]]:
    for path in DOCUMENTS:
        text = path.read_text()
        for found in re.finditer(r"^```yaml\n(.*?)^```", text, re.M | re.S):
            line = text.count("\n", 0, found.start()) + 2
            yield f"{path.relative_to(ROOT)}:{line}", found[1]


def command_lines() -> Iterator[tuple[str, str]]:
    for path in DOCUMENTS:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = re.match(r"(?:    |\$ )+(?:[A-Z_]+=\S+ )*pubstorm (\w.*)", line)
            if found is not None:
                yield f"{path.relative_to(ROOT)}:{number}", found[1]


def identity(text: str) -> str:
    return text if text.count("\n") == 0 else ""


@pytest.mark.parametrize(("place", "text"), [*yaml_blocks()], ids=identity)
def test_every_yaml_in_the_documents_is_read(place: str, text: str) -> None:
    document = read_document(text)
    keys = set(document.data) if isinstance(document.data, dict) else set()
    if keys & {"populations", "topology", "stages"}:
        assert document.duplicates == (), place
        assert keys <= set(shape_of(Scenario).keys), place
    if {"populations", "stages"} <= keys and keys & {"target", "topology"}:
        parse_scenario(text, "snippet.yaml", lenient=True)


@pytest.mark.parametrize(("place", "line"), [*command_lines()], ids=identity)
def test_every_command_in_the_documents_has_options_that_exist(place: str, line: str) -> None:
    name, *words = shlex.split(line, comments=True)
    lazy = next((each for each in cli.COMMANDS if each.name == name), None)
    assert lazy is not None, place
    assert set(options_in(words)) <= options_of(lazy), place


def options_in(words: list[str]) -> Iterator[str]:
    """The options of a command line, up to what follows it in a shell."""
    for word in words:
        if word in {"|", "&&", ";", ">"}:
            return
        if word.startswith("--"):
            yield word.partition("=")[0]


def options_of(lazy: LazyCommand) -> set[str]:
    context = click.Context(lazy.load())
    return {name for each in lazy.load().get_params(context) for name in each.opts} | {"--help"}


def test_settings_of_the_embedded_broker_are_options_of_it() -> None:
    source = (ROOT / "crates/broker/src/options.rs").read_text()
    assert {*EMBEDDED_OPTIONS, *BY_THE_RUN} == set(re.findall(r'Arg::Long\("([a-z-]+)"\)', source))
