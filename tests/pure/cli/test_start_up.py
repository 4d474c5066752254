"""Modules that a command loads before it does anything: time that every call pays."""

import subprocess
import sys

import pytest

from pubstorm import cli
from pubstorm.cli import LazyCommand
from pubstorm.errors import UsageError

HEAVY = {
    "asyncio",
    "cryptography",
    "google",
    "jinja2",
    "paho",
    "prometheus_client",
    "psutil",
    "pydantic",
    "redis",
    "rich",
    "yaml",
}
NEEDED_BY_RUNS = {"asyncio", "psutil", "pydantic", "yaml"}


def imported_by(code: str, *arguments: str) -> set[str]:
    """Returns the names of all modules that a program has imported when it ends."""
    program = f"{code}\nprint(*sys.modules, sep='\\n', file=sys.stderr)"
    command = [sys.executable, "-c", f"import sys\n{program}", *arguments]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stderr.split())


def loaded_by(*arguments: str) -> set[str]:
    """Returns the names of all modules that a command line has imported when it ends."""
    return imported_by("from pubstorm.cli import main\nmain(sys.argv[1:])", *arguments)


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_load_next_to_nothing(argument: str) -> None:
    modules = loaded_by(argument)
    assert modules & HEAVY == set()
    assert {name for name in modules if name.startswith("pubstorm.")} == {
        "pubstorm.cli",
        "pubstorm.errors",
        "pubstorm.output",
        "pubstorm.host",
        "pubstorm.host.signals",
    }


@pytest.mark.parametrize("lazy", cli.COMMANDS, ids=lambda lazy: lazy.name)
def test_the_list_of_commands_says_what_each_says_of_itself(lazy: LazyCommand) -> None:
    command = lazy.load()
    assert (command.name, command.get_short_help_str(1000)) == (lazy.name, lazy.help)


def test_an_unknown_command_is_an_error_with_its_name() -> None:
    with pytest.raises(UsageError, match="found no command 'ran'") as caught:
        cli.pubstorm.main(["ran"], "pubstorm", standalone_mode=False)
    assert caught.value.hint == "did you mean run?"


def test_a_run_loads_only_the_libraries_that_it_needs_before_its_end() -> None:
    results = {"pubstorm.play.record", "pubstorm.report.text", "pubstorm.result.verdict.findings"}
    unused = HEAVY - NEEDED_BY_RUNS | results | {"ray", "zmq"}
    assert imported_by("import pubstorm.cli.run") & unused == set()
