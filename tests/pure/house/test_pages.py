"""Holds what pages say against the code: options, keys by kind, extras, exit codes, features that
are denied. test_docs.py has the examples."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import click
import pytest

from docs import generate
from pubstorm import cli
from pubstorm.cli.check import HOST_SHORT
from pubstorm.cli.outcome import EXIT_CODES
from pubstorm.errors import UsageError
from pubstorm.host.signals import INTERRUPTED
from pubstorm.play.directory import NOT_STORED
from pubstorm.scenario import topology
from pubstorm.scenario.topology import Command, Embedded, Kafka, Mosquitto, Nats, Rabbitmq

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
DECISIONS, ELSEWHERE = DOCS / "decisions", DOCS / "how-to" / "coming-from"
PAGES = [
    path
    for path in (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
    if not {DECISIONS, ELSEWHERE} & {*path.parents}
]
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9_-]+")
OF_OTHERS = {
    *("--cpu-list", "--dport", "--enable-feature", "--head", "--init", "--labels", "--locked"),
    *("--network", "--node-ip-address", "--release", "--require-hashes", "--ulimit", "--volume"),
    *("--wait", "--example", "--include_imports", "--descriptor_set_out"),
}
"""Options of programs that are not ours: taskset, iptables, Prometheus, Ray, Docker, cargo, pip,
protoc."""
OF_PROGRAMS = {
    *("--agent", "--agents", "--population", "--shard", "--explain", "--sink", "--every", "--base")
}
"""Options of publishers by contract, of the engine, of benches, and of scripts."""
KINDS: dict[str, type[topology.Broker]] = {
    "embedded": Embedded,
    "mosquitto": Mosquitto,
    "rabbitmq": Rabbitmq,
    "nats": Nats,
    "kafka": Kafka,
    "command": Command,
}


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def options_of(command: click.Command) -> Iterator[str]:
    """Yields the options of a command and of the commands in it."""
    for parameter in command.get_params(click.Context(command)):
        yield from parameter.opts
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        yield from options_of(inner)


def options_named(page: Path) -> Iterator[tuple[str, str]]:
    """Yields the options in the text of a page, each with its words; examples are left out."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for words in re.findall(r"`([^`\n]+)`", text):
        yield from ((option, words) for option in OPTION.findall(words))


def command_of(name: str) -> click.Command:
    return next(lazy for lazy in cli.COMMANDS if lazy.name == name).load()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_options_that_a_page_names_exist(page: Path) -> None:
    known = {option for lazy in cli.COMMANDS for option in options_of(lazy.load())}
    known |= {"--help", "--version", *OF_OTHERS, *OF_PROGRAMS}
    assert [words for option, words in options_named(page) if option not in known] == []


def test_the_page_on_loads_in_one_line_has_each_option() -> None:
    text = text_of("how-to/bench.md")
    parameters = command_of("bench").get_params(click.Context(command_of("bench")))
    missing = [
        each.opts for each in parameters if not any(f"`{name}`" in text for name in each.opts)
    ]
    assert [names for names in missing if names[0].startswith("-") and "--help" not in names] == []


def test_the_page_on_brokers_names_the_kinds_of_each_key() -> None:
    section = text_of("how-to/brokers.md").partition("| key | kinds |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`[^|]+`) \| ([^|]+) \|$", section, re.M)
    keys = {kind: {*model.model_fields} for kind, model in KINDS.items()}
    assert {*keys} == kinds_of_brokers()
    every = {key for each in keys.values() for key in each}
    partial = {key for key in every if not all(key in each for each in keys.values())}
    found = {
        key: {kind for kind in keys if re.search(rf"\b{kind}\b", kinds)}
        for names, kinds in rows
        for key in re.findall(r"`(\w+)`", names)
        if key in partial
    }
    assert found == {key: {kind for kind in keys if key in keys[kind]} for key in partial}


def kinds_of_brokers() -> set[str]:
    brokers: list[type[topology.Broker]] = [topology.Broker]
    for broker in brokers:
        brokers += broker.__subclasses__()
    return {kind for each in brokers for kind in get_args(each.model_fields["kind"].annotation)}


def test_extras_that_are_installed_by_name_are_extras_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    sources = [*PAGES, *sorted((ROOT / "python").rglob("*.py"))]
    named = {
        extra
        for path in sources
        for extra in re.findall(r"\.whl\[([\w,]+)\]", path.read_text(encoding="utf-8"))
    }
    assert {"otlp", "pandas", "parquet", "ray"} <= named
    assert named <= {*project["optional-dependencies"]}
    assert [path for path in sources if "install 'pubstorm[" in path.read_text("utf-8")] == []


def test_each_exit_code_is_on_the_pages_that_list_them() -> None:
    codes = {*EXIT_CODES.values(), UsageError.default_exit_code}
    codes |= {INTERRUPTED, NOT_STORED, HOST_SHORT}
    page = text_of("reference/exit-codes.md")
    of_runs, _, of_others = page.partition("All other commands")
    listed = [*map(int, re.findall(r"^\| (\d+) \|", of_runs, re.M))]
    assert listed == sorted(codes)
    assert {*map(int, re.findall(r"^\| (\d+) \|", of_others, re.M))} < codes
    assert [*map(int, generate.EXIT_CODES)] == sorted(codes)
    assert [*map(int, re.findall(r"^\| (\d+) \|", text_of("how-to/ci.md"), re.M))] == sorted(codes)
    sentence = re.search(r"The \[exit code\].*?The run dir", (ROOT / "README.md").read_text(), re.S)
    assert sentence is not None
    assert {*map(int, re.findall(r"\b\d+\b", sentence[0]))} == codes


def test_each_key_of_a_scenario_has_words_on_its_page() -> None:
    rows = (DOCS / "reference" / "scenario.md").read_text().splitlines()
    keys = [row for row in rows if row.startswith("| `")]
    assert len(keys) > 300
    assert not [row for row in keys if row.endswith("|  |")]


def test_limits_deny_no_key_of_a_scenario() -> None:
    protocols = text_of("reference/limits.md").partition("## Platforms")[0]
    rows = re.findall(r"^\| [^|]+\|[^|]+\|([^|]+)\|$", protocols, re.M)
    rows.append(text_of("how-to/mqtt5.md").partition("## Not played")[2])
    denied = " ".join(rows).lower()
    keys = {*re.findall(r"^\| `(\w+_\w+)` \|", text_of("reference/scenario.md"), re.M)}
    assert "mqtt-sn" in denied and "0-rtt over tcp" in denied
    assert "retain_as_published" in keys
    assert [key for key in sorted(keys) if key.replace("_", " ") in denied] == []
