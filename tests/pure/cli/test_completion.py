"""`pubstorm completion`: the script of each shell, and the words that bash gets for a line."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pubstorm.cli.init import SHELLS
from pubstorm.cli.run import KINDS
from tests.kit import program


def script(shell: str) -> str:
    found = program.run(("completion", shell), capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stderr) == (0, "")
    return str(found.stdout)


def completed(line: str, cwd: Path) -> list[str]:
    """The words that the program offers to bash for the end of a line, each with its kind."""
    words = line.split(" ")
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    found = program.run(
        (),
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=60,
        env={**os.environ, **asked, "_PUBSTORM_COMPLETE": "bash_complete"},
    )
    assert "Traceback" not in found.stderr
    return str(found.stdout).split()


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script_that_it_reads(shell: str, tmp_path: Path) -> None:
    text = script(shell)
    assert "_PUBSTORM_COMPLETE" in text
    found = shutil.which(shell)
    if found is not None:
        (tmp_path / "script").write_text(text)
        flags = ["--no-config", "-n"] if shell == "fish" else ["-n"]
        subprocess.run([found, *flags, str(tmp_path / "script")], check=True, timeout=60)


def test_another_shell_is_an_error() -> None:
    found = program.run(("completion", "ksh"), capture_output=True, text=True, timeout=60)
    assert found.returncode == 2
    assert "'ksh' is not one of 'bash', 'zsh', 'fish'" in found.stderr


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("pubstorm ben", ["plain,bench"]),
        ("pubstorm bench ", [f"plain,{kind}" for kind in KINDS]),
        ("pubstorm run quicks", ["plain,quickstart", "file,quicks"]),
        ("pubstorm check mine", ["file,mine"]),
        ("pubstorm run --prog", ["plain,--progress"]),
    ],
)
def test_commands_kinds_scenarios_and_options_are_offered(
    line: str, words: list[str], tmp_path: Path
) -> None:
    assert completed(line, tmp_path) == words
