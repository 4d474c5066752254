"""Checks the examples in the documents: each YAML is read, each command line has known options."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pubstorm import cli
from pubstorm.cli.imports import COMMANDS, FILES, imported
from pubstorm.cli.run import bench
from pubstorm.experiment.invocation import Invocation
from pubstorm.metrics.populations import POPULATIONS
from pubstorm.scenario import Scenario, parse_scenario
from pubstorm.scenario.document import read_document
from pubstorm.scenario.load import scenario_files
from pubstorm.scenario.problems import shape_of
from pubstorm.scenario.topology import EMBEDDED_OPTIONS

ROOT = Path(__file__).parents[3]
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
PATH = re.compile(r"`([a-z_/]+(?:/|\.py|\.rs))`")
MODULE = re.compile(r"`([a-z_]+)/?`")
COMMAND = re.compile(
    r"(?:    |\$ )*(?:- )?(?:run: )?(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?pubstorm ([a-z].*)"
)
BY_THE_RUN = {
    *("port", "websocket-port", "metrics-port", "quic-port", "quic-certificate", "quic-key"),
    *("auth", "follow-stdin", "help", "version"),
}
"""Options of the embedded broker that are no settings."""


def test_the_glossary_names_files_that_exist() -> None:
    rows = (ROOT / "docs/explanation/glossary.md").read_text().splitlines()
    named = [
        path for row in rows if row.count("|") == 4 for path in PATH.findall(row.split("|")[3])
    ]
    roots = (ROOT / "python" / "pubstorm", ROOT / "crates")
    assert len(named) > 50
    assert [path for path in named if not any((root / path).exists() for root in roots)] == []


def test_the_architecture_names_modules_that_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rows = re.findall(r"^\| `(\w+/)` \|[^|]*\|([^|]*)\|$", text, re.MULTILINE)
    named = [room + module for room, modules in rows for module in MODULE.findall(modules)]
    named += [path.partition("`")[0] for path in re.findall(r"`(\w+/(?:\w+/)*\w+`)", text)]
    roots = (ROOT / "python" / "pubstorm", ROOT / "crates", ROOT / "crates/engine/src", ROOT)
    found = {
        root / f"{path}{end}" for root in roots for path in named for end in ("", ".py", ".rs")
    }
    existing = {path.with_suffix("") for path in found if path.exists()}
    assert len(named) > 100
    assert [path for path in named if not existing & {root / path for root in roots}] == []


def test_the_site_builds_and_its_links_lead_somewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-d", str(tmp_path)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True)
    assert (built.returncode, built.stderr) == (0, "")
    assert (tmp_path / "tutorial/first-scenario/index.html").exists()


def test_links_of_pages_beside_the_site_lead_to_files() -> None:
    pages = [*ROOT.glob("*.md"), ROOT / "deploy" / "README.md"]
    links = [
        (page, link)
        for page in pages
        for link in re.findall(r"\]\(([^):#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    ]
    assert len(links) > 20
    assert [link for page, link in links if not (page.parent / link).exists()] == []


def test_the_guide_lists_each_default_threshold_once() -> None:
    guide = (ROOT / "docs/how-to/scenarios.md").read_text(encoding="utf-8")
    defaults = sorted(metric.name for metric in POPULATIONS if metric.zero is not None)
    assert sorted(re.findall(r"^\| `(\w+) == 0` \|", guide, re.M)) == defaults


def test_advisories_name_each_lock_and_the_versions_of_bundled_libraries() -> None:
    page = (ROOT / "docs/reference/advisories.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    command = re.findall(r"^RUSTSEC :=.*?\n\nadvisories:.*?\n\n", makefile, re.M | re.S)[0]
    locks = [*ROOT.glob("*.lock"), *ROOT.glob("*/*.lock"), *ROOT.glob("requirements*.txt")]
    names = {str(path.relative_to(ROOT)) for path in locks} - {"requirements-lowest.txt"}
    assert len(names) == 5, "the lowest versions are installed by no delivery and no gate"
    assert [name for name in names if f"`{name}`" not in page or name not in command] == []
    cargo = (ROOT / "Cargo.lock").read_text(encoding="utf-8")
    for crate, library in (("openssl-src", "OpenSSL"), ("zeromq-src", "libzmq")):
        bundled = re.findall(rf'name = "{crate}"\nversion = "[\d.]+\+([\d.]+)"', cargo)
        assert re.findall(rf"^\| {library} (\S+), ", page, re.M) == bundled


def test_limits_deny_no_feature_that_a_ready_scenario_plays() -> None:
    limits = (ROOT / "docs/reference/limits.md").read_text(encoding="utf-8")
    denied = re.search(r"^\| MQTT \|.*\|(.*)\|$", limits, re.M)
    features = (ROOT / "scenarios/mqtt5-features.yaml").read_text(encoding="utf-8")
    played = re.findall(r"^    - step: (.+)$", features, re.M)
    assert denied is not None
    assert "retain as published" in played
    assert [feature for feature in played if feature.lower() in denied[1].lower()] == []


def quoted() -> Iterator[str]:
    """The parts, without numbers, of each message that the page on troubleshooting explains."""
    page = (ROOT / "docs/how-to/troubleshooting.md").read_text(encoding="utf-8")
    for term in re.findall(r"^(.+)\n:   ", page, re.M):
        for message in re.findall(r"`([^`]+)`", term):
            yield from (part.strip() for part in message.split("…") if part.strip())


def test_the_page_on_troubleshooting_quotes_messages_that_exist() -> None:
    sources = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("python", "crates")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in {".py", ".rs"}
    )
    sources = re.sub(r'"\s*\n\s*f?"', "", sources)
    messages = [*quoted()]
    assert len(messages) > 15
    assert [message for message in messages if message not in sources] == []


def yaml_blocks() -> Iterator[tuple[str, str]]:
    for path in DOCUMENTS:
        text = path.read_text()
        for found in re.finditer(r"^```yaml\n(.*?)^```", text, re.M | re.S):
            line = text.count("\n", 0, found.start()) + 2
            yield f"{path.relative_to(ROOT)}:{line}", found[1]


def command_lines() -> Iterator[tuple[str, str]]:
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8").replace("\\\n", "")
        for number, line in enumerate(text.splitlines(), 1):
            found = re.match(COMMAND, line)
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


def test_jobs_of_ci_consist_of_command_lines() -> None:
    page = (ROOT / "docs/how-to/ci.md").read_text(encoding="utf-8")
    blocks = [
        read_document(each).data for each in re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S)
    ]
    lines = [line for each in blocks for line in job_lines(each)]
    assert len(lines) > 12
    assert [line for line in lines if not isinstance(line, str)] == []


def job_lines(value: object) -> Iterator[object]:
    """The lines of all keys `script` and `run`, at any depth."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        if key in {"script", "run"}:
            yield from inner if isinstance(inner, list) else (inner,)
        else:
            yield from job_lines(inner)
    for inner in value if isinstance(value, list) else ():
        yield from job_lines(inner)


@pytest.mark.parametrize(("place", "line"), [*command_lines()], ids=identity)
def test_every_command_in_the_documents_has_options_that_exist(place: str, line: str) -> None:
    name, *words = words_of(line)
    lazy = next((each for each in cli.COMMANDS if each.name == name), None)
    assert lazy is not None, place
    command = lazy.load()
    if isinstance(command, click.Group):
        command = command.commands[words[0]]
    options = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert options <= options_of(command), place


def lines_of(*commands: str) -> list[tuple[str, str]]:
    """Returns the lines with these commands, of which nothing is left out."""
    return [
        (place, line)
        for place, line in command_lines()
        if line.split()[0] in commands and "..." not in line
    ]


READY = {path.stem for path in scenario_files()}
OF_READY = [(place, line) for place, line in lines_of("run", "check") if READY & {*line.split()}]


@pytest.mark.parametrize(("place", "line"), OF_READY, ids=identity)
def test_every_documented_play_of_a_ready_scenario_has_values_that_exist(
    place: str, line: str
) -> None:
    name, *words = words_of(line)
    command = next(each for each in cli.COMMANDS if each.name == name).load()
    asked = command.make_context(name, words).params
    overrides = (*asked["overrides"], *asked["on"])
    scenario = Invocation(asked["scenario"], overrides, asked["target"]).load()
    assert scenario.populations, place


@pytest.mark.parametrize(("place", "line"), lines_of("bench"), ids=identity)
def test_every_documented_load_in_one_line_is_a_scenario(place: str, line: str) -> None:
    _, *words = words_of(line)
    printed = CliRunner().invoke(bench, [*words, "--print"])
    assert printed.exit_code == 0, (place, printed.exception)


def words_of(line: str) -> list[str]:
    """Returns the words of a command line, up to what follows it in a shell."""
    words = shlex.split(line, comments=True)
    return [*itertools.takewhile(lambda word: word not in {"|", "&&", ";", ">"}, words)]


def options_of(command: click.Command) -> set[str]:
    params = command.get_params(click.Context(command))
    return {name for each in params for name in each.opts} | {"--help"}


def test_settings_of_the_embedded_broker_are_options_of_it() -> None:
    source = (ROOT / "crates/broker/src/options.rs").read_text()
    option = r'#\[arg\(long(?: = "([a-z-]+)")?(?:.|\n)*?\)\]\n *(?:pub )?([a-z_]+):'
    options = re.findall(option, source)
    long = {name or field.replace("_", "-") for name, field in options}
    assert {*EMBEDDED_OPTIONS, *BY_THE_RUN} == long | {"help", "version"}


def test_each_page_for_users_of_another_tool_has_a_whole_scenario() -> None:
    pages = sorted((ROOT / "docs/how-to/coming-from").glob("*.md"))
    assert len(pages) == 10
    whole = {"target", "populations", "stages"}
    for page in pages:
        blocks = re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.M | re.S)
        found = [read_document(block).data for block in blocks]
        assert any(isinstance(data, dict) and whole <= set(data) for data in found), page


SHOWN = re.compile(
    r"^    pubstorm import (\S+) ([^>\n]+)(?:(?!^```yaml).)*?^The scenario of [^\n]+\n\n"
    r"```yaml\n(.*?)^```",
    re.M | re.S,
)
"""A command that imports, and the scenario that its page shows."""


def test_the_imported_scenario_is_the_one_that_the_page_shows(tmp_path: Path) -> None:
    shown = []
    for page in sorted((ROOT / "docs/how-to/coming-from").glob("*.md")):
        text = page.read_text()
        plan = re.search(r"^```xml\n(.*?)^```", text, re.M | re.S)
        for tool, words, scenario in SHOWN.findall(text):
            arguments = shlex.split(words)
            if tool in FILES:
                assert plan is not None
                (tmp_path / arguments[0]).write_text(plan[1])
                arguments = [str(tmp_path / arguments[0])]
            lines = [
                line
                for line in imported(tool, arguments).lines()
                if not line.lstrip().startswith("#")
            ]
            assert "\n".join(lines) + "\n" == scenario, page
            shown.append(tool)
    assert len(shown) == 6
    assert set(shown) <= {*COMMANDS, *FILES}


def test_the_man_page_has_every_command_and_option() -> None:
    text = (ROOT / "python/man/pubstorm.1").read_text().replace("\\-", "-")
    for lazy in cli.COMMANDS:
        assert f'.SS "pubstorm {lazy.name}' in text
        for name in {each for each in options_of(lazy.load()) if each[0] == "-"} - {"--help"}:
            assert re.search(rf"^\.B (?:.*, )?{re.escape(name)}\b", text, re.M), name
    requests = {line.split(" ")[0] for line in text.splitlines() if line.startswith(".")}
    assert requests <= {'.\\"', ".TH", ".SH", ".SS", ".PP", ".TP", ".B"}
